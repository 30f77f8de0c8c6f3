"""Carry out a plan that you have read, one step at a time.

  sudo sexton fix apply plan.json --confirm HASH            the hash that the plan printed
  sudo sexton fix apply plan.json --confirm HASH --dry-run  every check, no change

It refuses a plan of another node or another boot, evidence older than an hour, a
precondition that no longer holds (and says which), a second fixer at the same time, and
to begin while an earlier apply was cut off half-way. All that an undo needs is on the
disk before a step touches anything. It stops when a reset or error counter of a network
interface rises, when pressure rises, when a proof is missing, or after --max-seconds;
what was done until then stays, and `sexton fix rollback` undoes it.
Exit: 0 every step done and proven, 1 refused or stopped (it says where), 2 failed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.fix.options import add_protected, add_state
from sexton.cli.options import add_json, seconds

if TYPE_CHECKING:
    from sexton.model.plan import Plan

_SHORTEST_HASH = 8
_MOST_BYTES = 16 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLANFILE", help="what `sexton fix plan --out` wrote")
    parser.add_argument(
        "--confirm",
        metavar="HASH",
        required=True,
        help="the plan's hash, or at least its first 8 digits: it says that you mean this plan",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything and change nothing; that it was tried is logged",
    )
    parser.add_argument(
        "--max-seconds",
        type=seconds,
        default=300.0,
        metavar="N",
        help="stop, wherever it is, after that long (default 300)",
    )
    add_json(parser)
    add_protected(parser)
    add_state(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.cli.fix.options import need_root, page, rules_of, show, state_of
    from sexton.cure.executor import Bench, Refused, apply
    from sexton.cure.watchdog import Watchdog
    from sexton.cure.writer import DryWriter, LiveWriter
    from sexton.host.host import open_host
    from sexton.reports.json.plan import applied_json, refused_json
    from sexton.reports.text.plan import applied_text, refused_text

    need_root("apply")
    plan = read_plan(args.plan)
    _confirmed(plan, args.confirm)
    host = open_host()
    bench = Bench(
        host,
        DryWriter() if args.dry_run else LiveWriter(host),
        state_of(args),
        lambda limit_s: Watchdog(host, limit_s),
        rules_of(args),
        tell=lambda line: print(f"  {line}", file=sys.stderr, flush=True),
        dry=args.dry_run,
    )
    width, colour = page()
    try:
        applied = apply(plan, bench, args.max_seconds)
    except Refused as refused:
        reasons = refused.reasons
        show(args, refused_json(plan, reasons), refused_text(plan, reasons, width, colour))
        return refused.exit_code
    show(args, applied_json(plan, applied), applied_text(plan, applied, width, colour))
    return 1 if applied.why else 0


def read_plan(path: str) -> Plan:
    """A plan from a file of anybody's; one that was changed is none."""
    import json

    from sexton.errors import CommandError, SourceError
    from sexton.host.reader import LiveFiles
    from sexton.model.plan import PlanError, from_json

    try:
        return from_json(json.loads(LiveFiles().read(path, _MOST_BYTES)))
    except SourceError as error:
        raise CommandError(f"{path}: {error.detail}") from None
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, PlanError) else "not JSON"
        raise CommandError(f"{path}: not a plan that can be applied: {what}") from None


def _confirmed(plan: Plan, given: str) -> None:
    from sexton.errors import CommandError

    wanted = given.strip().lower()
    if len(wanted) < _SHORTEST_HASH or not plan.hash.startswith(wanted):
        raise CommandError(
            "--confirm is not this plan's hash: read the plan, then confirm what it says at its end"
        )
