"""A heatmap of the cores, or of the parts of each second, on the terminal or as a file.

  sexton profile heatmap perf.data                  a row per core
  sexton profile heatmap perf.data --kind subsecond FlameScope's: 50 rows of 20 ms a second
  sexton profile heatmap rec/ --kind peaks          each core's busiest second of a column
  sexton profile heatmap perf.data --out heat.svg   or .html

With --task, --cgroup, --grep, --pid: how often that was what ran. Piped it is drawn in
letters. Blank is where nothing was sampled, which is not the same as idle.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.options import add_json
from sexton.cli.profile.choice import add_choice, add_files
from sexton.cli.profile.output import add_out
from sexton.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sexton.model.heat import Heat
    from sexton.profile.heatmap import Heatmap, HeatmapKind
    from sexton.profile.opened import Opened

_FILE_COLUMNS = 1200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_choice(parser)
    parser.add_argument(
        "--kind",
        choices=("cores", "subsecond", "peaks"),
        default="cores",
        help="what the rows are (default cores)",
    )
    add_json(parser)
    add_out(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.cli.profile.choice import event_of, opened
    from sexton.cli.profile.output import capture_of, give_text, look, print_json, written
    from sexton.reports.text.heat import grid_of, heatmap_text

    if args.out and not args.out.endswith((".svg", ".html", ".json")) and args.out != "-":
        raise CommandError(f"--out {args.out}: a name that ends in .svg, .html or .json")
    if args.json and args.out and not args.out.endswith(".json") and args.out != "-":
        raise CommandError(f"--json, but --out {args.out}: which of both?")
    found = opened(args)
    event_of(args, found)
    if found.span_ns is None:
        raise CommandError("this capture has no times: nothing to draw over time")
    capture = capture_of(found)
    if args.json or (args.out and args.out.endswith(".json")):
        from sexton.profile.heatmap import heatmap_json

        told = heatmap_json(_asked(found, args, _FILE_COLUMNS), found.clock)
        if args.out:
            import json

            give_text(json.dumps(told) + "\n", args.out)
        else:
            print_json(told, indent=None)
        return 0
    if args.out:
        picture = _asked(found, args, _FILE_COLUMNS)
        if args.out.endswith(".html"):
            from sexton.cli.profile.page import heatmap_page

            text = heatmap_page(args, found, picture.kind)
        else:
            from sexton.reports.svg.heat_svg import heat_svg

            text = heat_svg(picture, capture)
        give_text(text, args.out)
        if args.out != "-":
            written(args.out)
        return 0
    screen = look()
    picture = _asked(found, args, max(screen.width - 10, 20))
    hertz = None if args.kind == "subsecond" else found.hertz
    sys.stdout.write(heatmap_text(capture, grid_of(picture, hertz), picture.kind, screen))
    return 0


def _asked(found: Opened, args: argparse.Namespace, columns: int) -> Heatmap:
    picture = drawn(found, args, args.kind, columns)
    if not (picture.values >= 0).any():
        raise CommandError("nothing was sampled in that time, or on those cores")
    return picture


def drawn(found: Opened, args: argparse.Namespace, kind: HeatmapKind, columns: int) -> Heatmap:
    """The matrix of what was asked for."""
    from sexton.cli.profile.choice import range_of
    from sexton.profile.heatmap import heatmap

    span = found.span_ns
    assert span is not None
    start, end = range_of(args, found)
    first = span[0] if start is None else max(start, span[0])
    last = span[1] + 1 if end is None else min(end, span[1] + 1)
    if last <= first:
        raise CommandError("nothing was sampled in that time")
    return heatmap(heats_of(found, args, first, last), first, last, kind, columns)


def heats_of(found: Opened, args: argparse.Namespace, start_ns: int, end_ns: int) -> Iterable[Heat]:
    """The stored heat, or where the options select samples, heat counted from those."""
    from sexton.cli.profile.choice import numbers, selection_of
    from sexton.profile.heat import heat_of_choice, of_cores

    special = ("pid", "task", "cgroup", "grep", "event")
    if any(getattr(args, name, None) is not None for name in special):
        selection = selection_of(args, found)._replace(start_ns=start_ns, end_ns=end_ns)
        profiles = found.profiles(start_ns, end_ns)
        return (heat_of_choice(each, selection) for each in profiles)
    heats = found.heats(start_ns, end_ns)
    if args.cpu is None:
        return heats
    cpus = numbers(args.cpu, "--cpu")
    return (of_cores(each, cpus) for each in heats)
