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
from sexton.model.window import Key, Wanted, in_order
from sexton.sandbox import largest_read
from sexton.store.arrays import floats, numbers
from sexton.store.runs import Runs
from sexton.store.schema import MONO

F64 = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: An hour has a few pieces. More mean that things come and go.
_MOST_BLOCKS = 32


class Matrix(NamedTuple):
    """Some columns of one table: a row per thing, a column per reading that had rows."""

    mono: F64
    things: list[Key]
    values: dict[str, F64]


def matrix(
    found: pa.Table, runs: Runs, names: Sequence[str], wanted: Wanted | None = None
) -> Matrix:
    """A table by thing and reading, including readings without a wanted thing."""
    mono = numbers(found.column(MONO))
    distinct = dict.fromkeys(key for key in runs.things if wanted is None or wanted(key))
    length = runs.lengths
    blocks = _blocks(mono, runs.starts, length)
    rows = {key: row for row, key in enumerate(in_order(distinct))}
    thing = np.array([rows.get(key, -1) for key in runs.things], np.int64)
    if blocks is None or any(_twice(thing[block.runs]) for block in blocks):
        return _one_by_one(found, names, mono, (rows, np.repeat(thing, length)))
    moments = np.concatenate([block.mono for block in blocks]) if blocks else mono
    _bound(len(rows), len(moments), len(names))
    made = {}
    for name in names:
        if name in found.column_names:
            made[name] = _laid(floats(found.column(name)), blocks, (len(rows), thing))
        else:
            made[name] = np.full((len(rows), len(moments)), np.nan)
    return Matrix(moments, list(rows), made)


def _bound(things: int, moments: int, columns: int) -> None:
    """Refuse a crafted file in which every thing was read at moments of its own."""
    if 8 * things * moments * max(columns, 1) > largest_read():
        raise StoreError(f"{things:,} things at {moments:,} moments, too large")


class _Block(NamedTuple):
    """Runs (consecutive rows of one thing) of the same readings: which, where each starts, and
    whether they are adjacent."""

    mono: F64
    runs: Ints
    start: Ints
    together: bool

    def of(self, column: F64) -> F64:
        """A column's values, a row per run."""
        number = len(self.mono)
        if self.together:
            first = int(self.start[0])
            return column[first : first + number * len(self.start)].reshape(-1, number)
        found: F64 = column[self.start[:, None] + np.arange(number)]
        return found


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


def _laid(column: F64, blocks: Sequence[_Block], what: tuple[int, Ints]) -> F64:
    """A column's blocks side by side, each thing in its row; NaN where it was not present."""
    number, thing = what
    every = np.arange(number)
    made: list[F64] = []
    for block in blocks:
        row = thing[block.runs]
        if np.array_equal(row, every):
            made.append(block.of(column))
            continue
        part = np.full((number, len(block.mono)), np.nan)
        wanted = np.flatnonzero(row >= 0)
        kept = block._replace(start=block.start[wanted], together=False)
        part[row[wanted]] = kept.of(column)
        made.append(part)
    if len(made) == 1:
        return made[0]
    return np.concatenate(made, axis=1) if made else np.empty((number, 0))


def _one_by_one(
    found: pa.Table, names: Sequence[str], mono: F64, what: tuple[dict[Key, int], Ints]
) -> Matrix:
    """The same for any order of rows: each value is copied to its place."""
    rows, thing = what
    moments, at = np.unique(mono, return_inverse=True)
    _bound(len(rows), len(moments), len(names))
    kept = np.flatnonzero(thing >= 0)
    made = {}
    for name in names:
        made[name] = np.full((len(rows), len(moments)), np.nan)
        if name in found.column_names:
            made[name][thing[kept], at[kept]] = floats(found.column(name))[kept]
    return Matrix(moments, list(rows), made)
