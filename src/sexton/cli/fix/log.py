"""Show the audit log: every decision on this node, oldest first, including dry runs.

One line each: time, user, event, plan. --json prints the raw lines (docs/fix.md lists the
fields). Exit: 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from sexton.cli.fix import add_state, state_of
from sexton.cli.options import add_json

_SHOWN = ("chain", "run", "step", "how", "why", "said", "verdict", "reasons", "failed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_state(parser)


def run(args: argparse.Namespace) -> int:
    return print_log(args)


def print_log(args: argparse.Namespace, numbered: bool = False) -> int:
    """Every entry, as text or as it was written."""
    import json
    import sys

    from sexton.cure.journal import audit_log

    state = state_of(args)
    state.runs()  # raises if it may not be read
    empty = True
    for line in audit_log(state):
        empty = False
        number = f"{line.get('seq', '?'):>5}  " if numbered else ""
        sys.stdout.write((json.dumps(line) if args.json else number + _text(line)) + "\n")
    if empty and not args.json:
        print(f"nothing has been logged (no audit log in {state.directory})")
    return 0


def _text(line: Mapping[str, Any]) -> str:
    import time

    from sexton.model.text import printable

    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(line["unix"]))
    parts = [when, str(line.get("who", "?")), str(line["event"])]
    if "plan" in line:
        parts.append(f"plan {str(line['plan'])[:16]}")
    for name in _SHOWN:
        value = line.get(name)
        if value:
            shown = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
            parts.append(f"{name}: {shown}")
    return printable("  ".join(parts))
