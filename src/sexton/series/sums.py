"""Amounts by key and reading, where a key that is not listed counts as zero.

For tables that list only what exists: tasks that ran, cgroups that died, functions that were
sampled. A key missing from a reading is zero; a missing reading is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.aligned import F64
from sexton.series.rates import Floats, longest_step

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def known_sum(values: Floats) -> Floats:
    """The sum over things of what is known; NaN where nothing is."""
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
    """Of one segment; `before` is the last moment of the one before it."""
    first = -np.inf if before is None else before
    spent = np.diff(np.concatenate([[first], moments]))
    return Readings(moments, spent, (spent > 0) & (spent <= longest_step(moments)))


class Sums:
    """Amounts, put together over segments. Keys are numbers: who adds knows what they mean."""

    def __init__(self) -> None:
        self._readings: list[Readings] = []
        self._parts: list[tuple[Ints, Ints, F64]] = []
        self._number = 0

    def add(self, when: Readings, keys: Ints, at: Ints, amount: F64) -> None:
        """Amounts of keys at readings, by their place in `when`; equal ones are added up."""
        width = len(when.mono)
        some = amount > 0
        cells, place = np.unique(keys[some] * width + at[some], return_inverse=True)
        sums: F64 = np.bincount(place, amount[some], minlength=len(cells)).astype(np.float64)
        self._parts.append((cells // width, cells % width + self._number, sums))
        self._readings.append(when)
        self._number += width

    def largest(self, most: int, by_peak: bool = False) -> Iterator[tuple[int, F64, F64]]:
        """Key, readings and values of those that came to most, in all or at their highest."""
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
