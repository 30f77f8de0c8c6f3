"""Show what was applied on this node, how far it got, and whether it was undone.

An apply that did not finish (killed, or the node lost power) is marked INTERRUPTED, with
the command that undoes it. Exit: 0, or 1 if one was interrupted.
"""

from __future__ import annotations

import argparse

from sexton.cli.fix import add_state, state_of, terminal
from sexton.cli.options import add_json
from sexton.cli.output import print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_state(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.cure.journal import RUNNING, all_runs
    from sexton.reports.text.fix import status_json, status_text

    state = state_of(args)
    runs = all_runs(state)
    width, _ = terminal()
    print_result(args, status_json(runs), status_text(runs, width, state.directory))
    return 1 if any(attempt.state == RUNNING for attempt in runs) else 0
