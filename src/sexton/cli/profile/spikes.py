"""Find the seconds that stand out, per core, and what grew in them.

Every core and second is compared with that core's baseline; what stands out is compared
with calm windows of the same cores, function by function. `q` is the false discovery rate
over everything that was tested: the smaller, the less likely it is noise.

  sexton profile spikes perf.data                   same as: sexton profile perf.data
  sexton profile spikes perf.data --at 02:14:07     what was different then?
  sexton profile spikes rec/ --events resets.txt    one time per line: what do they have in common?

Exit: 0 no spikes, 1 spikes found, 2 failed, 3 inconclusive (too short,
no timestamps, or a core could not be tested).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.options import add_json, whole_up_to
from sexton.cli.output import print_json
from sexton.cli.profile.capture import (
    add_files,
    add_range,
    arguments_of,
    capture_of,
    event_of,
    moment_ns,
    open_capture,
    parse_numbers,
    range_of,
    terminal,
)
from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.profile.captures import Opened
    from sexton.profile.spikes.spike import Spikes
    from sexton.reports.text.heat import Grid, Terminal

_MOST_EVENTS = 10_000
_MOST_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_search(parser)
    add_json(parser)


def add_search(parser: argparse.ArgumentParser) -> None:
    """Where to search, and for what."""
    add_range(parser)
    parser.add_argument("--cpu", metavar="LIST", help="only these cores, e.g. 0,3-5")
    parser.add_argument("--event", metavar="NAME", help="one of several events")
    parser.add_argument(
        "--at",
        metavar="TIME",
        action="append",
        default=[],
        help="analyse this moment instead of searching; repeatable",
    )
    parser.add_argument(
        "--events",
        metavar="FILE",
        help="file of moments to analyse, one per line; # starts a comment",
    )
    parser.add_argument(
        "--most",
        type=whole_up_to(1000),
        default=10,
        metavar="N",
        help="analyse the N strongest spikes (default 10)",
    )


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.reports.json.profile import spikes_json
    from sexton.reports.text.spikes import Invocation, spikes_text

    found = open_capture(args)
    spikes = find_spikes(args, found)
    status = exit_of(spikes)
    capture = capture_of(found)
    if args.json:
        print_json(spikes_json(capture, spikes, status))
        return status
    screen = terminal()
    invocation = Invocation(arguments_of(args), status, bool(args.at or args.events))
    sys.stdout.write(
        spikes_text(capture, spikes, core_strip(found, screen, args), invocation, screen)
    )
    return status


def exit_of(found: Spikes) -> int:
    """0 no spikes, 1 spikes, 3 inconclusive: a core that could not be tested may have had one."""
    if found.spikes:
        return 1
    return 3 if found.blind or not found.cells else 0


def find_spikes(args: argparse.Namespace, found: Opened) -> Spikes:
    """The spikes, or what was different at the moments of `--at` and `--events`."""
    from sexton.cli.progress import working
    from sexton.profile.spikes import SpikeOptions, find

    moments = [*args.at, *([] if args.events is None else _read_times(args.events))]
    start_ns, end_ns = range_of(args, found)
    options = SpikeOptions(
        at=tuple(moment_ns(moment, found) for moment in moments) or None,
        cpus=None if args.cpu is None else parse_numbers(args.cpu, "--cpu"),
        event=event_of(args, found),
        most=args.most,
        start_ns=start_ns,
        end_ns=end_ns,
    )
    with working("searching for spikes"):
        return find(found, options)


def core_strip(found: Opened, screen: Terminal, args: argparse.Namespace) -> Grid | None:
    """A small heatmap of the cores."""
    from sexton.cli.profile.heatmap import heatmap_of
    from sexton.reports.text.heat import grid_of

    if found.span_ns is None:
        return None
    picture = heatmap_of(found, args, "peaks", max(screen.width - 12, 20))
    return grid_of(picture, found.hertz) if picture.rows else None


def _read_times(path: str) -> list[str]:
    """Times in a file, one per line."""
    import sys

    try:
        if path == "-":
            text = sys.stdin.read(_MOST_BYTES + 1)
        else:
            with open(path, encoding="utf-8", errors="surrogateescape") as stream:
                text = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "invalid path"
        raise CommandError(f"{path}: {reason}") from None
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    times = [line for line in lines if line]
    if not times:
        raise CommandError(f"{path}: no times found")
    if len(text) > _MOST_BYTES or len(times) > _MOST_EVENTS:
        raise CommandError(f"{path}: more than {_MOST_EVENTS:,} times")
    return times
