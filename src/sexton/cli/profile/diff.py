"""Compare two flame graphs, and tell significant changes from noise.

  sexton profile diff perf.data --before 0..120 --after 127..132
  sexton profile diff perf.data --before ..02:14 --after 02:14.. --cpu 5 --out diff.html
  sexton profile diff monday.data tuesday.data

Shares are compared, so the two sides may differ in length. Changes are tested over
blocks of time; q is the false discovery rate over all tests. Changes of 1 % and more
that may be chance are listed after the significant ones, the largest first. In pictures
red grew, blue shrank; what may be chance is pale, or grey where it is small.
Exit: 0 no significant change (large ones may be listed), 1 significant changes, 2 failed,
3 nothing could be tested (no timestamps, or too short).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.profile.capture import (
    add_files,
    add_filters,
    add_picture,
    capture_of,
    deliver,
    encode,
    open_capture,
    parse_span,
    selection_of,
    terminal,
)
from sexton.cli.profile.flame import about, format_of
from sexton.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sexton.model.profile import FlameDifference
    from sexton.profile.difference import Side
    from sexton.reports.text.profile_head import Capture

FORMATS = ("text", "json", "svg", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    parser.add_argument("--before", metavar="FROM..TO", help="first span of the capture")
    parser.add_argument("--after", metavar="FROM..TO", help="second span, compared with the first")
    add_filters(parser)
    add_picture(parser, FORMATS)


def run(args: argparse.Namespace) -> int:
    from sexton.cli.progress import working
    from sexton.profile.difference import difference
    from sexton.reports.svg.flame_picture import SIGNIFICANT

    chosen = format_of(args, FORMATS)
    sides, captures, names = _sides(args)
    with working("comparing"):
        found = difference(*sides)
    for name, counts in zip(names, (found.before, found.after), strict=True):
        if not counts.sum():
            raise CommandError(f"{name}: no samples match")
    deliver(_render(chosen, args, captures, (found, names)), args.out)
    if not found.tested:
        return 3
    return 1 if bool((found.q <= SIGNIFICANT).any()) else 0


def _sides(args: argparse.Namespace) -> tuple[tuple[Side, Side], list[Capture], tuple[str, str]]:
    from sexton.profile.difference import Side

    spans = args.before is not None, args.after is not None
    if all(spans):
        if args.start is not None or args.end is not None:
            raise CommandError("--before and --after cannot be combined with --from and --to")
        found = open_capture(args)
        whole = selection_of(args, found)
        both = []
        for text in (args.before, args.after):
            start, end = parse_span(text, found)
            both.append(Side(found, whole._replace(start_ns=start, end_ns=end)))
        return (both[0], both[1]), [capture_of(found)], (args.before, args.after)
    if any(spans) or len(args.files) != 2:
        raise CommandError("pass two files, or one with --before FROM..TO and --after FROM..TO")
    opened = [open_capture(args, [file]) for file in args.files]
    first, second = (Side(capture, selection_of(args, capture)) for capture in opened)
    return (
        (first, second),
        [capture_of(capture) for capture in opened],
        (args.files[0], args.files[1]),
    )


def _render(
    chosen: str,
    args: argparse.Namespace,
    captures: Sequence[Capture],
    compared: tuple[FlameDifference, tuple[str, str]],
) -> list[bytes]:
    import json

    from sexton.model.text import printable
    from sexton.reports.text.flame import difference_lines, untested_because

    found, names = compared
    if chosen == "json":
        from sexton.reports.json.profile import difference_json

        text = json.dumps(difference_json(captures, found, names)) + "\n"
    elif chosen == "text":
        from sexton.reports.text.profile_head import shortfalls

        width = min(max(terminal().width, 60), 160) if args.out is None else 100
        title = f" {about(args, captures[0])}: {printable(names[0])} → {printable(names[1])}"
        missing = [line for capture in captures for line in shortfalls(capture, width)]
        text = "\n".join([title, "", *difference_lines(found, width), *missing, ""])
    else:
        note = f"{int(found.before.sum()):,} → {int(found.after.sum()):,} samples"
        if not found.tested:
            note += f" · not tested: {untested_because(found)}"
        title = f"{about(args, captures[0])}: {names[0]} → {names[1]}"
        if chosen == "html":
            from sexton.explorer.files.profile import difference_data, flame_html

            text = flame_html(title, note, difference_data(found, names))
        else:
            from sexton.reports.svg.flame_picture import difference_boxes
            from sexton.reports.svg.flame_svg import Words, flame_svg

            text = flame_svg(difference_boxes(found), Words(title, note), args.icicle)
    return [encode(text, args.out if chosen == "text" else "")]
