"""Check whether the last apply helped: watch ten minutes against pass criteria.

  sudo sexton fix verify                    ten minutes
  sudo sexton fix verify --seconds 60       faster, but less reliable
  sudo sexton fix verify ID                 an apply by its ID (sexton fix status)

Passes if there are fewer dying memory cgroups than before (where the plan was to free
them) and they no longer grow, the empty cgroups of the plan are gone, no stopped unit
restarts, saturated cores spend at most half as much time in the kernel and are not held
again, CPU throttling and direct reclaim did not rise, and no NIC was reset. Shows how many
zombies were freed and how many remain.
Exit: 0 all criteria met, 1 at least one not met, 2 failed, 3 at least one unknown.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.configuration import add_config
from sexton.cli.fix import add_id, add_state, need_root, state_of, terminal
from sexton.cli.options import add_json, seconds
from sexton.cli.output import print_result
from sexton.errors import CommandError, SourceError

if TYPE_CHECKING:
    from sexton.cure.journal import Run
    from sexton.model.window import Window

#: Sources of the criteria, with their periods in seconds.
_SOURCES = {
    "cgroupfs.census": 5.0,
    "cgroupfs.cpu_stat": 10.0,
    "kmsg.journal": 60.0,
    "kmsg.log": 2.0,
    "nic.devices": 0.0,
    "nic.ethtool": 5.0,
    "procfs.node": 0.0,
    "procfs.stat": 5.0,
    "procfs.vmstat": 5.0,
    "systemd.units": 5.0,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_id(parser)
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=600.0,
        metavar="N",
        help="how long to watch (default 600)",
    )
    add_json(parser)
    add_state(parser)
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.cure.journal import ROLLED_BACK, RUNNING, latest_run, log_event, read_run
    from sexton.cure.verify import heading, verify
    from sexton.reports.text.fix import verified_json, verify_text

    need_root("verify")
    state = state_of(args)
    applied = read_run(state, args.id) if args.id else latest_run(state)
    if applied is None:
        raise CommandError("nothing to verify: nothing has been applied on this node")
    if applied.state == ROLLED_BACK:
        raise CommandError(f"nothing to verify: apply {applied.id} was rolled back")
    if applied.state == RUNNING:
        raise CommandError(
            f"apply {applied.id} was interrupted: undo it first (sexton fix rollback {applied.id})"
        )
    found = verify(applied, _watch(args.seconds), _empty_left(applied))
    log_event(state, "verified", run=applied.id, exit=found.exit, verdict=heading(found))
    width, colour = terminal()
    print_result(args, verified_json(found), verify_text(found, width, colour))
    return found.exit


def _empty_left(applied: Run) -> int | None:
    """How many of the cgroups that it was to remove are still there; `None` if it had no such step,
    or they cannot be read."""
    from sexton.cure.remedies import remove_empty_cgroups
    from sexton.host.host import open_host

    steps = [step for step in applied.steps if step.remedy == remove_empty_cgroups.NAME]
    try:
        host = open_host()
        return sum(remove_empty_cgroups.left_of(host, step) for step in steps) if steps else None
    except SourceError:
        return None


def _watch(span_s: float) -> Window:
    from dataclasses import replace

    from sexton.cli.progress import countdown
    from sexton.host.host import open_host
    from sexton.model.rows.cgroup import CgroupDir
    from sexton.record.sampler import Sampler
    from sexton.sources.registry import all_sources

    chosen = [
        replace(source, period_s=min(_SOURCES[source.id], span_s / 4))
        for source in all_sources()
        if source.id in _SOURCES
    ]
    with Sampler(open_host(), chosen) as sampler, countdown(span_s, "verifying") as shown:

        def tick(gone_s: float) -> None:
            # Not needed, and ten thousand rows per reading on a large node.
            sampler.drop((CgroupDir,))
            if shown is not None:
                shown(gone_s)

        return sampler.run(span_s, tick)
