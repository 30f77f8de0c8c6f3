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
import pyarrow.compute as pc

from sexton.model.row import Row, table
from sexton.model.window import Batch
from sexton.record.span import GAP_S, Span
from sexton.store.recording import Recording, Segment
from sexton.store.schema import MONO, POSITION, WALL, decode

Array = np.ndarray[Any, Any]
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
    listed = segment.readings()
    if listed is None or not listed.num_rows:
        return {}
    names = listed.column("table").combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    mono, wall = listed.column(MONO).to_numpy(), listed.column(WALL).to_numpy()
    rows = listed.column("rows").to_numpy()
    order = np.lexsort((mono, codes))
    starts = np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))
    found = {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        mine = order[starts[code] : starts[code + 1]]
        # Readings of one moment are one, as for whoever reads the table itself.
        times, last = np.unique(mono[mine][::-1], return_index=True)
        mine = mine[::-1][last]
        found[name] = Moments(times, wall[mine], rows[mine])
    return found


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
        found = book.segment.table(kind)
        if found is not None:
            rows = grouped(kind, _filtered(kind, found, pick), pick)
    made = []
    for at in index.tolist():
        mono, number = float(moments.mono[at]), int(moments.rows[at])
        if mono in rows or not number:
            made.append((at, Batch(mono, float(moments.wall[at]), rows.get(mono, ()))))
    return made


def _filtered(kind: type[Row], found: pa.Table, pick: Pick) -> pa.Table:
    mono = found.column(MONO).to_numpy()
    mask = np.isin(mono, np.fromiter(pick.whole, float))
    if pick.things:
        some = np.isin(mono, np.fromiter(pick.things, float)) & ~mask
        keys = pa.array({key for keys in pick.things.values() for key in keys})
        column = found.column(key_of(kind))
        mask |= some & pc.is_in(column, keys.cast(column.type)).to_numpy()
    return found if mask.all() else found.filter(pa.array(mask))


def key_of(kind: type[Row]) -> str:
    """The column by which single things of a table are picked."""
    return kind.entity[0] if kind.entity else "cpu"


def grouped(kind: type[Row], found: pa.Table, pick: Pick) -> dict[float, tuple[Row, ...]]:
    """Rows by the time of their reading, each reading in its own order."""
    if not found.num_rows:
        return {}
    mono = found.column(MONO).to_numpy()
    order = np.lexsort((found.column(POSITION).to_numpy(), mono))
    rows = decode(kind, found.take(pa.array(order)))
    times, starts = np.unique(mono[order], return_index=True)
    ends = [*starts[1:].tolist(), len(rows)]
    key = key_of(kind)
    whole = frozenset(pick.whole) if pick.things else frozenset()
    made = {}
    for time, start, end in zip(times.tolist(), starts.tolist(), ends, strict=True):
        some = rows[start:end]
        if time in pick.things and time not in whole:
            some = [row for row in some if getattr(row, key) in pick.things[time]]
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
    found = book.segment.table(kind)
    if found is None:
        return []
    mono = found.column(MONO).to_numpy()
    walls = dict(zip(mono.tolist(), found.column(WALL).to_pylist(), strict=True))
    rows = grouped(kind, found, Pick(()))
    return [Batch(at, walls[at], rows[at]) for at in rows if shelf.span.holds(at)]


def columns(book: Book, kind: type[Row], names: Sequence[str]) -> dict[str, Array] | None:
    """Some columns as arrays, with `MONO` first; an absent value is -1."""
    found = book.segment.table(kind, (MONO, *names)) if book.segment.rows(kind) else None
    if found is None or any(name not in found.column_names for name in (MONO, *names)):
        return None
    return {name: array_of(found.column(name)) for name in (MONO, *names)}


def array_of(column: pa.ChunkedArray) -> Array:
    """One column; text becomes codes that tell one from another within this table."""
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # older Arrow keeps an empty one chunked
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], column.type)
    if pa.types.is_string(whole.type):
        whole = whole.dictionary_encode()
    if pa.types.is_dictionary(whole.type):
        whole = whole.indices
    if whole.null_count:
        whole = whole.fill_null(False if pa.types.is_boolean(whole.type) else -1)
    made: Array = whole.to_numpy(zero_copy_only=False)
    return made
