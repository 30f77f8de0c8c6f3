"""How often rows repeat in a table: what no recorder writes, and costs its readers much.

A recorder writes a reading's rows once, and lists how many they are. A file of some kilobytes can
hold millions of equal rows, each of which is valid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.errors import StoreError
from sexton.sandbox import largest_read
from sexton.store.arrays import Array, coded, numbers, text_bytes
from sexton.store.encoding import MONO
from sexton.store.runs import changes, key_codes

#: Rows of one thing in one reading. It is one, but drivers name counters twice, and file systems
#: can be mounted on top of each other.
_MOST_ALIKE = 256

#: Times of readings, and how many rows they have.
Counted = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]
NO_ROWS: Counted = (np.zeros(0), np.zeros(0, np.int64))


def listed_rows(readings: pa.Table) -> dict[str, Counted]:
    """For each table the rows of its readings, from the list of all readings."""
    which, names = coded(readings.column("table"))
    mono, rows = (numbers(readings.column(name)) for name in (MONO, "rows"))
    return {
        name: _summed(mono[which == place], rows[which == place])
        for place, name in enumerate(names)
    }


def _summed(mono: Array, rows: Array) -> Counted:
    times, places = np.unique(mono, return_inverse=True)
    total = np.zeros(len(times), np.int64)
    np.add.at(total, places, rows.astype(np.int64))
    return times.astype(np.float64), total


class Repeats:
    """Counts the rows of one table, piece by piece; raises `StoreError` if no recorder wrote them.

    `keys` are the columns that identify a thing; `listed` is the table's entry of `listed_rows`,
    `None` if the readings are unknown.
    """

    def __init__(self, keys: Sequence[str], listed: Counted | None) -> None:
        self._keys = keys
        self._listed = listed
        self._times: list[Counted] = []
        self._text_bytes = 0

    def add(self, content: pa.Table) -> None:
        self._text_bytes += sum(map(text_bytes, content.columns))
        if self._text_bytes > largest_read():
            raise StoreError(f"{self._text_bytes >> 20:,} MB of text, too large")
        if MONO not in content.column_names or not content.num_rows:
            return
        mono = numbers(content.column(MONO))
        times, rows = np.unique(mono, return_counts=True)
        self._times.append((times, rows))
        there = [name for name in self._keys if name in content.column_names]
        if there and rows.max() > _MOST_ALIKE:
            _check_things([key_codes(content.column(name)) for name in there], mono)

    def finish(self) -> None:
        """Compare with the list of readings."""
        if self._listed is None or not self._times:
            return
        every = (np.concatenate(part) for part in zip(*self._times, strict=True))
        times, rows = _summed(*every)
        known, most = self._listed
        places = np.searchsorted(known, times).clip(max=max(len(known) - 1, 0))
        if not len(known) or (known[places] != times).any() or (rows > most[places]).any():
            raise StoreError("has rows that its list of readings has not")


def _check_things(keys: list[Array], mono: Array) -> None:
    """`StoreError` if one thing has too many rows at one time."""
    if np.diff(changes([*keys, mono], len(mono)), append=len(mono)).max() <= _MOST_ALIKE:
        order = np.lexsort([mono, *keys])
        keys, mono = [key[order] for key in keys], mono[order]
    if np.diff(changes([*keys, mono], len(mono)), append=len(mono)).max() > _MOST_ALIKE:
        raise StoreError("has more rows of one thing at one time than a reading has")
