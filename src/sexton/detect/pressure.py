"""Pressure stall information over the window: who stood still for memory, step by step.

The machine's numbers are weighted by how busy each core is: one stalled task among 96 busy cores
is about 1 %, the same task alone on its machine 100 %. So a high share hurts on any machine, and a
low one may still be all of one task's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from sexton.detect.paging import NEAR_S
from sexton.detect.runs import Run, runs
from sexton.detect.threshold import Threshold
from sexton.detect.witness import remembered
from sexton.model.memory import Pressure
from sexton.model.window import Batch, Window
from sexton.series.steps import delta

HURTS = Threshold(
    "stalled", 10, "% some", "a tenth of the working time lost; Android's killer acts from 7 %"
)
LASTS = Threshold("stalled for", 5, "s in a row", "starting a large program stalls for less")


class Level(NamedTuple):
    """One reading of `/proc/pressure/memory`, microseconds since boot; `None` is not told."""

    mono_s: float
    follows: bool
    some_us: int | None
    full_us: int | None


class Stall(NamedTuple):
    """Between two readings, in per cent of that time."""

    start: float
    end: float
    some: float
    full: float | None

    @property
    def seconds(self) -> float:
        return self.end - self.start


@remembered
def levels(window: Window) -> list[Level]:
    """Every reading of the memory's pressure, oldest first; none where the kernel does not tell."""
    return list(levels_of(window.batches(Pressure) or ()))


def levels_of(batches: Iterable[Batch[Pressure]]) -> Iterator[Level]:
    """The same of batches."""
    for batch in batches:
        told = {row.kind: row.total_us for row in batch.rows if row.resource == "memory"}
        if told:
            yield Level(batch.mono_s, batch.follows, told.get("some"), told.get("full"))


def stalls(found: Sequence[Level]) -> list[Stall]:
    """The shares between neighbours."""
    made = (
        between(before, after)
        for before, after in pairwise(found)
        if after.follows and after.mono_s > before.mono_s
    )
    return [each for each in made if each is not None]


def between(before: Level, after: Level) -> Stall | None:
    """The shares between two readings, neighbours or not."""
    seconds = after.mono_s - before.mono_s
    some = delta(before.some_us, after.some_us)
    full = delta(before.full_us, after.full_us)
    if some is None:
        return None
    return Stall(
        before.mono_s,
        after.mono_s,
        some / 10_000 / seconds,
        None if full is None else full / 10_000 / seconds,
    )


def over(found: Sequence[Level], start: float, end: float) -> Stall | None:
    """The shares between the readings nearest to two moments; `None` where none is near."""
    if not found:
        return None
    first = min(found, key=lambda each: abs(each.mono_s - start))
    last = min(found, key=lambda each: abs(each.mono_s - end))
    away = max(abs(first.mono_s - start), abs(last.mono_s - end))
    return between(first, last) if last.mono_s > first.mono_s and away <= NEAR_S else None


def stalled(window: Window) -> list[Run[Stall]]:
    """Stretches in which tasks stood still for memory, for long enough to hurt."""
    return stalled_in(levels(window))


def stalled_in(found: Sequence[Level]) -> list[Run[Stall]]:
    """The same of readings."""
    found_runs = runs(stalls(found), lambda each: each.some >= HURTS.value)
    return [run for run in found_runs if run.lasts(LASTS.value)]
