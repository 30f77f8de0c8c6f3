"""Watch whether the last apply helped: ten minutes against pass criteria.

  sudo sexton fix verify                    ten minutes, with a line that moves
  sudo sexton fix verify --seconds 60       sooner, and less sure
  sudo sexton fix verify ID                 an apply by its id (sexton fix status)

Passed when the number of dead memory cgroups no longer grows, no stopped unit restarts,
a core that was held has less system time, throttling and reclaim are not up, and no
interface was reset. It says what was freed and what was not.
Exit: 0 every criterion met, 1 one is not, 2 failed, 3 one could not be read.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.fix.options import add_state
from sexton.cli.options import add_json, seconds

if TYPE_CHECKING:
    from sexton.model.window import Window

#: What the criteria are read from, and how often: hours of threads are not wanted here.
_SOURCES = {
    "cgroupfs.census": 5.0,
    "cgroupfs.cpu_stat": 10.0,
    "kmsg.log": 2.0,
    "nic.devices": 0.0,
    "nic.ethtool": 5.0,
    "procfs.node": 0.0,
    "procfs.stat": 5.0,
    "procfs.vmstat": 5.0,
    "systemd.units": 5.0,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="an apply (default: the last one)")
    parser.add_argument(
        "--seconds", type=seconds, default=600.0, metavar="N", help="how long (default 600)"
    )
    add_json(parser)
    add_state(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.cli.fix.options import need_root, page, show, state_of
    from sexton.cure.journal import ROLLED_BACK, RUNNING, latest, read_run
    from sexton.cure.log import note
    from sexton.cure.verify import heading, verify
    from sexton.errors import CommandError
    from sexton.reports.json.plan import verified_json
    from sexton.reports.text.verify import verify_text

    need_root("verify")
    state = state_of(args)
    told = read_run(state, args.id) if args.id else latest(state)
    if told is None:
        raise CommandError("nothing was applied on this node yet: there is nothing to verify")
    if told.state == ROLLED_BACK:
        raise CommandError(f"apply {told.id} was undone: there is nothing to verify")
    if told.state == RUNNING:
        raise CommandError(
            f"apply {told.id} was cut off half-way: first undo it (sexton fix rollback {told.id})"
        )
    found = verify(told, _watch(args.seconds))
    note(state, "verified", run=told.id, exit=found.exit, verdict=heading(found))
    width, colour = page()
    show(args, verified_json(found), verify_text(found, width, colour))
    return found.exit


def _watch(span_s: float) -> Window:
    from dataclasses import replace

    from sexton.cli.progress import countdown
    from sexton.host.host import open_host
    from sexton.model.cgroup import CgroupDir
    from sexton.record.sampler import Sampler
    from sexton.sources.registry import all_sources

    chosen = [
        replace(each, period_s=min(_SOURCES[each.id], span_s / 4))
        for each in all_sources()
        if each.id in _SOURCES
    ]
    with Sampler(open_host(), chosen) as sampler, countdown(span_s, "verifying") as shown:

        def tick(gone_s: float) -> None:
            sampler.drop((CgroupDir,))  # ten thousand a reading on a large node, and not asked for
            if shown is not None:
                shown(gone_s)

        return sampler.run(span_s, tick)
