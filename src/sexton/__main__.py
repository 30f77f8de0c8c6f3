"""``python -m sexton`` is the same as ``sexton``."""

from sexton.cli.main import command

command()
