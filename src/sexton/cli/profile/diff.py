"""What changed between two flame graphs, and which of it is more than chance.

  sexton profile diff perf.data --before 0..120 --after 127..132
  sexton profile diff perf.data --before ..02:14 --after 02:14.. --cpu 5 --out diff.svg
  sexton profile diff monday.data tuesday.data

Shares are compared, so the two may differ in length. Red grew, blue shrank; grey may be
chance: changes are tested over blocks of time, and q is controlled for all that were.
Exit: 0 nothing changed, 1 something did, 2 failed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.profile.choice import add_choice, add_files
from sexton.cli.profile.output import add_out
from sexton.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sexton.model.flame import FlameDifference
    from sexton.profile.differ import Side
    from sexton.reports.text.profile_head import Capture

FORMATS = ("text", "json", "svg", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    parser.add_argument("--before", metavar="FROM..TO", help="a span of the capture")
    parser.add_argument("--after", metavar="FROM..TO", help="the span it is compared with")
    add_choice(parser)
    parser.add_argument("--format", choices=FORMATS, help="default: what --out ends in, else text")
    parser.add_argument("--icicle", action="store_true", help="SVG: root at the top")
    add_out(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.cli.profile.flame import format_of
    from sexton.cli.profile.output import give, written
    from sexton.cli.progress import working
    from sexton.profile.differ import difference
    from sexton.reports.svg.flame_picture import SIGNIFICANT

    chosen = format_of(args, FORMATS)
    sides, captures, names = _sides(args)
    with working("comparing"):
        found = difference(*sides)
    for name, counts in zip(names, (found.before, found.after), strict=True):
        if not counts.sum():
            raise CommandError(f"{name}: no sample is in this choice")
    give(_made(chosen, args, captures, (found, names)), args.out)
    if args.out not in (None, "-"):
        written(args.out)
    return 1 if bool((found.q <= SIGNIFICANT).any()) else 0


def _sides(
    args: argparse.Namespace,
) -> tuple[tuple[Side, Side], list[Capture], tuple[str, str]]:
    from sexton.cli.profile.choice import open_files, selection_of, span_named
    from sexton.cli.profile.output import capture_of
    from sexton.profile.differ import Side

    spans = args.before is not None, args.after is not None
    if all(spans):
        if args.start is not None or args.end is not None:
            raise CommandError("--before and --after say which time: leave --from and --to out")
        found = open_files(args, args.files)
        whole = selection_of(args, found)
        both = []
        for text in (args.before, args.after):
            start, end = span_named(text, found)
            both.append(Side(found, whole._replace(start_ns=start, end_ns=end)))
        return (both[0], both[1]), [capture_of(found)], (args.before, args.after)
    if any(spans) or len(args.files) != 2:
        raise CommandError("give two files, or one capture with --before FROM..TO --after FROM..TO")
    opened = [open_files(args, [each]) for each in args.files]
    first, second = (Side(each, selection_of(args, each)) for each in opened)
    return (first, second), [capture_of(each) for each in opened], (args.files[0], args.files[1])


def _made(
    chosen: str,
    args: argparse.Namespace,
    captures: Sequence[Capture],
    told: tuple[FlameDifference, tuple[str, str]],
) -> list[bytes]:
    import json

    from sexton.cli.profile.flame import about
    from sexton.cli.profile.output import look
    from sexton.model.text import printable

    found, names = told
    if chosen == "json":
        from sexton.reports.json.profile import difference_json

        text = json.dumps(difference_json(captures, found, names)) + "\n"
    elif chosen == "text":
        from sexton.reports.text.flame import difference_lines
        from sexton.reports.text.profile_head import shortfalls

        width = min(max(look().width, 60), 160) if args.out is None else 100
        title = f" {about(args, captures[0])}: {printable(names[0])} → {printable(names[1])}"
        missing = [line for each in captures for line in shortfalls(each, width)]
        text = "\n".join([title, "", *difference_lines(found, width), *missing, ""])
    else:
        note = f"{int(found.before.sum()):,} → {int(found.after.sum()):,} samples"
        title = f"{about(args, captures[0])}: {names[0]} → {names[1]}"
        if chosen == "html":
            from sexton.explorer.files.profile import difference_data, flame_html

            text = flame_html(title, note, difference_data(found, names))
        else:
            from sexton.reports.svg.flame_picture import difference_boxes
            from sexton.reports.svg.flame_svg import Words, flame_svg

            text = flame_svg(difference_boxes(found), Words(title, note), args.icicle)
    return [text.encode("utf-8", "backslashreplace")]
