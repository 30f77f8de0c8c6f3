"""Consecutive steps above a limit, as one stretch of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from sexton.series.rates import CLOSE_S, Steps, Timed, lasts, runs

#: Every table is read at least every ten seconds: a reading around a span is at most this far.
AROUND_S = 10.5

S = TypeVar("S", bound=Timed)


@dataclass(frozen=True, slots=True)
class StepRun(Generic[S]):
    """One or more steps without a gap between them."""

    steps: tuple[S, ...]

    @property
    def start(self) -> float:
        return self.steps[0].start

    @property
    def end(self) -> float:
        return self.steps[-1].end

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def close_up(self) -> tuple[float, float]:
        """The part of it that may be examined second by second."""
        return self.start, min(self.end, self.start + CLOSE_S)

    def lasts(self, seconds: float) -> bool:
        """At least so long, with some slack for readings that come early."""
        return lasts(self.seconds, seconds)

    def overlap(self, other: StepRun[Any]) -> float:
        """Seconds in which they overlap."""
        return max(0.0, min(self.end, other.end) - max(self.start, other.start))


def step_runs(
    steps: Sequence[S], above: Sequence[bool] | npt.NDArray[np.bool_], lasting: float = 0.0
) -> list[StepRun[S]]:
    """Stretches of steps marked `above` that last so many seconds, in order.

    >>> from collections import namedtuple
    >>> made = [namedtuple("Step", "start end rate")(at, at + 1, rate)
    ...         for at, rate in enumerate((0, 9, 9, 0, 9))]
    >>> [(run.start, run.end) for run in step_runs(made, [step.rate > 5 for step in made])]
    [(1, 3), (4, 5)]
    """
    found: list[list[S]] = []
    before = -1
    for at in np.flatnonzero(above).tolist():
        step = steps[at]
        if found and at == before + 1 and step.start == found[-1][-1].end:
            found[-1].append(step)
        else:
            found.append([step])
        before = at
    made = (StepRun(tuple(stretch)) for stretch in found)
    return [run for run in made if run.lasts(lasting)]


def around(
    times: Steps, above: npt.NDArray[np.bool_], start: float, end: float
) -> tuple[float, float]:
    """Start and end of the unbroken steps above a limit that overlap a stretch; the stretch itself
    if none does."""
    found = [run for run in runs(times, above[None]) if run.overlap(start, end) > 0]
    return (found[0].start, found[-1].end) if found else (start, end)
