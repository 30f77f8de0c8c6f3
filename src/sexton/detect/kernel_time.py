"""How long a core was held in the kernel within a short span: by the limit of `saturated_core`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from sexton.detect.detectors.saturated_core import KERNEL_SHARE
from sexton.detect.runs import runs
from sexton.model.cpu import CoreTimes
from sexton.model.rates import Step, steps
from sexton.model.window import Batch, Window

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
    for _, step in steps(list(_near(window, cores, span)), lambda row: row.cpu):
        share = _share(step)
        if share is not None:
            made[step.after.cpu].append(
                Slice(step.after.cpu, step.start_mono, step.end_mono, share)
            )
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


def _near(
    window: Window, cores: Collection[int], span: tuple[float, float]
) -> Iterator[Batch[CoreTimes]]:
    start, end = span[0] - _AROUND_S, span[1] + _AROUND_S
    for batch in window.batches(CoreTimes) or ():
        if start <= batch.mono_s <= end:
            yield replace(batch, rows=tuple(row for row in batch.rows if row.cpu in cores))


def _share(step: Step[CoreTimes]) -> float | None:
    spent = [step.delta(name) for name in _KERNEL]
    if any(each is None for each in spent):
        return None
    return sum(each or 0 for each in spent) / 10 / step.seconds
