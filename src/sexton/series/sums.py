"""Amounts by key and reading, where a key that is not listed counts as zero.

For tables that list only what exists: tasks that ran, cgroups that died, functions that were
sampled. A key missing from a reading is zero; a missing reading is unknown, and so is a key of
which nothing but an unknown amount is listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sexton.model.window import longest_step
from sexton.series.rates import F64, Bools, Floats, Ints


def known_sum(values: Floats) -> Floats:
    """The sum of the known values over all things; NaN if none is known."""
    known = ~np.isnan(values)
    found: Floats = np.where(known.any(axis=0), np.where(known, values, 0).sum(axis=0), np.nan)
    return found


class Readings(NamedTuple):
    """Times at which a table was read, the reading before each, and whether the step between them
    is known (the table was read without a gap)."""

    since: F64
    mono: F64
    known: Bools

    @property
    def spent(self) -> F64:
        """The length of each step."""
        return self.mono - self.since


def readings(moments: F64, before: float | None) -> Readings:
    """The readings of one segment; `before` is the last moment of the previous one."""
    since = np.append(-np.inf if before is None else before, moments[:-1])
    spent = moments - since
    return Readings(since, moments, (spent > 0) & (spent <= longest_step(moments)))


class Sums:
    """Adds up amounts over segments. Keys are numbers; their meaning is the caller's."""

    def __init__(self) -> None:
        self._readings: list[Readings] = []
        self._parts: list[tuple[Ints, Ints, F64]] = []
        self._number = 0

    def add(self, when: Readings, keys: Ints, at: Ints, amount: F64) -> None:
        """Add amounts of keys at readings (`at` is an index into `when`); duplicates are summed."""
        width = len(when.mono)
        some = ~(amount <= 0)  # NaN is unknown
        cells, place = np.unique(keys[some] * width + at[some], return_inverse=True)
        listed = amount[some]
        known = ~np.isnan(listed)
        sums: F64 = np.bincount(place[known], listed[known], len(cells)).astype(np.float64)
        sums[np.bincount(place[known], minlength=len(cells)) == 0] = np.nan
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
        (np.maximum if by_peak else np.add).at(weight, row, np.nan_to_num(sums))
        order = np.argsort(row, kind="stable")
        starts = np.searchsorted(row[order], np.arange(len(keys) + 1))
        for at in np.argsort(-weight, kind="stable")[: min(most, (weight > 0).sum())].tolist():
            mine = order[starts[at] : starts[at + 1]]
            value = np.zeros(len(mono))
            value[place[mine]] = sums[mine]
            value[unknown] = np.nan
            yield int(keys[at]), mono, value
