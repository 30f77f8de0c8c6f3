"""How many tasks wait for a core, and stretches in which a value stays high on average.

`/proc/stat` counts the tasks that are ready at the moment it is read; those beyond the number of
cores wait. `/proc/schedstat` adds up the time that tasks waited, which needs no luck with the
moment. But it goes on counting for tasks that their cgroup's quota has stopped (seen on 6.1, v1:
3.8 waiting on idle cores), and many kernels do not have it. So the first is used where there is
one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sexton.model.cpu import RunQueue
from sexton.model.window import Window
from sexton.series.catalogue import READY_TASKS
from sexton.series.cores import core_series
from sexton.series.meter import series
from sexton.series.rates import F64, SLACK, Floats, Stepper, Steps, stretches, sums


class Waiting(NamedTuple):
    """Tasks that wait, per core, by step; NaN is unknown. `source` is the file that tells."""

    start: F64
    end: F64
    tasks: F64
    source: str


class Stretch(NamedTuple):
    """Neighbouring steps with a high mean (monotonic seconds)."""

    start: float
    end: float
    mean: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def waiting(window: Window) -> Waiting | None:
    """Tasks that waited for a core, per core; `None` where nothing counts them."""
    return window.keep("waiting tasks", lambda: _waiting(window))


def _waiting(window: Window) -> Waiting | None:
    cores = core_series(window)
    ready = series(window, READY_TASKS)
    if ready is not None and len(ready.values) and cores is not None:
        number = len(cores.cores)
        tasks = np.maximum(ready.values[0].astype(np.float64) - number, 0.0) / number
        some = ready.end > ready.start
        return Waiting(ready.start[some], ready.end[some], tasks[some], "/proc/stat")
    stepper = Stepper()
    parts = [_queued(stepper.add(piece)) for piece in window.columns(RunQueue, ("wait_ns",))]
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return None
    start, end, mean = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Waiting(start, end, mean, "/proc/schedstat")


def _queued(steps: Steps) -> tuple[F64, F64, F64]:
    """Start and end of steps, and how many tasks waited then in a core's run queue, on average."""
    waited = steps.moved["wait_ns"]
    known = ~np.isnan(waited)
    mean = np.where(known, waited, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    mean[~known.any(axis=0)] = np.nan
    return steps.start, steps.end, mean / 1e9 / steps.seconds


def high(start: F64, end: F64, value: Floats, limit: float, seconds: float) -> list[Stretch]:
    """Stretches in which the mean over every `seconds` was at least `limit`.

    A single low reading in between does not end one; low ones at its ends are not of it.

    >>> at = np.arange(12.0)
    >>> [tuple(each) for each in high(at, at + 1, np.array([0, *[9.0] * 5, 0, *[9.0] * 5]), 7, 5)]
    [(1.0, 12.0, 8.181818181818182)]
    """
    known = ~np.isnan(value)
    start, end, value = start[known], end[known], value[known]
    if not len(end):
        return []
    first = stretches(start, end, seconds * 1.05)
    length = end - start[first]
    mean = sums(value * (end - start), first) / np.maximum(length, 1e-9)
    good = np.flatnonzero((mean >= limit) & (length >= seconds * SLACK))
    spans: list[tuple[int, int]] = []
    for at in good.tolist():
        begin = int(first[at])
        if spans and start[begin] <= end[spans[-1][1]]:
            begin = spans.pop()[0]
        spans.append((begin, at))
    found = []
    for begin, last in spans:
        tall = begin + np.flatnonzero(value[begin : last + 1] >= limit / 2)
        inside = slice(int(tall[0]), int(tall[-1]) + 1)
        spent = (end - start)[inside]
        amount = float((value[inside] * spent).sum() / spent.sum())
        made = Stretch(float(start[tall[0]]), float(end[tall[-1]]), amount)
        if made.seconds >= seconds * SLACK:  # a short, high peak lifts the mean as well
            found.append(made)
    return found


def highest(start: F64, end: F64, value: Floats, seconds: float) -> float | None:
    """The largest mean over any `seconds` in a row; over all there is where that is less."""
    known = ~np.isnan(value)
    if not known.any():
        return None
    start, end, value = start[known], end[known], value[known]
    first = stretches(start, end, seconds * 1.05)
    length = end - start[first]
    mean = sums(value * (end - start), first) / np.maximum(length, 1e-9)
    enough = length >= min(seconds * SLACK, float(length.max()))
    return float(mean[enough].max())
