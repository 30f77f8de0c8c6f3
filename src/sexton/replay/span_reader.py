"""The segments of a span, and single readings taken from them.

Every reading has a number within its table, so that it is known of any two whether others lie
between them: left out by us, lost with a damaged file, or never made. That is what `Batch.follows`
is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from sexton.model.row import Row, fields_of, table
from sexton.model.window import Batch
from sexton.replay.reader_pool import Crew
from sexton.replay.span import GAP_S, Span
from sexton.store.arrays import Array, coded, codes, numbers, values, whole
from sexton.store.recording import Recording, Segment
from sexton.store.schema import MONO, POSITION, WALL, fields_in, rows_of, texts_of

A = TypeVar("A")
T = TypeVar("T")


class Moments(NamedTuple):
    """The readings of one table in one segment, by time; `rows` is how many each had."""

    mono: Array
    wall: Array
    rows: Array


class Pick(NamedTuple):
    """What is wanted of one table: whole readings, and single things of further ones.

    `things` maps a reading's time to the values of the table's first entity field. Readings in
    `linked` follow the one before them whatever was left out: nothing happened between them.
    """

    whole: Collection[float]
    things: Mapping[float, Collection[Hashable]] = {}
    linked: Collection[float] = ()


class Sheet(NamedTuple):
    """Readings of one table in one segment, and the columns of their rows, which are not made yet:
    columns go from one process to another ten times as fast.

    A reading is its place among the table's readings in the segment, its two times, and where its
    rows begin and end.
    """

    readings: list[tuple[int, float, float, int, int]]
    columns: list[list[Any]]

    def batches(self, kind: type[Row]) -> Iterator[tuple[int, Batch[Any]]]:
        """Each with its reading's place."""
        rows = rows_of(kind, self.columns)
        for place, mono, wall, start, end in self.readings:
            yield place, Batch(mono, wall, tuple(rows[start:end]))


@dataclass(slots=True)
class Book:
    """One segment on the shelf; `joined` where nothing is missing between it and the one before."""

    segment: Segment
    joined: bool
    _moments: dict[str, Moments] | None = field(default=None)

    def __reduce__(self) -> tuple[type[Book], tuple[Segment, bool]]:
        return Book, (self.segment, self.joined)  # whoever gets it reads what is needed of it

    def moments(self, kind: type[Row]) -> Moments:
        """When this table was read."""
        if self._moments is None:
            self._moments = _moments(self.segment)
        return self._moments.get(table(kind), _NONE)

    def clock(self, start: float, end: float) -> list[tuple[float, float]]:
        """Both clocks at every reading of any table between two moments."""
        self.moments(Row)
        found: set[tuple[float, float]] = set()
        for each in (self._moments or {}).values():
            inside = (each.mono >= start) & (each.mono <= end)
            found.update(zip(each.mono[inside].tolist(), each.wall[inside].tolist(), strict=True))
        return sorted(found)

    def numbers(self, kind: type[Row]) -> int:
        """How many readings of it there are, without opening a file."""
        return int(self.segment.manifest["tables"].get(table(kind), {}).get("batches", 0))


_NONE = Moments(np.empty(0), np.empty(0), np.empty(0, np.int64))


class Shelf:
    """A span's segments in order; `crew` are those who read them, we alone if `None`."""

    def __init__(self, recording: Recording, span: Span, crew: Crew | None = None) -> None:
        self.span = span
        self._crew = crew or Crew(recording, 1)
        self._having: dict[type[Row], list[Book]] = {}
        self.books: list[Book] = []
        before: Segment | None = None
        for segment in recording.segments:
            if segment.boot_id == span.boot_id:
                joined = before is not None and _follows(before, segment)
                if span.touches(segment):
                    self.books.append(Book(segment, joined))
                before = segment

    def having(self, kind: type[Row]) -> list[Book]:
        """Those in which the table was read, inside the span."""
        if kind not in self._having:
            self._having[kind] = [book for book in self.books if self.reads(kind, book)]
        return self._having[kind]

    def reads(self, kind: type[Row], book: Book) -> bool:
        """Does a reading of it lie in the span? Files are opened only where the span ends."""
        start, end = book.segment.start[0], book.segment.end[0]
        if not book.numbers(kind):
            return False
        if self.span.start[0] <= start and end <= self.span.end[0]:
            return True
        return len(self.inside(kind, book)) > 0

    def each(
        self, do: Callable[[A], T], items: Sequence[A], weights: Sequence[float] | None = None
    ) -> Iterator[T]:
        """The same for every segment, or whatever there is one of for each, in their order. What
        `do` may be is said in `Crew.each`."""
        return self._crew.each(do, items, weights)

    def first_numbers(self, kind: type[Row]) -> list[int]:
        """Per segment, the number of its first reading; a missing stretch counts as one."""
        found, number = [], 0
        for book in self.books:
            number += not book.joined
            found.append(number)
            number += book.numbers(kind)
        return found

    def inside(self, kind: type[Row], book: Book) -> Array:
        """Times of its readings that lie in the span."""
        mono = book.moments(kind).mono
        return mono[(mono >= self.span.start[0]) & (mono <= self.span.end[0])]


