"""Amounts by key and reading, where a key that is not listed counts as zero; CPU time of tasks.

For tables that list only what exists: tasks that ran, cgroups that died, functions that were
sampled. A key missing from a reading is zero; a missing reading is unknown.

Thousands of tasks come and go. A task that started since the previous reading has used all its CPU
time since then; what a task used between its last reading and its end is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sexton.series.rates import F64, Bools, Floats, Ints, longest_step

#: The start time in ticks may be a little before the real one.
_LATE_MS = 20


def known_sum(values: Floats) -> Floats:
    """The sum of the known values over all things; NaN if none is known."""
    known = ~np.isnan(values)
    found: Floats = np.where(known.any(axis=0), np.where(known, values, 0).sum(axis=0), np.nan)
    return found


class Readings(NamedTuple):
    """Times at which a table was read, the length of each step, and whether the step is known (the
    table was read without a gap)."""

    mono: F64
    spent: F64
    known: Bools


def readings(moments: F64, before: float | None) -> Readings:
    """The readings of one segment; `before` is the last moment of the previous one."""
    first = -np.inf if before is None else before
    spent = np.diff(np.concatenate([[first], moments]))
    return Readings(moments, spent, (spent > 0) & (spent <= longest_step(moments)))


class Sums:
    """Adds up amounts over segments. Keys are numbers; their meaning is the caller's."""

    def __init__(self) -> None:
        self._readings: list[Readings] = []
        self._parts: list[tuple[Ints, Ints, F64]] = []
        self._number = 0

    def add(self, when: Readings, keys: Ints, at: Ints, amount: F64) -> None:
        """Add amounts of keys at readings (`at` is an index into `when`); duplicates are summed."""
        width = len(when.mono)
        some = amount > 0
        cells, place = np.unique(keys[some] * width + at[some], return_inverse=True)
        sums: F64 = np.bincount(place, amount[some], minlength=len(cells)).astype(np.float64)
        self._parts.append((cells // width, cells % width + self._number, sums))
        self._readings.append(when)
        self._number += width

    def largest(self, most: int, by_peak: bool = False) -> Iterator[tuple[int, F64, F64]]:
        """Key, readings and values of the `most` largest keys, by total or by peak."""
        if not self._readings:
            return
        mono = np.concatenate([reading.mono for reading in self._readings])
        unknown = ~np.concatenate([reading.known for reading in self._readings])
        every, place, sums = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        keys, row = np.unique(every, return_inverse=True)
        weight = np.zeros(len(keys))
        (np.maximum if by_peak else np.add).at(weight, row, sums)
        order = np.argsort(row, kind="stable")
        starts = np.searchsorted(row[order], np.arange(len(keys) + 1))
        for at in np.argsort(-weight, kind="stable")[:most].tolist():
            mine = order[starts[at] : starts[at + 1]]
            value = np.zeros(len(mono))
            value[place[mine]] = sums[mine]
            value[unknown] = np.nan
            yield int(keys[at]), mono, value


class TaskRows(NamedTuple):
    """Readings of processes or threads; `task` identifies one, `used` is CPU time in ms."""

    mono: F64
    task: Ints
    pid: Ints
    start: Ints
    name: Ints
    cpu: Ints
    used: Ints

    def some(self, rows: Any) -> TaskRows:
        return TaskRows(*(column[rows] for column in self))


class TaskUse(NamedTuple):
    """CPU time of tasks per step, in per cent of a core; `at` is the index of the reading."""

    when: Readings
    rows: TaskRows
    at: Ints
    percent: F64


class TaskStepper:
    """Takes rows in pieces; the last reading of each piece is kept for the next."""

    def __init__(self) -> None:
        self._last: TaskRows | None = None

    def add(self, rows: TaskRows) -> TaskUse:
        """CPU time used in the step up to each of these readings."""
        ordered = (rows.task[1:] > rows.task[:-1]) | (
            (rows.task[1:] == rows.task[:-1]) & (rows.mono[1:] > rows.mono[:-1])
        )
        if not ordered.all():
            rows = rows.some(np.lexsort((rows.mono, rows.task)))
        moments = np.unique(rows.mono)
        last = self._last
        if last is not None and moments[0] <= last.mono[0]:
            last = None
        self._last = rows.some(rows.mono == moments[-1])
        return _stepped(rows, moments, last)


def _stepped(rows: TaskRows, moments: F64, last: TaskRows | None) -> TaskUse:
    """`rows` and `last` are sorted by task, then by time."""
    when = readings(moments, None if last is None else float(last.mono[0]))
    edges = moments - when.spent
    at = np.searchsorted(moments, rows.mono)
    since = edges[at]
    before = np.full(len(at), -1, np.int64)
    # Only if seen in the previous reading: time used since an older one is not of this step.
    same = (rows.task[1:] == rows.task[:-1]) & (rows.mono[:-1] == since[1:])
    before[1:][same] = rows.used[:-1][same]
    if last is not None:
        place = np.minimum(np.searchsorted(last.task, rows.task), len(last.task) - 1)
        carried = (at == 0) & (last.task[place] == rows.task)
        before[carried] = last.used[place[carried]]
    used = np.where(before >= 0, rows.used - before, 0)
    born = (before < 0) & (rows.start + _LATE_MS >= 1000 * since)
    used[born] = rows.used[born]
    known = when.known[at] & (used > 0)
    percent = used[known] / 10 / when.spent[at[known]]
    return TaskUse(when, rows.some(known), at[known], percent)
