"""What was applied on this node, how far it came, and whether it was undone.

An apply that was cut off (killed, or the node lost power) is marked CUT OFF, with the
command that undoes it. Exit: 0, or 1 where one was cut off.
"""

from __future__ import annotations

import argparse

from sexton.cli.fix.options import add_state
from sexton.cli.options import add_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_state(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.cli.fix.options import page, show, state_of
    from sexton.cure.journal import RUNNING, every
    from sexton.reports.json.plan import status_json
    from sexton.reports.text.plan import status_text

    state = state_of(args)
    runs = every(state)
    width, _ = page()
    show(args, status_json(runs), status_text(runs, width, state.directory))
    return 1 if any(told.state == RUNNING for told in runs) else 0