def _follows(before: Segment, segment: Segment) -> bool:
    near = segment.start[0] - before.end[0] <= GAP_S
    return near and segment.sequence == before.last_sequence + 1


def _moments(segment: Segment) -> dict[str, Moments]:
    listed = segment.readings(coded=("table",))
    if listed is None or not listed.num_rows:
        return {}
    code, names = coded(listed.column("table"))
    mono, wall, rows = (numbers(listed.column(name)) for name in (MONO, WALL, "rows"))
    order = np.lexsort((mono, code))
    # Readings of one moment are one, the last, as for whoever reads the table itself.
    other = (np.diff(code[order]) != 0) | (np.diff(mono[order]) != 0)
    order = order[np.append(other, True)]
    starts = np.searchsorted(code[order], np.arange(len(names) + 1)).tolist()
    mono, wall, rows = mono[order], wall[order], rows[order]
    return {
        name: Moments(*(column[start:end] for column in (mono, wall, rows)))
        for name, start, end in zip(names, starts, starts[1:], strict=False)
    }


def take(
    shelf: Shelf, wanted: Mapping[type[Row], Mapping[int, Pick]]
) -> dict[type[Row], list[Batch[Any]]]:
    """The picked readings of each table, by the segment's place on the shelf."""
    places = sorted({place for picks in wanted.values() for place in picks})
    items = []
    for place in places:
        mine = {kind: picks[place] for kind, picks in wanted.items() if place in picks}
        # What follows what is settled here, and who reads need not know it.
        items.append(
            (shelf.books[place], {k: pick._replace(linked=()) for k, pick in mine.items()})
        )
    first = {kind: shelf.first_numbers(kind) for kind in wanted}
    found: dict[type[Row], list[Batch[Any]]] = {kind: [] for kind in wanted}
    before: dict[type[Row], int] = {}
    weights = [sum(map(book.segment.rows, mine)) for book, mine in items]
    for place, sheets in zip(places, shelf.each(_sheets, items, weights), strict=True):
        for kind, sheet in sheets.items():
            linked = wanted[kind][place].linked
            for index, batch in sheet.batches(kind):
                number = first[kind][place] + index
                follows = number == before.get(kind, number - 1) + 1 or batch.mono_s in linked
                found[kind].append(batch if follows else replace(batch, follows=False))
                before[kind] = number
    return found


def _sheets(item: tuple[Book, Mapping[type[Row], Pick]]) -> dict[type[Row], Sheet]:
    book, picks = item
    return {kind: _sheet(book, kind, pick) for kind, pick in picks.items()}


def _sheet(book: Book, kind: type[Row], pick: Pick) -> Sheet:
    moments = book.moments(kind)
    wanted = np.union1d(np.fromiter(pick.whole, float), np.fromiter(pick.things, float))
    index = np.flatnonzero(np.isin(moments.mono, wanted))
    places: dict[float, tuple[int, int]] = {}
    columns: list[list[Any]] = []
    if moments.rows[index].any():
        names = (MONO, POSITION, *fields_of(kind))
        found = book.segment.table(kind, names, coded=texts_of(kind))
        if found is not None:
            places, columns = grouped(kind, found, pick)
    readings = []
    for at in index.tolist():
        mono = float(moments.mono[at])
        if mono in places or not moments.rows[at]:
            readings.append((at, mono, float(moments.wall[at]), *places.get(mono, (0, 0))))
    return Sheet(readings, columns)


def _chosen(kind: type[Row], found: pa.Table, pick: Pick) -> Array:
    """Which rows may be among those picked."""
    mono = numbers(found.column(MONO))
    mask: Array = np.isin(mono, np.fromiter(pick.whole, float))
    if pick.things:
        some = np.isin(mono, np.fromiter(pick.things, float))
        mask |= some & _is_any(found, key_of(kind), set().union(*pick.things.values()))
    return np.flatnonzero(mask)


