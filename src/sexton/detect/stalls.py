"""Stretches in which tasks stood still for memory, by pressure stall information."""

from __future__ import annotations

from sexton.detect.runs import Run, runs
from sexton.detect.threshold import Threshold
from sexton.model.window import Window
from sexton.series.pressure import Stall, levels

HURTS = Threshold(
    "stalled", 10, "% some", "a tenth of the working time lost; Android's killer acts from 7 %"
)
LASTS = Threshold("stalled for", 5, "s in a row", "starting a large program stalls for less")


def stalled(window: Window) -> list[Run[Stall]]:
    """Stretches in which tasks stood still for memory, for long enough to hurt."""
    found = runs(levels(window).stalls, lambda each: each.some >= HURTS.value)
    return [run for run in found if run.lasts(LASTS.value)]
