"""Heat as a matrix of cores by seconds, and the number of possible samples (*trials*) of each.

A timer that also ticks in idle (``cpu-clock``) takes the same number of samples every second: the
trials are the samples, and a second without any was lost. A hardware cycle counter stops while a
core sleeps: a second with few samples, or none, is a second of sleep, and the trials are the
samples of a busy core. The median second shows which of the two it is. If no core was sampled in a
second, the capture has a gap there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sexton.model.profile import I32, I64, Floats, Heat
from sexton.profile.heat import SECOND_NS
from sexton.profile.heatmap import MOST_CORES

#: A core is sampled in idle too if its median second has this share of a busy one's samples.
_STEADY = 0.85
#: A second with a smaller share of its samples is not used: the rest was lost.
_LEAST = 0.25
#: Over a month, from a broken clock: refused before memory is allocated.
MOST_SECONDS = 40 * 86_400
#: Three days of 96 cores, 600 MB in three matrices.
MOST_CELLS = 25_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Matrices of cores (rows) by seconds (columns). `trials` is 0 where not sampled.

    `rate` is the number of samples per second of a busy core.
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
        """The start of a column."""
        return (self.first + column) * SECOND_NS

    def numbers(self, rows: Iterable[int]) -> tuple[int, ...]:
        """The numbers of the cores in these rows."""
        return tuple(int(self.cpus[row]) for row in rows)


class NoData(Exception):
    """There is nothing to search; the message says why."""


def grid_of(heats: Iterable[Heat], cpus: frozenset[int] | None, hertz: int | None) -> Grid:
    """The matrices of heat given piece by piece; cells are dropped, so that hours fit."""
    second, cpu, counts = _gathered(heats, cpus)
    first, last = int(second.min()), int(second.max())
    if last - first >= MOST_SECONDS:
        raise NoData("timestamps span months")
    names, core = _named(cpu)
    if len(names) > MOST_CORES:
        raise NoData(f"{len(names):,} core numbers, more than any machine has: use --cpu")
    shape = (len(names), last - first + 1)
    if shape[0] * shape[1] > MOST_CELLS:
        raise NoData(f"too much: {shape[0]} cores × {shape[1]} s; use --from, --to or --cpu")
    where = core * shape[1] + (second - first)
    # Two pieces may share the second in which one ends and the next starts: add up.
    samples, busy, kernel = (_added(where, row, shape) for row in counts)
    rate = float(np.quantile(counts[0], 0.99))
    if hertz is not None and names[0] >= 0 and hertz <= 20 * rate:
        # With few busy seconds the quantile is too small; a rate far above it was throttled.
        rate = float(hertz)
    trials = _trials(samples, rate)
    busy, kernel = np.minimum(busy, trials), np.minimum(kernel, trials)
    return Grid(first, names.astype(np.int32), trials, busy, kernel, rate)


def _named(cpu: I32) -> tuple[I32, I64]:
    """The distinct cores, and the core of each row."""
    low, high = int(cpu.min()), int(cpu.max())
    if high - low > 1 << 20:  # garbage instead of core numbers
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
        raise NoData("no samples on the chosen cores" if seen else "samples have no timestamps")
    counts = [np.concatenate([part[at] for part in parts]) for at in (2, 3, 4)]
    return (
        np.concatenate([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
        (counts[0], counts[1], counts[2]),
    )


def _trials(samples: Floats, rate: float) -> Floats:
    steady = np.median(samples, axis=1) >= _STEADY * rate
    sleeping = np.maximum(samples, rate)
    # No core was sampled: a gap in the capture.
    sleeping[:, samples.max(axis=0) == 0] = 0
    trials = np.where(steady[:, None], samples, sleeping)
    trials[trials < _LEAST * rate] = 0
    return trials