def _is_any(found: pa.Table, name: str, keys: Collection[Hashable]) -> Array:
    column = whole(found.column(name))
    if not (pa.types.is_dictionary(column.type) or pa.types.is_string(column.type)):
        return np.isin(numbers(column), np.array(list(keys)))
    code, words = coded(column)
    # One more for those that have no name.
    wanted: Array = np.array([*(word in keys for word in words), None in keys], np.bool_)
    return wanted[code]


def key_of(kind: type[Row]) -> str:
    """The column by which single things of a table are picked."""
    return kind.entity[0] if kind.entity else "cpu"


def grouped(
    kind: type[Row], found: pa.Table, pick: Pick | None = None
) -> tuple[dict[float, tuple[int, int]], list[list[Any]]]:
    """By the time of each reading where its rows begin and end in the columns, which follow; each
    reading in its own order; all where none is picked.

    Values are made of those rows only that are wanted: a table may hold a thousand times as many.
    """
    chosen = np.arange(found.num_rows) if pick is None else _chosen(kind, found, pick)
    if not len(chosen):
        return {}, []
    mono, position = (numbers(found.column(name))[chosen] for name in (MONO, POSITION))
    order = np.lexsort((position, mono))
    chosen, mono = chosen[order], mono[order]
    times = np.unique(mono)
    if pick is not None and pick.things:
        entire = frozenset(pick.whole)
        pairs = zip(mono.tolist(), values(found.column(key_of(kind)), chosen), strict=True)
        kept = [time in entire or key in pick.things[time] for time, key in pairs]
        chosen, mono = chosen[kept], mono[kept]
    starts, ends = (np.searchsorted(mono, times, side).tolist() for side in ("left", "right"))
    places = dict(zip(times.tolist(), zip(starts, ends, strict=True), strict=True))
    return places, fields_in(kind, found, chosen)


def events(shelf: Shelf, kind: type[Row], most: int) -> tuple[list[Batch[Any]], bool]:
    """Readings that brought something, and the edges; whether older ones were left out.

    Not more than about `most` rows, the newest: whole segments, so that nothing is missing between
    the first and the last.
    """
    books = shelf.having(kind)
    kept: list[Book] = []
    for book in reversed(books):
        most -= book.segment.rows(kind)
        if kept and most < 0:
            break
        kept.append(book)
    kept.reverse()
    found: dict[float, Batch[Any]] = {}
    for order, which in ((kept, 0), (kept[::-1], -1)):
        for book in order:  # the first of them, unless its list is damaged
            inside = shelf.inside(kind, book)
            if len(inside):
                moments = book.moments(kind)
                at = int(np.searchsorted(moments.mono, inside[which]))
                mono, wall = float(moments.mono[at]), float(moments.wall[at])
                found[mono] = Batch(mono, wall, ())
                break
    full = [book for book in kept if book.segment.rows(kind)]
    for sheet in shelf.each(partial(_eventful, shelf.span, kind), full):
        found |= {batch.mono_s: batch for _, batch in sheet.batches(kind)}
    return [found[mono] for mono in sorted(found)], len(kept) < len(books)


def _eventful(span: Span, kind: type[Row], book: Book) -> Sheet:
    found = book.segment.table(kind, coded=texts_of(kind))
    if found is None:
        return Sheet([], [])
    mono, wall = (numbers(found.column(name)).tolist() for name in (MONO, WALL))
    walls = dict(zip(mono, wall, strict=True))
    places, columns = grouped(kind, found)
    mine = [at for at in places if span.holds(at)]
    return Sheet([(0, at, walls[at], *places[at]) for at in mine], columns)


def columns(book: Book, kind: type[Row], names: Sequence[str]) -> dict[str, Array] | None:
    """Some columns as arrays, with `MONO` first; an absent value is -1."""
    found = book.segment.table(kind, (MONO, *names)) if book.segment.rows(kind) else None
    if found is None or any(name not in found.column_names for name in (MONO, *names)):
        return None
    return {name: array_of(found.column(name)) for name in (MONO, *names)}


def array_of(column: pa.ChunkedArray) -> Array:
    """One column; text becomes codes that tell one from another within this table."""
    array = whole(column)
    if pa.types.is_string(array.type) or pa.types.is_dictionary(array.type):
        return codes(array)
    return numbers(array, False if pa.types.is_boolean(array.type) else -1)
