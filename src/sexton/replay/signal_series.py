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
from sexton.replay.span import GAP_S, Span
from sexton.replay.span_reader import Book
from sexton.store.arrays import codes, floats, numbers, values, whole
from sexton.store.schema import MONO, texts_of

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
    named = [name for name in keys if name in texts_of(kind)]
    found = book.segment.table(kind, (MONO, *keys, *fields), coded=named)
    if found is None or not {MONO, *keys} <= {*found.column_names} or not found.num_rows:
        return None
    mono = numbers(found.column(MONO))
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
        code = _codes(found.column(name))
        # Two things, of which one came when the other went, may look like one.
        if (code[first] != code[first + number - 1]).any():
            return None
    things = _keys(found, keys, first)
    if len({*things}) < len(first):
        return None
    told = {name: floats(found.column(name)).reshape(-1, number) for name in fields}
    return Block(mono[:number].copy(), things, told)


def _irregular(found: pa.Table, mono: F64, keys: Sequence[str], fields: Sequence[str]) -> Block:
    moments, at = np.unique(mono, return_inverse=True)
    code = np.zeros(len(mono), np.int64)
    for name in keys:
        _, mine = np.unique(_codes(found.column(name)), return_inverse=True)
        _, code = np.unique(code * (int(mine.max(initial=0)) + 1) + mine, return_inverse=True)
    _, first, thing = np.unique(code, return_index=True, return_inverse=True)
    told = {}
    for name in fields:
        made = np.full((len(first), len(moments)), np.nan)
        made[thing, at] = floats(found.column(name))
        told[name] = made
    return Block(moments, _keys(found, keys, first), told)


def _codes(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Numbers that tell one value from another."""
    array = whole(column)
    if pa.types.is_string(array.type) or pa.types.is_dictionary(array.type):
        return codes(array)
    return numbers(array)


def _keys(found: pa.Table, names: Sequence[str], rows: npt.NDArray[np.intp]) -> list[Key]:
    """What the things of these rows are called."""
    if not names:
        return [()] * len(rows)
    return list(zip(*(values(found.column(name), rows) for name in names), strict=True))


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
        known = self._known[0]
        if things is not known and things != known:  # mostly they are those of the segment before
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

    def drain(self) -> F32 | None:
        """Rates of the readings that were added last, and let them go; `None` where some of their
        things were too many. For whoever goes through once and keeps something smaller."""
        _, index, value = self._parts.pop()
        self._parts = []
        return value if len(index) == len(self._known[0]) else None

    def matrix(self) -> Matrix | None:
        """All of it; things that never moved are left out, `None` where none did."""
        if not self._parts:
            return None
        mono = np.concatenate([part[0] for part in self._parts])
        made = np.full((len(self._places), len(mono)), np.nan, np.float32)
        start = 0
        for times, index, value in self._parts:
            made[index, start : start + len(times)] = value
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
    if len(mono) < 2:
        return GAP_S
    steps = np.sort(np.diff(mono))  # `np.median` takes ten times as long for so few
    usual = float(steps[(len(steps) - 1) // 2] + steps[len(steps) // 2]) / 2
    return max(GAP_S, _GAP_STEPS * usual)


def blocks(
    books: Sequence[Book], span: Span, kind: type[Row], columns: tuple[Sequence[str], Sequence[str]]
) -> Iterator[Block]:
    """Every book's block of a table; `columns` are those that name a thing and those that count."""
    for book in books:
        block = read_block(book, span, kind, *columns)
        if block is not None:
            yield block
