"""Draw a heatmap of the cores, or of the parts of each second.

  sexton profile heatmap perf.data                  one row per core
  sexton profile heatmap perf.data --kind subsecond FlameScope's: 50 rows of 20 ms
  sexton profile heatmap rec/ --kind peaks          the busiest second of each column
  sexton profile heatmap perf.data --out heat.svg   or .html, interactive

With --task, --cgroup, --grep or --pid: how often that was running. Output to a pipe uses
letters. Blank means not sampled, which is not the same as idle.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.options import add_json
from sexton.cli.output import print_json
from sexton.cli.profile.capture import (
    add_files,
    add_filters,
    add_out,
    capture_of,
    data_of,
    deliver_text,
    emit,
    event_of,
    no_samples,
    open_capture,
    parse_numbers,
    range_of,
    selection_of,
    terminal,
)
from sexton.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sexton.model.profile import Heat
    from sexton.profile.captures import Opened
    from sexton.profile.heatmap import Heatmap, HeatmapKind

_FILE_COLUMNS = 1200
_ROWS = {
    "cores": "samples per core",
    "peaks": "samples per core, busiest second of each column",
    "subsecond": "busy samples per 20 ms of each second",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_filters(parser)
    parser.add_argument(
        "--kind",
        choices=("cores", "subsecond", "peaks"),
        default="cores",
        help="what a row is (default cores)",
    )
    add_json(parser)
    add_out(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.reports.text.heat import grid_of, heatmap_text

    if args.out and not args.out.endswith((".svg", ".html", ".json")) and args.out != "-":
        raise CommandError(f"--out {args.out}: must end in .svg, .html or .json")
    if args.json and args.out and not args.out.endswith(".json") and args.out != "-":
        raise CommandError(f"--json conflicts with --out {args.out}")
    found = open_capture(args)
    event_of(args, found)
    if found.span_ns is None:
        raise CommandError("this capture has no timestamps: cannot draw a heatmap")
    capture = capture_of(found)
    if args.json or (args.out and args.out.endswith(".json")):
        from sexton.profile.heatmap import heatmap_json

        document = heatmap_json(_picture(found, args, _FILE_COLUMNS), found.clock)
        if args.out:
            import json

            emit((f"{json.dumps(document)}\n".encode("ascii"),), args.out)
        else:
            print_json(document, indent=None)
        return 0
    if args.out:
        picture = _picture(found, args, _FILE_COLUMNS)
        if args.out.endswith(".html"):
            text = _page(args, found, picture.kind)
        else:
            from sexton.reports.svg.heat_svg import heat_svg

            text = heat_svg(picture, capture)
        deliver_text(text, args.out)
        return 0
    screen = terminal()
    picture = _picture(found, args, max(screen.width - 10, 20))
    hertz = None if args.kind == "subsecond" else found.hertz
    sys.stdout.write(heatmap_text(capture, grid_of(picture, hertz), picture.kind, screen))
    return 0


def _page(args: argparse.Namespace, found: Opened, kind: str) -> str:
    """The page with the lane that `--kind` names first and no flame graph open."""
    from sexton.explorer.files.profile import flame_html
    from sexton.reports.text.profile_head import identity

    selection = selection_of(args, found)
    data = data_of(args, found, selection, found.flame(selection))
    data["open"] = {"select": None, "core": None, "baseline": None, "kind": kind}
    capture = capture_of(found)
    return flame_html(f"{capture.name}: {_ROWS[kind]}", identity(capture), data)


def _picture(found: Opened, args: argparse.Namespace, columns: int) -> Heatmap:
    picture = heatmap_of(found, args, args.kind, columns)
    if not (picture.values >= 0).any():
        raise no_samples(found)
    return picture


def heatmap_of(found: Opened, args: argparse.Namespace, kind: HeatmapKind, columns: int) -> Heatmap:
    """The heatmap of the range and filters on the command line."""
    from sexton.profile.heatmap import heatmap

    span = found.span_ns
    assert span is not None
    start, end = range_of(args, found)
    first = span[0] if start is None else max(start, span[0])
    last = span[1] + 1 if end is None else min(end, span[1] + 1)
    if last <= first:
        raise no_samples(found)
    return heatmap(heats_of(found, args, first, last), first, last, kind, columns)


def heats_of(found: Opened, args: argparse.Namespace, start_ns: int, end_ns: int) -> Iterable[Heat]:
    """Stored heat; with filters on samples, heat counted from the samples."""
    from sexton.profile.heat import heat_of_choice, of_cores

    on_samples = ("pid", "task", "cgroup", "grep", "event")
    if any(getattr(args, name, None) is not None for name in on_samples):
        selection = selection_of(args, found)._replace(start_ns=start_ns, end_ns=end_ns)
        profiles = found.profiles(start_ns, end_ns)
        return (heat_of_choice(profile, selection) for profile in profiles)
    heats = found.heats(start_ns, end_ns)
    if args.cpu is None:
        return heats
    cpus = parse_numbers(args.cpu, "--cpu")
    return (of_cores(heat, cpus) for heat in heats)
