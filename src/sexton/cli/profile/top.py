"""List functions by samples: self, and total with everything they called.

A recursive function counts once per stack. --by total sorts by total.
"""

from __future__ import annotations

import argparse

from sexton.cli.options import add_json, whole_up_to
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_filters(parser)
    parser.add_argument(
        "--by", choices=("self", "total"), default="self", help="sort order (default self)"
    )
    parser.add_argument(
        "--number",
        type=whole_up_to(1_000_000, "1,000,000"),
        default=25,
        metavar="N",
        help="number of functions (default 25)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.cli.profile.flame import report_text
    from sexton.profile.flame import functions
    from sexton.reports.json.profile import top_json
    from sexton.reports.text.profile import top_lines

    found = open_capture(args)
    flame = found.flame(selection_of(args, found))
    if not flame.samples:
        raise no_samples(found)
    counted = functions(flame)
    if args.by == "total":
        counted.sort(
            key=lambda function: (-function.total, -function.own, function.name, function.module)
        )
    capture = capture_of(found)
    if args.json:
        print_json(top_json(capture, flame, counted))
        return 0
    width = terminal().width
    lines = top_lines(counted, flame.samples, args.number, width)
    sys.stdout.write(report_text(args, capture, lines, width))
    return 0
