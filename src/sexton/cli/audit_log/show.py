"""Show every decision, oldest first, with its number: what was done, or why not.

Shows what is there; `sexton audit-log verify` says whether it is as it was written. --json
prints the raw lines (docs/fix.md lists the fields). Exit: 0.
"""

from __future__ import annotations

import argparse

from sexton.cli.fix.log import add_arguments as add_arguments
from sexton.cli.fix.log import print_log


def run(args: argparse.Namespace) -> int:
    return print_log(args, numbered=True)
