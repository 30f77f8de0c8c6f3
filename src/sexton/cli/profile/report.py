"""One HTML file with everything: heatmap, spikes, and flame graphs of any range.

  sexton profile report perf.data --out report.html

The file needs no network: open it, mail it, attach it to a ticket. Drag over the heatmap to
see the flame graph of those seconds.
Exit: 0 no spikes, 1 spikes found, 2 failed, 3 inconclusive.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.profile.capture import (
    add_files,
    add_out,
    capture_of,
    data_of,
    deliver_text,
    event_of,
    open_capture,
    range_of,
)
from sexton.cli.profile.spikes import add_search, exit_of, find_spikes

if TYPE_CHECKING:
    from sexton.explorer.files.profile import Compared
    from sexton.profile.captures import Opened
    from sexton.profile.spikes.spike import Spike

#: A spike's flame graph is compared with up to a minute of the same cores before it.
_CALM_NS = 60 * 10**9
_LEAST_CALM_NS = 5 * 10**9
_SECOND_NS = 10**9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_search(parser)
    add_out(parser, required=True)


def run(args: argparse.Namespace) -> int:
    from sexton.cli.progress import working
    from sexton.explorer.files.profile import Report, report_html
    from sexton.profile.select import Selection

    found = open_capture(args)
    spikes = find_spikes(args, found)
    start, end = range_of(args, found)
    selection = Selection(start_ns=start, end_ns=end, event=event_of(args, found))
    with working("drawing"):
        flame = found.flame(selection)
        compared = [_compared(found, spike, args.event) for spike in spikes.spikes]
        data = data_of(args, found, selection, flame)
        report = Report(capture_of(found), spikes, exit_of(spikes), found.hertz, flame, compared)
        page = report_html(report, data)
    deliver_text(page, args.out)
    return exit_of(spikes)


def _compared(found: Opened, spike: Spike, event: str | None) -> Compared | None:
    """The spike compared with the minute before it, else after it, on the same cores."""
    from sexton.explorer.files.page import Part
    from sexton.explorer.files.profile import Compared
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
    words_of_calm = f"compared with the {(end - start) / 1e9:.0f} s {words}, same cores"
    return Compared(both, Part(start / 1e9, end / 1e9), words_of_calm)
