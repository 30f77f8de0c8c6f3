"""One HTML file with everything: heatmaps, spikes, and their flame graphs against calm.

  sexton profile report perf.data --out report.html

It needs no network and sends nothing: open it, mail it, attach it to a ticket. Ranges of a
short capture can be chosen in it by drawing over the heatmap.
Exit: 0 nothing stood out, 1 something did, 2 failed, 3 could not tell.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.profile.capture import add_files, add_out
from sexton.cli.profile.spikes import add_search

if TYPE_CHECKING:
    from sexton.explorer.files.page_data import Numbers
    from sexton.explorer.files.profile_page import Compared, Report
    from sexton.profile.opened import Opened
    from sexton.profile.spikes.spike import Spike, Spikes

_COLUMNS = 1000
#: How much of the calm before a spike its flame graph is compared with.
_CALM_NS = 60 * 10**9
_LEAST_CALM_NS = 5 * 10**9
_SECOND_NS = 10**9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_search(parser)
    add_out(parser, required=True)


def run(args: argparse.Namespace) -> int:
    from sexton.cli.profile.capture import (
        arguments_of,
        capture_of,
        emit_text,
        open_capture,
        report_written,
    )
    from sexton.cli.profile.spikes import exit_of, look_for
    from sexton.cli.progress import working
    from sexton.explorer.files.page_data import Numbers
    from sexton.explorer.files.profile_page import report_html
    from sexton.model.text import printable

    found = open_capture(args)
    spikes = look_for(args, found)
    capture = capture_of(found)
    numbers = Numbers(capture, printable(arguments_of(args)))
    with working("drawing"):
        made = _report(args, found, spikes)._replace(capture=capture)
        _add_stacks(found, made, numbers)
        page = report_html(made, numbers)
    emit_text(page, args.out)
    if args.out != "-":
        report_written(args.out)
    return exit_of(spikes)


def _report(args: argparse.Namespace, found: Opened, spikes: Spikes) -> Report:
    from sexton.cli.profile.capture import capture_of, event_of, range_of
    from sexton.cli.profile.heatmap import drawn
    from sexton.cli.profile.spikes import exit_of
    from sexton.explorer.files.profile_page import Report
    from sexton.profile.select import Selection

    heats = []
    if found.span_ns is not None:
        heats = [drawn(found, args, "peaks", _COLUMNS), drawn(found, args, "subsecond", _COLUMNS)]
    start, end = range_of(args, found)
    return Report(
        capture=capture_of(found),
        spikes=spikes,
        exit=exit_of(spikes),
        heats=heats,
        hertz=found.hertz,
        whole=found.flame(Selection(start_ns=start, end_ns=end, event=event_of(args, found))),
        compared=[_compared(found, each, args.event) for each in spikes.spikes],
    )


def _compared(found: Opened, spike: Spike, event: str | None) -> Compared | None:
    """The spike against the minute before it (or after, where there is none), same cores."""
    from sexton.explorer.files.profile_page import Compared
    from sexton.profile.difference import Side, difference
    from sexton.profile.select import Selection

    span = found.span_ns
    if span is None:
        return None
    start, end, words = max(spike.start_ns - _CALM_NS, span[0]), spike.start_ns, "before it"
    if end - start < _LEAST_CALM_NS:
        start, end, words = spike.end_ns, min(spike.end_ns + _CALM_NS, span[1]), "after it"
    if end - start < _SECOND_NS:
        return None
    cpus = frozenset(spike.cpus) if all(cpu >= 0 for cpu in spike.cpus) and spike.cpus else None
    calm = Selection(start_ns=start, end_ns=end, cpus=cpus, event=event)
    here = calm._replace(start_ns=spike.start_ns, end_ns=spike.end_ns)
    both = difference(Side(found, calm), Side(found, here))
    if not both.before.sum() or not both.after.sum():
        return None
    return Compared(both, f"the {(end - start) / 1e9:.0f} s {words}, same cores")


def _add_stacks(found: Opened, made: Report, numbers: Numbers) -> None:
    """The stacks of a short capture, so that ranges can be chosen in the page."""
    from sexton.explorer.files.page_stacks import MOST_SAMPLES, Kept, packed_stacks
    from sexton.explorer.files.page_stacks import Frame as Columns
    from sexton.reports.svg.flame_picture import boxes_of

    span, whole = found.span_ns, made.whole
    if span is None or made.capture.samples > MOST_SAMPLES or not whole.samples:
        return
    heat = made.heats[0]  # the same columns, so that what is chosen there is what is shown
    first = heat.column_ns(0)[0]
    columns = Columns(first, heat.column_seconds * _SECOND_NS, heat.values.shape[1])
    kept = Kept(whole.tree, boxes_of(whole, 2500))
    frames = [numbers.frame(box, box.plain) for box in kept.boxes]
    numbers.data["stacks"] = packed_stacks(
        found.profiles(), kept, columns, frames, (first - span[0]) / 1e9
    )
