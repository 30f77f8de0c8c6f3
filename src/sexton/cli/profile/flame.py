"""Draw a flame graph of a time range, cores, task, cgroup or function.

  sexton profile flame perf.data                            a tree on the terminal, down to 1 %
  sexton profile flame perf.data --out flame.svg            a picture for a ticket
  sexton profile flame perf.data --out flame.html           interactive, with heatmap
  sexton profile flame perf.data --from 127 --to 132 --cpu 5
  sexton profile flame perf.data --task '^kubelet$' --grep rstat
  sexton profile flame perf.data --out it.pb.gz             pprof; .folded, .speedscope.json

A sample is idle if the idle task is in the idle loop, judged by the innermost function;
interrupt work on an idle core is not idle and stays.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.profile.capture import (
    add_files,
    add_filters,
    add_picture,
    capture_of,
    data_of,
    deliver,
    encode,
    no_samples,
    open_capture,
    selection_of,
    terminal,
)
from sexton.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sexton.model.profile import Flame
    from sexton.profile.captures import Opened
    from sexton.reports.svg.flame_svg import Words
    from sexton.reports.text.profile_head import Capture

FORMATS = ("text", "folded", "speedscope", "pprof", "json", "svg", "html")
#: The format by file extension.
EXTENSIONS = {
    ".svg": "svg",
    ".html": "html",
    ".folded": "folded",
    ".collapsed": "folded",
    ".speedscope.json": "speedscope",
    ".json": "json",
    ".pb.gz": "pprof",
    ".pprof": "pprof",
    ".txt": "text",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_filters(parser)
    add_picture(parser, FORMATS)


def run(args: argparse.Namespace) -> int:
    from sexton.cli.progress import working

    chosen = format_of(args, FORMATS)
    found = open_capture(args)
    selection = selection_of(args, found)
    with working("building the flame graph"):
        flame = found.flame(selection)
    if not flame.samples:
        raise no_samples(found)
    deliver(_render(chosen, args, found, flame), args.out)
    return 0


def format_of(args: argparse.Namespace, known: tuple[str, ...]) -> str:
    """By `--format`, or by the extension of `--out`."""
    import sys

    if args.format is not None:
        chosen = str(args.format)
    elif args.out in (None, "-"):
        return "text"
    else:
        chosen = next((name for end, name in EXTENSIONS.items() if args.out.endswith(end)), "")
        if chosen not in known:
            raise CommandError(
                f"--out {args.out}: unknown extension; use --format {'|'.join(known)}"
            )
    if chosen == "pprof" and args.out is None and sys.stdout.isatty():
        raise CommandError("pprof is binary: use --out FILE or a pipe")
    return chosen


def _render(chosen: str, args: argparse.Namespace, found: Opened, flame: Flame) -> Iterable[bytes]:
    from sexton.reports.svg.flame_picture import boxes_of

    capture = capture_of(found)
    if chosen in ("folded", "speedscope", "pprof", "json"):
        from sexton.cli.profile.export import about_of, export_flame

        return export_flame(chosen, flame, about_of(capture, found.hertz))
    if chosen == "text":
        from sexton.reports.text.flame import flame_lines

        width = min(max(terminal().width, 60), 160) if args.out is None else 100
        text = report_text(args, capture, flame_lines(flame, width), width)
    else:
        words = words_of(args, capture, flame)
        if chosen == "html":
            from sexton.explorer.files.profile import flame_html

            data = data_of(args, found, selection_of(args, found), flame)
            text = flame_html(words.title, words.note, data)
        else:
            from sexton.reports.svg.flame_svg import flame_svg

            text = flame_svg(boxes_of(flame), words, args.icicle)
    return [encode(text, args.out if chosen == "text" else "")]


def words_of(args: argparse.Namespace, capture: Capture, flame: Flame) -> Words:
    """Title and subtitle of a picture."""
    from sexton.model.text import count
    from sexton.reports.svg.flame_svg import Words
    from sexton.reports.text.profile_head import lost

    note = [count(flame.samples, "sample"), flame.event]
    if flame.core_seconds:
        note.append(f"{flame.samples / flame.core_seconds:,.1f} per core-second")
    note.append(lost(capture.facts))
    return Words(about(args, capture), " · ".join(sentence for sentence in note if sentence))


def report_text(
    args: argparse.Namespace, capture: Capture, lines: Iterable[str], width: int
) -> str:
    """A report with its title, and what is missing from the capture."""
    from sexton.reports.text.profile_head import shortfalls

    return "\n".join([f" {about(args, capture)}", "", *lines, *shortfalls(capture, width), ""])


def about(args: argparse.Namespace, capture: Capture) -> str:
    """The title of a report: host, time range and filters."""
    from sexton.model.text import printable

    parts = [capture.name]
    date = capture.times.date(capture.times.start_ns) if capture.end_ns is not None else ""
    start, end = getattr(args, "start", None), getattr(args, "end", None)
    if start or end:
        parts.append(f"{start or 'start'} to {end or 'end'}")
    elif date:
        parts.append(date)
    for name in ("cpu", "pid", "task", "cgroup", "grep", "event"):
        if getattr(args, name, None) is not None:
            parts.append(f"{name} {getattr(args, name)}")
    if len(capture.events) > 1 and getattr(args, "event", None) is None:
        # A sum of, say, page faults and clock ticks means little: --event chooses one.
        parts.append("events " + " + ".join(printable(event) for event in capture.events))
    return " · ".join(parts)
