"""How long a core was held in the kernel within a short span: by the limit of `saturated_core`."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sexton.detect.core_steps import core_steps, share_of
from sexton.detect.detectors.saturated_core import KERNEL_SHARE
from sexton.detect.runs import runs
from sexton.model.cpu import CoreTimes
from sexton.model.window import Window
from sexton.series.steps import Step

#: Cores are read a moment before or after whatever the span was measured by.
_AROUND_S = 1.5
_KERNEL = ("system_ms", "irq_ms", "softirq_ms")


class Slice(NamedTuple):
    """One core between two readings; `share` of it in the kernel, in per cent."""

    core: int
    start: float
    end: float
    share: float


def slices(
    window: Window, cores: Collection[int], span: tuple[float, float]
) -> dict[int, list[Slice]]:
    """Steps of these cores around a span (monotonic seconds), in order."""
    made: dict[int, list[Slice]] = {core: [] for core in cores}
    start, end = span[0] - _AROUND_S, span[1] + _AROUND_S
    for step in core_steps(window):
        core = step.after.cpu
        if core not in made or step.start_mono < start or step.end_mono > end:
            continue
        share = _share(step)
        if share is not None:
            made[core].append(Slice(core, step.start_mono, step.end_mono, share))
    return made


def held(window: Window, cores: Collection[int], span: tuple[float, float]) -> dict[int, float]:
    """Per core, the longest time in a row that it was held; 0 where it was not."""
    return {
        core: max(
            (run.seconds for run in runs(made, lambda each: each.share >= KERNEL_SHARE.value)),
            default=0.0,
        )
        for core, made in slices(window, cores, span).items()
    }


def _share(step: Step[CoreTimes]) -> float | None:
    spent = 0
    for name in _KERNEL:
        moved = step.delta(name)
        if moved is None:
            return None
        spent += moved
    return share_of(step, spent)
