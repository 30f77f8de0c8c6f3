"""The segments of a span, and single readings taken from them.

Every reading has a number within its table, so that it is known of any two whether others lie
between them: left out by us, lost with a damaged file, or never made. That is what `Batch.follows`
is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from sexton.model.row import Row, table
from sexton.model.window import Batch
from sexton.record.span import GAP_S, Span
from sexton.store.arrays import Array, coded, codes, numbers, whole
from sexton.store.recording import Recording, Segment
from sexton.store.schema import MONO, POSITION, WALL, decode, texts_of

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


@dataclass(slots=True)
class Book:
    """One segment on the shelf; `joined` where nothing is missing between it and the one before."""

    segment: Segment
    joined: bool
    _moments: dict[str, Moments] | None = field(default=None)

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
    """A span's segments in order."""

    def __init__(
        self,
        recording: Recording,
        span: Span,
        tick: Callable[[int, int], None] | None = None,
    ) -> None:
        self.span = span
        self._tick = tick
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

    def each(self, do: Callable[[Book], T], books: Iterable[Book] | None = None) -> Iterator[T]:
        """The same for every segment, one after the other.

        On threads it takes no less time and a third more of the processor: the files are small, and
        what Arrow does without the interpreter's lock is over before another thread has it.
        """
        some = self.books if books is None else list(books)
        for number, book in enumerate(some):
            if self._tick is not None:
                self._tick(number, len(some))
            yield do(book)

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
    return near and segment.sequence == before.sequence + 1


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


def take(shelf: Shelf, kind: type[Row], picks: Mapping[int, Pick]) -> list[Batch[Any]]:
    """The picked readings of a table, by the segment's place on the shelf."""
    first = shelf.first_numbers(kind)

    found: list[Batch[Any]] = []
    before: int | None = None
    for place in sorted(picks):
        linked = picks[place].linked
        for index, batch in _take(shelf.books[place], kind, picks[place]):
            number = first[place] + index
            follows = before is None or number == before + 1 or batch.mono_s in linked
            found.append(batch if follows else replace(batch, follows=False))
            before = number
    return found


def _take(book: Book, kind: type[Row], pick: Pick) -> list[tuple[int, Batch[Any]]]:
    moments = book.moments(kind)
    wanted = np.union1d(np.fromiter(pick.whole, float), np.fromiter(pick.things, float))
    index = np.flatnonzero(np.isin(moments.mono, wanted))
    if not len(index):
        return []
    rows: dict[float, tuple[Row, ...]] = {}
    if moments.rows[index].any():
        found = book.segment.table(kind, coded=texts_of(kind))
        if found is not None:
            rows = grouped(kind, found, pick)
    made = []
    for at in index.tolist():
        mono, number = float(moments.mono[at]), int(moments.rows[at])
        if mono in rows or not number:
            made.append((at, Batch(mono, float(moments.wall[at]), rows.get(mono, ()))))
    return made


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
) -> dict[float, tuple[Row, ...]]:
    """Rows by the time of their reading, each reading in its own order; all where none is picked.

    Rows are made of those only that are wanted: a table may hold a thousand times as many.
    """
    chosen = np.arange(found.num_rows) if pick is None else _chosen(kind, found, pick)
    if not len(chosen):
        return {}
    mono, position = (numbers(found.column(name))[chosen] for name in (MONO, POSITION))
    order = np.lexsort((position, mono))
    rows = decode(kind, found, chosen[order])
    times, starts = np.unique(mono[order], return_index=True)
    ends = [*starts[1:].tolist(), len(rows)]
    key = key_of(kind)
    things = {} if pick is None else pick.things
    entire = frozenset(pick.whole) if pick is not None and things else frozenset()
    made = {}
    for time, start, end in zip(times.tolist(), starts.tolist(), ends, strict=True):
        some = rows[start:end]
        if time in things and time not in entire:
            some = [row for row in some if getattr(row, key) in things[time]]
        made[time] = tuple(some)
    return made


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
    for edge, which in zip((*kept[:1], *kept[-1:]), (0, -1), strict=False):
        moments = edge.moments(kind)
        at = int(np.searchsorted(moments.mono, shelf.inside(kind, edge)[which]))
        mono, wall = float(moments.mono[at]), float(moments.wall[at])
        found[mono] = Batch(mono, wall, ())

    def read(book: Book) -> list[Batch[Any]]:
        return _eventful(shelf, book, kind)

    full = [book for book in kept if book.segment.rows(kind)]
    for batches in shelf.each(read, full):
        found |= {batch.mono_s: batch for batch in batches}
    return [found[mono] for mono in sorted(found)], len(kept) < len(books)


def _eventful(shelf: Shelf, book: Book, kind: type[Row]) -> list[Batch[Any]]:
    found = book.segment.table(kind, coded=texts_of(kind))
    if found is None:
        return []
    mono, wall = (numbers(found.column(name)).tolist() for name in (MONO, WALL))
    walls = dict(zip(mono, wall, strict=True))
    rows = grouped(kind, found)
    return [Batch(at, walls[at], rows[at]) for at in rows if shelf.span.holds(at)]


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
