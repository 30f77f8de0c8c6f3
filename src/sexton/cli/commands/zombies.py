"""Zombie memory cgroups: how many, which units left them, their memory and growth.

Counts memory cgroups that were removed but not freed ("dying" in the kernel's terms;
not zombie processes), twice, and finds their owners by every method available.

  sexton zombies                  samples for five seconds
  sudo sexton zombies --watch     one line per removed cgroup, live, until Ctrl-C
  sexton zombies --root /host     the host's tree, from inside a container
  sexton zombies node.tar         an archive of `sexton collect`; - reads it from stdin

Exit: 0 counted, 2 failed, 3 cannot count from here.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli import output
from sexton.cli.configuration import add_config
from sexton.cli.options import add_json, add_root, seconds
from sexton.cli.window import add_archive, check_archive, read_archived
from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.model.window import Window


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_archive(parser)
    parser.add_argument(
        "--from", dest="archive_from", metavar="ARCHIVE", help="the same as ARCHIVE, as for `why`"
    )
    parser.add_argument(
        "--seconds",
        type=seconds,
        metavar="N",
        help="how long to watch (default 5; with --watch, until Ctrl-C)",
    )
    parser.add_argument(
        "--watch", action="store_true", help="follow removals live through tracefs (needs root)"
    )
    add_json(parser)
    add_root(parser)
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    if args.archive_from is not None:
        if args.archive is not None:
            raise CommandError("ARCHIVE and --from ARCHIVE cannot be combined")
        args.archive = args.archive_from
    if args.archive is not None:
        if args.watch:
            raise CommandError("--watch follows a live node, not an archive")
        check_archive(args)
    if args.watch:
        from sexton.cli.deaths import watch

        return watch(args.root, args.seconds, as_json=args.json)

    from sexton.reports.text.zombies import tally, zombies_json, zombies_text

    window = _sampled(args) if args.archive is None else read_archived(args.archive)[0]
    found = tally(window)
    text = zombies_text(found, window, output.width(), colour=output.colour())
    output.print_result(args, zombies_json(found), text)
    return 0 if found.counted else 3


def _sampled(args: argparse.Namespace) -> Window:
    from sexton.cli.image import open_tree
    from sexton.cli.progress import countdown
    from sexton.model.rows import cgroup, kubernetes, node, unit
    from sexton.record.sampler import Sampler
    from sexton.sources.registry import sources_of

    wanted = sources_of(
        cgroup.CgroupCensus,
        cgroup.CgroupStat,
        cgroup.CgroupResidual,
        cgroup.CgroupEvent,
        cgroup.OfflineMemcg,
        unit.Unit,
        unit.RestartMark,
        node.Node,
        kubernetes.Container,
        kubernetes.Pod,
    )
    span = args.seconds or 5.0
    host = open_tree(args.root, span, thorough=True)
    with Sampler(host, wanted) as sampler, countdown(span, "counting") as tick:
        return sampler.run(span, tick)
