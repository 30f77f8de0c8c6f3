"""Heat as a table of cores by seconds, and how often each core could have been caught at work.

A timer that ticks in idle too (``cpu-clock``) takes the same number of samples every second:
the *trials* are the samples, and a second without any was lost. A hardware counter of cycles
stands still while a core sleeps: there a second with few samples, or none, is a second of sleep,
and the trials are what a busy core is sampled. Which of the two a core is, its median second
tells; a machine that was not sampled at all in a second was not sleeping, it was not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sexton.model.flame import Floats
from sexton.model.heat import Heat
from sexton.model.profile import I32, I64
from sexton.profile.heatmap import MOST_CORES
from sexton.profile.spikes.options import SECOND_NS

#: A core whose median second has this share of a busy one's samples is sampled in idle too.
_STEADY = 0.85
#: A second with fewer of its samples than this tells nothing: the rest of it was lost.
_LEAST = 0.25
#: More seconds than a month, from a broken clock: refused before memory is taken for them.
MOST_SECONDS = 40 * 86_400
#: Three days of 96 cores, 600 MB in three matrices.
MOST_CELLS = 25_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Matrices of cores (rows) by seconds (columns). `trials` is 0 where nothing is known.

    `rate` is how many samples a busy core gets a second.
    """

    first: int
    cpus: I32
    trials: Floats
    busy: Floats
    kernel: Floats
    rate: float

    @property
    def seconds(self) -> int:
        return int(self.trials.shape[1])

    def time_ns(self, column: int) -> int:
        """When a column begins."""
        return (self.first + column) * SECOND_NS


class NothingToSee(Exception):
    """There is no table to make; the message says why."""


def grid_of(heats: Iterable[Heat], cpus: frozenset[int] | None, hertz: int | None) -> Grid:
    """Of heat piece by piece: its fiftieths of a second are not kept, twelve hours fit well."""
    columns = _gathered(heats, cpus)
    second, cpu, counts = columns
    first, last = int(second.min()), int(second.max())
    if last - first >= MOST_SECONDS:
        raise NothingToSee("the times of the samples span months")
    names, core = _named(cpu)
    if len(names) > MOST_CORES:
        raise NothingToSee(f"{len(names):,} cores are told, which no machine has: choose some")
    shape = (len(names), last - first + 1)
    if shape[0] * shape[1] > MOST_CELLS:
        raise NothingToSee(f"{shape[0]} cores of {shape[1]} seconds: choose a range, or cores")
    where = core * shape[1] + (second - first)
    # A second in which one piece ends and the next begins is in both: counts are added up.
    samples, busy, kernel = (_added(where, each, shape) for each in counts)
    rate = float(np.quantile(counts[0], 0.99))
    if hertz is not None and names[0] >= 0 and hertz <= 20 * rate:
        # Few busy seconds make the quantile too small; a rate far above it was throttled down.
        rate = float(hertz)
    trials = _trials(samples, rate)
    busy, kernel = np.minimum(busy, trials), np.minimum(kernel, trials)
    return Grid(first, names.astype(np.int32), trials, busy, kernel, rate)


def _named(cpu: I32) -> tuple[I32, I64]:
    """The cores there are, and which of them each row is."""
    low, high = int(cpu.min()), int(cpu.max())
    if high - low > 1 << 20:  # noise instead of numbers of cores
        names, core = np.unique(cpu, return_inverse=True)
        return names, core.astype(np.int64)
    there = np.zeros(high - low + 1, np.bool_)
    there[cpu - low] = True
    return (np.flatnonzero(there) + low).astype(np.int32), (np.cumsum(there) - 1)[cpu - low]


def _added(where: I64, counts: I32, shape: tuple[int, int]) -> Floats:
    sums = np.bincount(where, counts, minlength=shape[0] * shape[1])
    return sums.astype(np.float64, copy=False).reshape(shape)


def _gathered(
    heats: Iterable[Heat], cpus: frozenset[int] | None
) -> tuple[I64, I32, tuple[I32, I32, I32]]:
    chosen = None if cpus is None else np.array(sorted(cpus), np.int64)
    seen = False
    parts: list[tuple[I64, I32, I32, I32, I32]] = []
    for heat in heats:
        seen = seen or len(heat) > 0
        columns = (heat.second, heat.cpu, heat.samples, heat.busy, heat.kernel)
        if chosen is not None:
            rows = np.isin(heat.cpu, chosen)
            second, cpu, samples, busy, kernel = columns
            columns = (second[rows], cpu[rows], samples[rows], busy[rows], kernel[rows])
        parts.append(columns)
    if not sum(len(part[0]) for part in parts):
        raise NothingToSee("no sample is of the chosen cores" if seen else "no sample has a time")
    counts = [np.concatenate([part[at] for part in parts]) for at in (2, 3, 4)]
    return (
        np.concatenate([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
        (counts[0], counts[1], counts[2]),
    )


def _trials(samples: Floats, rate: float) -> Floats:
    steady = np.median(samples, axis=1) >= _STEADY * rate
    sleeping = np.maximum(samples, rate)
    # Nobody sampled anything: the capture has a hole there.
    sleeping[:, samples.max(axis=0) == 0] = 0
    trials = np.where(steady[:, None], samples, sleeping)
    trials[trials < _LEAST * rate] = 0
    return trials
