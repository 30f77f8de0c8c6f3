"""Shortage of memory: stretches in which tasks stalled for it, by pressure stall information."""

from __future__ import annotations

from sexton.detect.registry import READS, Threshold
from sexton.detect.runs import Run, runs
from sexton.model.diagnosis import Step
from sexton.model.finding import Finding
from sexton.model.window import Window
from sexton.series.pressure import Stall, levels

HURTS = Threshold(
    "stalled", 10, "% some", "a tenth of the working time lost; Android's killer acts from 7 %"
)
LASTS = Threshold("stalled for", 5, "s in a row", "starting a large program stalls for less")
#: Symptoms that come together on many busy nodes and are mistaken for cause and effect wherever two
#: graphs have the same shape. (Throttling is never caused by reclaim: a quota is used up by
#: running, and reclaim makes a task wait.)
SHORTAGE = "shortage of memory or CPU"


def stalled(window: Window) -> list[Run[Stall]]:
    """Stretches in which tasks stood still for memory, for long enough to hurt."""
    every = levels(window).stalls
    found = runs(every, every.some >= HURTS.value)
    return [run for run in found if run.lasts(LASTS.value)]


def biggest_processes(_finding: Finding, _window: Window) -> list[Step]:
    """The first look at a shortage of memory."""
    why = "which processes use the memory; limit them, move them, or give them less work"
    return [Step("ps -eo rss,pid,comm --sort -rss | head", why, READS)]
