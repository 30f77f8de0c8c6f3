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


class Rows(NamedTuple):
    """Rows of a table and its runs. `moments` are their times, each with the number of consecutive
    runs that were read then; if `None`, the table has a column of them."""

    table: pa.Table
    runs: Runs
    moments: Sequence[tuple[F64, int]] | None = None


class Matrix:
    """Some rows of one table by thing and reading: `values` has a row for each of `things` and a
    column for each moment of `mono`. Moments at which none of the wanted things was there count."""

    def __init__(self, found: Rows, wanted: Wanted | None = None) -> None:
        self._found, runs, moments = found
        distinct = dict.fromkeys(key for key in runs.things if wanted is None or wanted(key))
        rows = {key: row for row, key in enumerate(in_order(distinct))}
        self.things = list(rows)
        thing = np.array([rows.get(key, -1) for key in runs.things], np.int64)
        if moments is None:
            mono: F64 = numbers(self._found.column(MONO))
            blocks = _blocks(mono, runs)
        else:
            blocks = _even_blocks(runs, moments)
        self._blocks: list[tuple[_Block, Ints]] | None = None
        if blocks is None or any(_twice(thing[block.runs]) for block in blocks):
            self._thing = np.repeat(thing, runs.lengths)
            if moments is not None:
                mono = np.concatenate([np.tile(times, number) for times, number in moments])
            self.mono, self._at = np.unique(mono, return_inverse=True)
        elif blocks:
            self._blocks = [(block, thing[block.runs]) for block in blocks]
            self.mono = np.concatenate([block.mono for block in blocks])
        else:
            self._blocks = []
            self.mono = np.empty(0)

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
        number = len(self.mono) if kept is None else len(kept)
        made = np.empty((len(self.things), number))
        first = done = 0
        for block, row in self._blocks or ():
            last = first + len(block.mono)
            some = None
            if kept is not None:
                some = kept[slice(*np.searchsorted(kept, (first, last)))] - first
            first = last
            place = made[:, done : done + (len(block.mono) if some is None else len(some))]
            done += place.shape[1]
            if not place.shape[1]:
                continue
            part = block.of(column, some)
            if there is not None:
                part = np.where(block.of(there, some), part, np.nan)
            if np.array_equal(row, np.arange(len(place))):
                place[:] = part
            else:
                mine = np.flatnonzero(row >= 0)
                place[:] = np.nan
                place[row[mine]] = part[mine]
        return made

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


def _blocks(mono: F64, runs: Runs) -> list[_Block] | None:
    """The table as blocks in time order; `None` if things come and go."""
    first, length = mono[runs.starts], runs.lengths
    found: list[_Block] = []
    for moment in np.unique(first).tolist():
        some = np.flatnonzero(first == moment)
        start, number = runs.starts[some], int(length[some[0]])
        if len(found) == _MOST_BLOCKS or (length[some] != number).any():
            return None
        block = _block(mono[start[0] : start[0] + number].copy(), runs, some)
        if (block.of(mono) != block.mono).any():
            return None
        found.append(block)
    return found if _in_time_order(found) else None


def _even_blocks(runs: Runs, moments: Sequence[tuple[F64, int]]) -> list[_Block] | None:
    """The same where the times of each run are known."""
    together: dict[bytes, tuple[F64, list[int]]] = {}
    first = 0
    for mono, number in moments:
        _, some = together.setdefault(mono.tobytes(), (mono, []))
        some += range(first, first + number)
        first += number
    blocks = [_block(mono, runs, np.array(some)) for mono, some in together.values()]
    blocks.sort(key=lambda block: float(block.mono[0]))
    return blocks if len(blocks) <= _MOST_BLOCKS and _in_time_order(blocks) else None


def _block(mono: F64, runs: Runs, some: Ints) -> _Block:
    start = runs.starts[some]
    together = np.array_equal(start, start[0] + len(mono) * np.arange(len(start)))
    return _Block(mono, some, start, together)


def _in_time_order(blocks: Sequence[_Block]) -> bool:
    """Whether every moment is later than the one before."""
    every = np.concatenate([np.empty(0), *(block.mono for block in blocks)])
    return bool((every[1:] > every[:-1]).all())


def _twice(thing: Ints) -> bool:
    """Whether a wanted thing occurs twice."""
    wanted = thing[thing >= 0]
    return len(np.unique(wanted)) < len(wanted)
