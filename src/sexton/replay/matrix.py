"""A stored table by thing and reading: Arrow columns as numpy matrices.

In a sealed segment the rows of each thing are together in time order, and a compacted hour has a
few such pieces, one after the other. If the same things were present at every reading of a piece, a
column of it is a matrix already; otherwise each value is copied to its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.errors import StoreError
from sexton.model.window import Wanted, in_order
from sexton.sandbox import largest_read
from sexton.store.arrays import Array, floats, numbers, raw
from sexton.store.runs import Runs
from sexton.store.schema import MONO

F64 = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: An hour has a few pieces. More mean that things come and go.
_MOST_BLOCKS = 32


class Matrix:
    """Some rows of one table by thing and reading: `values` has a row for each of `things` and a
    column for each moment of `mono`. Moments at which none of the wanted things was there count."""

    def __init__(self, found: pa.Table, runs: Runs, wanted: Wanted | None = None) -> None:
        self._found = found
        self.mono: F64 = numbers(found.column(MONO))
        distinct = dict.fromkeys(key for key in runs.things if wanted is None or wanted(key))
        rows = {key: row for row, key in enumerate(in_order(distinct))}
        self.things = list(rows)
        thing = np.array([rows.get(key, -1) for key in runs.things], np.int64)
        blocks = _blocks(self.mono, runs.starts, runs.lengths)
        self._blocks: list[tuple[_Block, Ints]] | None = None
        if blocks is None or any(_twice(thing[block.runs]) for block in blocks):
            self._thing = np.repeat(thing, runs.lengths)
            self.mono, self._at = np.unique(self.mono, return_inverse=True)
        elif blocks:
            self._blocks = [(block, thing[block.runs]) for block in blocks]
            self.mono = np.concatenate([block.mono for block in blocks])
        else:
            self._blocks = []

    def values(self, names: Sequence[str], kept: Ints | None = None) -> dict[str, F64]:
        """These columns, NaN where there is no value; of the `kept` moments only, if given."""
        number = len(self.mono) if kept is None else len(kept)
        # Refuse a crafted file in which every thing was read at moments of its own.
        whole = number if self._blocks is not None else len(self.mono)
        if 8 * len(self.things) * whole * max(len(names), 1) > largest_read():
            raise StoreError(f"{len(self.things):,} things at {whole:,} moments, too large")
        made = {}
        for name in names:
            if name not in self._found.column_names:
                made[name] = np.full((len(self.things), number), np.nan)
            elif self._blocks is None:
                made[name] = self._one_by_one(floats(self._found.column(name)), kept)
            else:
                made[name] = self._laid(*raw(self._found.column(name)), kept)
        return made

    def _laid(self, column: Array, there: Bools | None, kept: Ints | None) -> F64:
        """A column's blocks side by side, each thing in its row."""
        every = np.arange(len(self.things))
        parts = []
        first = 0
        for block, row in self._blocks or ():
            last = first + len(block.mono)
            some = None
            if kept is not None:
                some = kept[slice(*np.searchsorted(kept, (first, last)))] - first
            first = last
            if some is not None and not len(some):
                continue
            part = block.of(column, some).astype(np.float64)
            if there is not None:
                part[~block.of(there, some)] = np.nan
            if not np.array_equal(row, every):
                mine = np.flatnonzero(row >= 0)
                laid = np.full((len(every), part.shape[1]), np.nan)
                laid[row[mine]] = part[mine]
                part = laid
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts, axis=1) if parts else np.empty((len(every), 0))

    def _one_by_one(self, column: F64, kept: Ints | None) -> F64:
        """Each value put in its place: things come and go."""
        made = np.full((len(self.things), len(self.mono)), np.nan)
        mine = np.flatnonzero(self._thing >= 0)
        made[self._thing[mine], self._at[mine]] = column[mine]
        return made if kept is None else made[:, kept]


class _Block(NamedTuple):
    """Runs (consecutive rows of one thing) of the same readings: which, where each starts, and
    whether they are adjacent."""

    mono: F64
    runs: Ints
    start: Ints
    together: bool

    def of(self, column: Array, some: Ints | None = None) -> Array:
        """A column's values, a row per run; at some of its moments, if given."""
        number = len(self.mono)
        if self.together:
            first = int(self.start[0])
            found = column[first : first + number * len(self.start)].reshape(-1, number)
            return found if some is None else found[:, some]
        at = self.start[:, None] + (np.arange(number) if some is None else some)
        apart: Array = column[at]
        return apart


def _blocks(mono: F64, starts: Ints, length: Ints) -> list[_Block] | None:
    """The table as blocks in time order; `None` if things come and go."""
    found: list[_Block] = []
    first = mono[starts]
    moments = np.unique(first)
    if len(moments) > _MOST_BLOCKS:
        return None
    for moment in moments.tolist():
        runs = np.flatnonzero(first == moment)
        start, number = starts[runs], int(length[runs[0]])
        if (length[runs] != number).any():
            return None
        together = np.array_equal(start, start[0] + number * np.arange(len(start)))
        block = _Block(mono[start[0] : start[0] + number].copy(), runs, start, together)
        if found and moment <= found[-1].mono[-1]:
            return None
        later = block.mono[1:] > block.mono[:-1]
        if not later.all() or (block.of(mono) != block.mono).any():
            return None
        found.append(block)
    return found


def _twice(thing: Ints) -> bool:
    """Whether a wanted thing occurs twice."""
    wanted = thing[thing >= 0]
    return len(np.unique(wanted)) < len(wanted)
