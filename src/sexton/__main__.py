"""``python -m sexton`` is the same as ``sexton``."""

from sexton.surface.cli.main import command

command()
