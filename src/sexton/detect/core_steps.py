"""Every core between neighbouring readings: made once, since several detectors go through a night
of them."""

from __future__ import annotations

from sexton.detect.witness import remembered
from sexton.model.cpu import CoreTimes
from sexton.model.rates import Step, steps
from sexton.model.window import Window


@remembered
def core_steps(window: Window) -> tuple[Step[CoreTimes], ...]:
    """In the order of time, and of the readings."""
    batches = window.batches(CoreTimes) or ()
    return tuple(step for _, step in steps(batches, lambda row: row.cpu))
