"""List functions by samples: self, and total with everything they called.

A recursive function counts once per stack. --by total sorts by total.
"""

from __future__ import annotations

import argparse

from sexton.cli.options import add_json
from sexton.cli.profile.capture import add_files, add_filters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_filters(parser)
    parser.add_argument(
        "--by", choices=("self", "total"), default="self", help="sort order (default self)"
    )
    parser.add_argument(
        "--number", type=_number, default=25, metavar="N", help="number of functions (default 25)"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.cli.profile.capture import (
        capture_of,
        no_samples,
        open_capture,
        print_json,
        selection_of,
        terminal,
    )
    from sexton.cli.profile.flame import about
    from sexton.profile.flame import functions
    from sexton.reports.json.profile import top_json
    from sexton.reports.text.profile import top_lines
    from sexton.reports.text.profile_head import shortfalls

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
    lines = [*top_lines(counted, flame.samples, args.number, width), *shortfalls(capture, width)]
    sys.stdout.write("\n".join([f" {about(args, capture)}", "", *lines, ""]))
    return 0


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from 1 to 1,000,000")
    return int(text)
