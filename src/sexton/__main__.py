"""``python -m sexton`` is the same as ``sexton``."""

from sexton.surface.cli.main import main

raise SystemExit(main())
