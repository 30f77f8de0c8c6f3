"""The seconds that stand out, per core, and what grew in them.

Every core and second is compared with what that core usually does; what stands out is
compared with calm windows of the same cores, function by function. `q` is the chance
that this is noise, held over everything that was looked at.

  sexton profile spikes perf.data                   same as: sexton profile perf.data
  sexton profile spikes perf.data --at 02:14:07     what was different then?
  sexton profile spikes rec/ --events resets.txt    one time per line: what do they share?

Exit: 0 nothing stood out, 1 something did, 2 failed, 3 could not tell (too short, no times).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.options import add_json
from sexton.cli.profile.choice import add_files, add_range
from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.model.spike import Spikes
    from sexton.profile.opened import Opened
    from sexton.reports.text.heat import Grid, Look

_MOST_EVENTS = 10_000
_MOST_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_search(parser)
    add_json(parser)


def add_search(parser: argparse.ArgumentParser) -> None:
    """Where and what to look for."""
    add_range(parser)
    parser.add_argument("--cpu", metavar="LIST", help="only these cores, like 0,3-5")
    parser.add_argument("--event", metavar="NAME", help="one event of several")
    parser.add_argument(
        "--at",
        metavar="TIME",
        action="append",
        default=[],
        help="look at this moment instead of searching; may be given again",
    )
    parser.add_argument(
        "--events", metavar="FILE", help="moments to look at, one per line; # begins a remark"
    )
    parser.add_argument(
        "--most", type=_few, default=10, metavar="N", help="look into so many (default 10)"
    )


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.cli.profile.choice import opened, same
    from sexton.cli.profile.output import capture_of, look, print_json
    from sexton.reports.json.profile import spikes_json
    from sexton.reports.text.spikes import Asked, spikes_text

    found = opened(args)
    spikes = look_for(args, found)
    status = exit_of(spikes)
    capture = capture_of(found)
    if args.json:
        print_json(spikes_json(capture, spikes, status))
        return status
    screen = look()
    asked = Asked(same(args), status)
    sys.stdout.write(spikes_text(capture, spikes, strip(found, screen, args), asked, screen))
    return status


def exit_of(found: Spikes) -> int:
    """Nothing, something, or "could not tell", which is never "nothing"."""
    if found.spikes:
        return 1
    return 3 if not found.cells or found.blind >= found.cores else 0


def look_for(args: argparse.Namespace, found: Opened) -> Spikes:
    """The spikes, or what was different at the moments that were given."""
    from sexton.cli.profile.choice import event_of, moment_ns, numbers, range_of
    from sexton.cli.progress import working
    from sexton.profile.spikes import SpikeOptions, find

    asked = [*args.at, *([] if args.events is None else _listed(args.events))]
    start_ns, end_ns = range_of(args, found)
    options = SpikeOptions(
        at=tuple(moment_ns(each, found) for each in asked) or None,
        cpus=None if args.cpu is None else numbers(args.cpu, "--cpu"),
        event=event_of(args, found),
        most=args.most,
        start_ns=start_ns,
        end_ns=end_ns,
    )
    with working("looking for what stands out"):
        return find(found, options)


def strip(found: Opened, screen: Look, args: argparse.Namespace) -> Grid | None:
    """The cores over time, for a few lines."""
    from sexton.cli.profile.heatmap import drawn
    from sexton.reports.text.heat import grid_of

    if found.span_ns is None:
        return None
    picture = drawn(found, args, "peaks", max(screen.width - 12, 20))
    return grid_of(picture, found.hertz) if picture.rows else None


def _listed(path: str) -> list[str]:
    """Times in a file, one per line."""
    import sys

    try:
        if path == "-":
            text = sys.stdin.read(_MOST_BYTES + 1)
        else:
            with open(path, encoding="utf-8", errors="surrogateescape") as stream:
                text = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no path"
        raise CommandError(f"{path}: {reason}") from None
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    times = [line for line in lines if line]
    if not times:
        raise CommandError(f"{path}: no times in it")
    if len(text) > _MOST_BYTES or len(times) > _MOST_EVENTS:
        raise CommandError(f"{path}: more than {_MOST_EVENTS:,} times")
    return times


def _few(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= 1000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000")
    return int(text)
