"""Counters of many things over many segments, as rates: resets and gaps are unknown, never zero.

Each segment is read by columns, and of the one before only its last reading is carried over. What
stays is a rate per thing and reading, in half the digits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.model.aligned import F64
from sexton.model.row import Row
from sexton.record.shelf import Book
from sexton.record.span import GAP_S, Span
from sexton.store.schema import MONO, schema_of, unescape

F32 = npt.NDArray[np.float32]
Key = tuple[Hashable, ...]
#: A step so many times as long as the usual one is a gap.
_GAP_STEPS = 2.5
#: A node may have more of anything than anyone wants to see compared.
MOST_THINGS = 8_000


class Block(NamedTuple):
    """One table of one segment: raw values per column, (things, readings) each."""

    mono: F64
    things: list[Key]
    values: dict[str, F64]


class Matrix(NamedTuple):
    """Something over all readings, a row per thing; NaN where it is not known."""

    mono: F64
    things: list[Key]
    values: F32


def read_block(
    book: Book, span: Span, kind: type[Row], keys: Sequence[str], fields: Sequence[str]
) -> Block | None:
    """Some columns of a table by thing and reading; `None` where there is nothing in the span."""
    if not book.segment.rows(kind):
        return None
    schema = schema_of(kind)
    coded = [name for name in keys if pa.types.is_string(schema.field(name).type)]
    found = book.segment.table(kind, (MONO, *keys, *fields), coded)
    if found is None or not {MONO, *keys} <= {*found.column_names} or not found.num_rows:
        return None
    mono = found.column(MONO).to_numpy()
    there = [field for field in fields if field in found.column_names]
    block = _regular(found, mono, keys, there) or _irregular(found, mono, keys, there)
    inside = (block.mono >= span.start[0]) & (block.mono <= span.end[0])
    if inside.all():
        return block
    values = {name: each[:, inside] for name, each in block.values.items()}
    return Block(block.mono[inside], block.things, values) if inside.any() else None


def _regular(
    found: pa.Table, mono: F64, keys: Sequence[str], fields: Sequence[str]
) -> Block | None:
    """The same things at every reading, each thing's readings together: as segments are sealed."""
    back = np.flatnonzero(mono[1:] <= mono[:-1])
    number = int(back[0]) + 1 if len(back) else len(mono)
    if len(mono) % number or not (mono.reshape(-1, number) == mono[:number]).all():
        return None
    first = np.arange(0, len(mono), number)
    for name in keys:
        codes = _codes(found.column(name))
        # Two things, of which one came when the other went, may look like one.
        if (codes[first] != codes[first + number - 1]).any():
            return None
    things = _keys([found.column(name).take(pa.array(first)) for name in keys], len(first))
    if len({*things}) < len(first):
        return None
    values = {name: _floats(found.column(name)).reshape(-1, number) for name in fields}
    return Block(mono[:number].copy(), things, values)


def _irregular(found: pa.Table, mono: F64, keys: Sequence[str], fields: Sequence[str]) -> Block:
    moments, at = np.unique(mono, return_inverse=True)
    code = np.zeros(len(mono), np.int64)
    for name in keys:
        _, mine = np.unique(_codes(found.column(name)), return_inverse=True)
        _, code = np.unique(code * (int(mine.max(initial=0)) + 1) + mine, return_inverse=True)
    _, first, thing = np.unique(code, return_index=True, return_inverse=True)
    columns = [found.column(name).take(pa.array(first)) for name in keys]
    values = {}
    for name in fields:
        made = np.full((len(first), len(moments)), np.nan)
        made[thing, at] = _floats(found.column(name))
        values[name] = made
    return Block(moments, _keys(columns, len(first)), values)


