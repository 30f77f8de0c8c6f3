"""Stretches in which tasks stood still for memory, by pressure stall information."""

from __future__ import annotations

from collections.abc import Sequence

from sexton.detect.runs import Run, runs
from sexton.detect.threshold import Threshold
from sexton.model.window import Window
from sexton.series.pressure import Level, Stall, levels, stalls

HURTS = Threshold(
    "stalled", 10, "% some", "a tenth of the working time lost; Android's killer acts from 7 %"
)
LASTS = Threshold("stalled for", 5, "s in a row", "starting a large program stalls for less")


def stalled(window: Window) -> list[Run[Stall]]:
    """Stretches in which tasks stood still for memory, for long enough to hurt."""
    return stalled_in(levels(window))


def stalled_in(found: Sequence[Level]) -> list[Run[Stall]]:
    """The same of readings."""
    found_runs = runs(stalls(found), lambda each: each.some >= HURTS.value)
    return [run for run in found_runs if run.lasts(LASTS.value)]
