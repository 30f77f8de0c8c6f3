"""The explorer's page of a capture, for `report`, `flame`, `diff` and `heatmap`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sexton.model.profile import Flame
    from sexton.profile.opened import Opened
    from sexton.profile.select import Selection

_ROWS = {
    "cores": "samples per core",
    "peaks": "samples per core, busiest second of each column",
    "subsecond": "busy samples per 20 ms of each second",
}


def data_of(
    args: argparse.Namespace, found: Opened, selection: Selection, flame: Flame
) -> dict[str, Any]:
    """The page's data for the samples that the options select."""
    from sexton.cli.profile.capture import arguments_of, capture_of
    from sexton.cli.profile.heatmap import heats_of
    from sexton.explorer.files.profile import Chosen, Samples, capture_data
    from sexton.model.text import printable

    span = found.span_ns or (0, 0)
    start = span[0] if selection.start_ns is None else max(selection.start_ns, span[0])
    end = span[1] + 1 if selection.end_ns is None else min(selection.end_ns, span[1] + 1)
    timed = found.span_ns is not None and end > start
    heats = heats_of(found, args, start, end) if timed else ()
    samples = Samples(heats, found.profiles(start, end) if timed else (), flame, found.hertz)
    return capture_data(
        capture_of(found), samples, Chosen(selection, printable(arguments_of(args)))
    )


def heatmap_page(args: argparse.Namespace, found: Opened, kind: str) -> str:
    """The page with the lane that `--kind` names first and no flame graph open."""
    from sexton.cli.profile.capture import capture_of, selection_of
    from sexton.explorer.files.profile import flame_html
    from sexton.reports.text.profile_head import identity

    selection = selection_of(args, found)
    data = data_of(args, found, selection, found.flame(selection))
    data["open"] = {"select": None, "core": None, "baseline": None, "kind": kind}
    capture = capture_of(found)
    return flame_html(f"{capture.name}: {_ROWS[kind]}", identity(capture), data)
