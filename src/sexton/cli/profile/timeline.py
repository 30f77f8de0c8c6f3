"""Show when a function, task or cgroup ran.

  sexton profile timeline perf.data --grep rstat_flush
  sexton profile timeline perf.data --task kubelet --by-core

Each column is the share of the samples taken then that match the filters.
"""

from __future__ import annotations

import argparse

from sexton.cli.options import add_json, seconds
from sexton.cli.output import print_json
from sexton.cli.profile.capture import (
    add_files,
    add_filters,
    capture_of,
    no_samples,
    open_capture,
    selection_of,
    terminal,
)
from sexton.errors import CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_filters(parser)
    parser.add_argument(
        "--column",
        type=seconds,
        metavar="SECONDS",
        help="length of a column (default: fit the screen)",
    )
    parser.add_argument("--by-core", action="store_true", help="one row per core")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.cli.profile.flame import report_text
    from sexton.profile.timeline import timeline
    from sexton.reports.json.profile import timeline_json
    from sexton.reports.text.heat import grid_of_timeline
    from sexton.reports.text.profile import timeline_lines

    found = open_capture(args)
    span = found.span_ns
    if span is None:
        raise CommandError("this capture has no timestamps: cannot draw a timeline")
    selection = selection_of(args, found)
    first = span[0] if selection.start_ns is None else selection.start_ns
    last = span[1] if selection.end_ns is None else selection.end_ns
    screen = terminal()
    column_ns = _column(args.column, last - first, max(screen.width - 12, 20))
    counted = timeline(found, selection, column_ns, args.by_core)
    if not counted.sampled.any():
        raise no_samples(found)
    capture = capture_of(found)
    if args.json:
        print_json(timeline_json(capture, counted), indent=None)
        return 0
    lines = timeline_lines(grid_of_timeline(counted), counted, capture.times, screen)
    sys.stdout.write(report_text(args, capture, lines, screen.width))
    return 0


def _column(given_s: float | None, span_ns: int, columns: int) -> int:
    """A round number of milliseconds or seconds so that the columns fit the screen."""
    if given_s is not None:
        return max(round(given_s * 1e9), 1_000_000)
    least = max(span_ns / columns, 20_000_000)
    steps = (step * int(10**scale) for scale in range(7, 16) for step in (1, 2, 5))
    return next((step for step in steps if step >= least), 10**16)
