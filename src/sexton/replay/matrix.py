"""A stored table by thing and reading: Arrow's columns as numpy matrices.

In a sealed segment the rows of each thing stand together in the order of time. Where the same
things were there at every reading, a column is a matrix as it lies; otherwise each value is put in
its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.errors import StoreError
from sexton.model.window import Key, Wanted, in_order
from sexton.sandbox import largest_read
from sexton.store.arrays import codes, floats, numbers, values, whole
from sexton.store.schema import MONO

F64 = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Matrix(NamedTuple):
    """Some columns of one table: a row per thing, a column per reading that had rows."""

    mono: F64
    things: list[Key]
    values: dict[str, F64]


def matrix(
    found: pa.Table, keys: Sequence[str], names: Sequence[str], wanted: Wanted | None = None
) -> Matrix:
    """A table by thing and reading."""
    mono = numbers(found.column(MONO))
    starts, things = runs_of(found, keys)
    rows = [at for at, key in enumerate(things) if wanted is None or wanted(key)]
    number = len(mono) // max(len(things), 1)
    if _is_regular(mono, starts, number) and len({*things}) == len(things):
        moments = mono[:number].copy()
        made = {name: _regular(found, name, rows, number) for name in names}
        return Matrix(moments, [things[row] for row in rows], made)
    moments, at = np.unique(mono, return_inverse=True)
    distinct = in_order(dict.fromkeys(things[row] for row in rows))
    index = {key: row for row, key in enumerate(distinct)}
    if 8 * len(index) * len(moments) * max(len(names), 1) > largest_read():
        raise StoreError(f"{len(index):,} things at {len(moments):,} moments, too large")
    length = np.diff(np.append(starts, len(mono)))
    thing = np.repeat(np.array([index.get(key, -1) for key in things], np.int64), length)
    kept = np.flatnonzero(thing >= 0)
    made = {}
    for name in names:
        made[name] = np.full((len(index), len(moments)), np.nan)
        if name in found.column_names:
            made[name][thing[kept], at[kept]] = floats(found.column(name))[kept]
    return Matrix(moments, list(index), made)


def _is_regular(mono: F64, starts: Ints, number: int) -> bool:
    """The same things at every reading, each thing's readings together: as segments are sealed."""
    if not number or len(mono) != number * len(starts):
        return False
    if (starts != np.arange(0, len(mono), number)).any():
        return False
    first = mono[:number]
    return bool((first[1:] > first[:-1]).all() and (mono.reshape(-1, number) == first).all())


def _regular(found: pa.Table, name: str, rows: Sequence[int], number: int) -> F64:
    if name not in found.column_names:
        return np.full((len(rows), number), np.nan)
    column = whole(found.column(name))
    if len(rows) * number == len(column):
        return floats(column).reshape(-1, number)
    made = np.empty((len(rows), number))
    for at, row in enumerate(rows):
        made[at] = floats(column.slice(row * number, number))
    return made


def runs_of(found: pa.Table, keys: Sequence[str]) -> tuple[Ints, list[Key]]:
    """Where neighbouring rows are about another thing, and which."""
    change = np.zeros(found.num_rows, np.bool_)
    change[:1] = True
    there = {*found.column_names}
    for name in keys:
        if name in there:
            code = _codes(found.column(name))
            change[1:] |= code[1:] != code[:-1]
    starts = np.flatnonzero(change)
    if not keys:
        return starts, [()] * len(starts)
    columns = (
        values(found.column(name), starts) if name in there else [None] * len(starts)
        for name in keys
    )
    return starts, list(zip(*columns, strict=True))


def _codes(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Numbers that tell one value from another."""
    array = whole(column)
    if pa.types.is_string(array.type) or pa.types.is_dictionary(array.type):
        return codes(array)
    return numbers(array)
