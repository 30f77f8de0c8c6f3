"""Apply a plan that you have read, one step at a time.

  sudo sexton fix apply plan.json --confirm HASH            the hash printed with the plan
  sudo sexton fix apply plan.json --confirm HASH --dry-run  all checks, no changes
  sudo sexton fix apply plan.json --confirm HASH --only 1-stop   one step of it

Refuses a plan for another node or boot, evidence older than an hour, and preconditions
that are no longer met; also while another fix is running or an interrupted apply has not
been rolled back. Before each step, everything its undo needs is synced to disk. Stops when
a NIC reset or error counter rises, pressure (PSI) rises, a proof fails, or after
--max-seconds. Completed steps stay in place; `sexton fix rollback` undoes them.
Exit: 0 all steps done and proven, 1 refused, stopped, or done without the effect, 2 failed,
3 done, but a proof could not be read.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.cluster import add_kubeconfig
from sexton.cli.fix import (
    add_protected,
    add_state,
    cluster_of,
    need_root,
    print_progress,
    rules_of,
    state_of,
    terminal,
)
from sexton.cli.options import add_json, seconds
from sexton.cli.output import print_result
from sexton.errors import CommandError, SourceError

if TYPE_CHECKING:
    from sexton.model.plan import Plan

#: 64 bits: no one can forge another plan with the same digits.
_SHORTEST_HASH = 16
_MOST_BYTES = 16 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLANFILE", help="file written by `sexton fix plan --out`")
    parser.add_argument(
        "--confirm",
        metavar="HASH",
        required=True,
        help="the plan's hash, or at least its first 16 digits",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="run all checks without changes; recorded in the audit log",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="STEP",
        help="apply this step and no other (its ID in the plan); may be repeated",
    )
    parser.add_argument(
        "--max-seconds",
        type=seconds,
        metavar="N",
        help="stop after N seconds (default 300, and as long as the plan gives a drain)",
    )
    add_kubeconfig(parser)
    add_json(parser)
    add_protected(parser)
    add_state(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.cure.apply import FixContext, Refused, apply, default_seconds
    from sexton.cure.writer import DryWriter, LiveWriter
    from sexton.host.host import open_host
    from sexton.reports.text.fix import applied_json, applied_text, refused_json, refused_text

    need_root("apply")
    plan = read_plan(args.plan)
    _confirmed(plan, args.confirm)
    host = open_host()
    fix = FixContext(
        host,
        DryWriter() if args.dry_run else LiveWriter(host),
        state_of(args),
        rules_of(args),
        print_progress,
        dry=args.dry_run,
        cluster=cluster_of(args, args.dry_run),
    )
    width, colour = terminal()
    try:
        applied = apply(plan, fix, args.max_seconds or default_seconds(plan), args.only)
    except Refused as refused:
        reasons = refused.reasons
        print_result(args, refused_json(plan, reasons), refused_text(plan, reasons, width, colour))
        return refused.exit_code
    print_result(args, applied_json(plan, applied), applied_text(plan, applied, width, colour))
    return applied.exit


def read_plan(path: str) -> Plan:
    """Read a plan file; one that was modified is rejected."""
    import json

    from sexton.host.reader import LiveFiles, read_regular
    from sexton.model.plan import PlanError, from_json

    try:
        return from_json(json.loads(read_regular(LiveFiles(), path, _MOST_BYTES)))
    except SourceError as error:
        raise CommandError(f"{path}: {error.detail}") from None
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, PlanError) else "not JSON"
        raise CommandError(f"{path}: not a valid plan: {what}") from None


def _confirmed(plan: Plan, given: str) -> None:
    wanted = given.strip().lower()
    if len(wanted) < _SHORTEST_HASH or not plan.hash.startswith(wanted):
        raise CommandError(
            "--confirm does not match this plan: read the plan and use the hash printed at its end"
        )