def _codes(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Numbers that tell one value from another."""
    whole = _whole(column)
    if pa.types.is_string(whole.type):
        whole = whole.dictionary_encode()
    if pa.types.is_dictionary(whole.type):
        whole = whole.indices
    return np.asarray(whole.fill_null(-1).to_numpy(zero_copy_only=False))


def _keys(columns: Sequence[pa.ChunkedArray], number: int) -> list[Key]:
    if not columns:
        return [()] * number
    return list(zip(*(texts(column) for column in columns), strict=True))


def texts(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Values as Python has them, names as they were before they were stored."""
    whole = _whole(column) if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(whole.type):  # each name once: turned one by one they take long
        named = [*texts(whole.dictionary), None]
        return [named[at] for at in whole.indices.fill_null(-1).to_pylist()]
    found: list[Any] = whole.to_pylist()
    return [
        unescape(each) if isinstance(each, str) and each[:1] == "\0" else each for each in found
    ]


def _whole(column: pa.ChunkedArray) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    column = column.unify_dictionaries()
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _floats(column: pa.ChunkedArray) -> F64:
    whole = _whole(column)
    if whole.null_count:
        return np.asarray(whole.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return np.asarray(whole.to_numpy(zero_copy_only=False)).astype(np.float64)


class Series:
    """Blocks put together: what was counted of things over all segments that are looked at.

    `how` is "rate" (a counter: what falls was reset), "change" or "level".
    """

    def __init__(self, how: str) -> None:
        self._how = how
        self._places: dict[Key, int] = {}
        self._known: tuple[list[Key], npt.NDArray[np.intp]] = ([], np.empty(0, np.intp))
        self._parts: list[tuple[F64, npt.NDArray[np.intp], F32]] = []
        self._last: F64 = np.empty(0)
        self._last_mono = -np.inf

    def add(self, mono: F64, things: list[Key], raw: F64) -> None:
        """The next readings, in the order of time; `raw` is (things, readings)."""
        index = self._index(things)
        kept = index >= 0
        if not kept.all():
            index, raw = index[kept], raw[kept]
        before = np.full(len(self._places), np.nan)
        before[: len(self._last)] = self._last
        values = raw if self._how == "level" else self._steps(mono, before[index], raw)
        self._parts.append((mono, index, values.astype(np.float32)))
        self._last = np.full(len(self._places), np.nan)
        self._last[index] = raw[:, -1]
        self._last_mono = float(mono[-1])

    def _index(self, things: list[Key]) -> npt.NDArray[np.intp]:
        if things != self._known[0]:  # mostly they are the same as in the segment before
            made = np.fromiter((self._place(key) for key in things), np.intp, len(things))
            self._known = (things, made)
        return self._known[1]

    def _place(self, key: Key) -> int:
        if key not in self._places and len(self._places) >= MOST_THINGS:
            return -1
        return self._places.setdefault(key, len(self._places))

    def _steps(self, mono: F64, before: F64, raw: F64) -> F64:
        moved = np.empty(raw.shape)
        np.subtract(raw[:, 1:], raw[:, :-1], out=moved[:, 1:])
        np.subtract(raw[:, 0], before, out=moved[:, 0])
        spent = np.diff(mono, prepend=self._last_mono)
        moved[:, (spent > longest_step(mono)) | (spent <= 0)] = np.nan
        if self._how == "rate":
            moved[moved < 0] = np.nan  # it was reset: nobody knows from where
        moved /= spent
        return moved

    def matrix(self) -> Matrix | None:
        """All of it; things that never moved are left out, `None` where none did."""
        if not self._parts:
            return None
        mono = np.concatenate([part[0] for part in self._parts])
        made = np.full((len(self._places), len(mono)), np.nan, np.float32)
        start = 0
        for times, index, values in self._parts:
            made[index, start : start + len(times)] = values
            start += len(times)
        self._parts = []
        low = np.fmin.reduce(made, axis=1)
        moving = np.flatnonzero(np.fmax.reduce(made, axis=1) > low)
        things = list(self._places)
        if not len(moving):
            return None
        return Matrix(mono, [things[at] for at in moving.tolist()], made[moving])


def longest_step(mono: F64) -> float:
    """Longer between two readings is a gap."""
    usual = float(np.median(np.diff(mono))) if len(mono) > 1 else 0.0
    return max(GAP_S, _GAP_STEPS * usual)


def blocks(
    books: Sequence[Book], span: Span, kind: type[Row], columns: tuple[Sequence[str], Sequence[str]]
) -> Iterator[Block]:
    """Every book's block of a table; `columns` are those that name a thing and those that count."""
    for book in books:
        block = read_block(book, span, kind, *columns)
        if block is not None:
            yield block
