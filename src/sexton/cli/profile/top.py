"""Functions by the time they took: themselves, and with what they called.

A function that calls itself counts once. --by total sorts by the second.
"""

from __future__ import annotations

import argparse

from sexton.cli.options import add_json
from sexton.cli.profile.choice import add_choice, add_files
from sexton.errors import CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_choice(parser)
    parser.add_argument(
        "--by", choices=("self", "total"), default="self", help="the order (default self)"
    )
    parser.add_argument(
        "--number", type=_number, default=25, metavar="N", help="so many (default 25)"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.cli.profile.choice import opened, selection_of
    from sexton.cli.profile.flame import about
    from sexton.cli.profile.output import capture_of, look, print_json
    from sexton.profile.functions import functions
    from sexton.reports.json.profile import top_json
    from sexton.reports.text.profile import top_lines
    from sexton.reports.text.profile_head import shortfalls

    found = opened(args)
    flame = found.flame(selection_of(args, found))
    if not flame.samples:
        raise CommandError("no sample is in this choice")
    counted = functions(flame)
    if args.by == "total":
        counted.sort(key=lambda each: (-each.total, -each.own, each.name, each.module))
    capture = capture_of(found)
    if args.json:
        print_json(top_json(capture, flame, counted))
        return 0
    width = look().width
    lines = [*top_lines(counted, flame.samples, args.number, width), *shortfalls(capture, width)]
    sys.stdout.write("\n".join([f" {about(args, capture)}", "", *lines, ""]))
    return 0


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1,000,000")
    return int(text)
