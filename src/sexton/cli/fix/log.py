"""The audit log: every decision on this node, oldest first, dry runs too.

One line each: when, who, what, which plan. The file is only ever appended to; --json
prints its lines as they are (docs/fix.md names the fields). Exit: 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from sexton.cli.fix.options import add_state
from sexton.cli.options import add_json

_SHOWN = ("run", "step", "how", "why", "said", "verdict", "reasons", "failed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_state(parser)


def run(args: argparse.Namespace) -> int:
    import json
    import sys

    from sexton.cli.fix.options import state_of
    from sexton.cure.log import lines

    state = state_of(args)
    state.runs()  # says so where it may not be read
    empty = True
    for line in lines(state):
        empty = False
        sys.stdout.write((json.dumps(line) if args.json else _told(line)) + "\n")
    if empty and not args.json:
        print(f"nothing was ever decided here ({state.directory} holds no log)")
    return 0


def _told(line: Mapping[str, Any]) -> str:
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
