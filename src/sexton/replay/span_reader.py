"""The segments of a span, read as batches of rows or as columns.

Files are read in order; while one is processed, two threads read the next ones (Arrow releases the
interpreter lock). A reading `follows` the one before it unless something is missing in between: a
segment is lost or damaged, the recorder was not running, or the step is much longer than usual for
the table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from math import inf
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from sexton.model.row import Row, fields_of
from sexton.model.window import GAP_S, Batch, Columns, Key, Wanted, longest_step, values_getter
from sexton.replay.segment_reader import (
    F64,
    Bools,
    Interval,
    Ints,
    Near,
    Piece,
    Readings,
    SegmentReader,
    Times,
    inside,
)
from sexton.replay.span import Span
from sexton.store.arrays import codes, known, numbers, values, whole
from sexton.store.recording import Recording, Segment
from sexton.store.runs import runs_of
from sexton.store.schema import MONO, POSITION, fields_in, grouped, rows_of, texts_of

T = TypeVar("T")

#: With fewer readings in a segment its usual step is unknown.
_ENOUGH_READINGS = 3
#: Segments that are read ahead, and the least rows for which threads are worth it.
_AHEAD, _MANY_ROWS = 2, 1_000_000
#: Numbers in one piece of columns, to limit memory; also in columns that are kept for the next
#: detector that needs the same.
_MOST_CELLS, _LEAST_READINGS = 500_000, 60
#: Bytes of tables of single segments that are kept for the next `between`.
_MOST_KEPT = 32 << 20


class SpanReader:
    """A span's segments in order."""

    def __init__(self, recording: Recording, span: Span) -> None:
        self.recording, self.span = recording, span
        mine = [segment for segment in recording.segments if segment.boot_id == span.boot_id]
        self.segments = readers(mine, span.touches)
        self._having: dict[type[Row], list[int]] = {}
        self._kept: dict[tuple[str, type[Row]], pa.Table] = {}
        #: Things seen in a table, and columns of a few of them.
        self._things: dict[type[Row], tuple[Key, ...]] = {}
        self._wanted: dict[Hashable, list[Columns]] = {}

    def having(self, kind: type[Row]) -> list[SegmentReader]:
        """Segments with readings of the table inside the span."""
        return [self.segments[at] for at in self._places(kind)]

    def readable(self, kind: type[Row]) -> bool:
        """Whether any of it can be read. If all of it is damaged it is unknown, as if it had not
        been recorded, and not empty."""
        return any(reader.segment.opens(kind) for reader in self.having(kind))

    def _places(self, kind: type[Row]) -> list[int]:
        if kind not in self._having:
            self._having[kind] = [
                at for at, segment in enumerate(self.segments) if self._reads(kind, segment)
            ]
        return self._having[kind]

    def _reads(self, kind: type[Row], reader: SegmentReader) -> bool:
        if not reader.count(kind):
            return False
        first, last = reader.bounds(kind)
        if self.span.holds(first) or self.span.holds(last):
            return True
        return first < self.span.start[0] and len(self.inside(kind, reader).mono) > 0

    def inside(self, kind: type[Row], reader: SegmentReader) -> Readings:
        """A segment's readings of a table that are in the span."""
        found = reader.readings(kind)
        mask = (found.mono >= self.span.start[0]) & (found.mono <= self.span.end[0])
        return found if mask.all() else found.some(mask)

    def row_count(self, kind: type[Row]) -> int:
        """The number of rows in the span; files are opened only at its ends."""
        total = 0
        for reader in self.having(kind):
            if all(map(self.span.holds, reader.bounds(kind))):
                total += reader.segment.rows(kind)
            else:
                total += int(self.inside(kind, reader).rows.sum())
        return total

    def bounds(self, kind: type[Row]) -> Interval | None:
        """The first and the last reading of the table in the span, monotonic."""
        having = self.having(kind)
        if not having:
            return None
        first, last = having[0].bounds(kind)[0], having[-1].bounds(kind)[1]
        if not self.span.holds(first):
            first = float(self.inside(kind, having[0]).mono[0])
        if not self.span.holds(last):
            last = float(self.inside(kind, having[-1]).mono[-1])
        return first, last

    def columns(
        self, kind: type[Row], names: Sequence[str], wanted: Wanted | None = None, near: Near = None
    ) -> Iterator[Columns]:
        """Some columns of a table, a piece per segment."""
        if wanted is not None and near is None:
            yield from self._few(kind, tuple(names), wanted)
            return
        if near is not None:
            near = [part for part in map(self.span.overlap, near) if part is not None]
        places = [at for at in self._places(kind) if near is None or self._touches(at, kind, near)]
        yield from self._pieces(kind, names, wanted, (places, near))

    def _few(self, kind: type[Row], names: tuple[str, ...], wanted: Wanted) -> Iterator[Columns]:
        """Columns of some things. Kept, since several detectors want the same few."""
        known = self._things.get(kind)
        if known is not None:
            key = (kind, names, frozenset(filter(wanted, known)))
            if key in self._wanted:
                yield from self._wanted[key]
                return
        seen: dict[Key, bool] = {}

        def decide(thing: Key) -> bool:
            if thing not in seen:
                seen[thing] = wanted(thing)
            return seen[thing]

        found = []
        cells = 0
        for piece in self._pieces(kind, names, decide, (self._places(kind), None)):
            cells += len(piece.things) * len(piece.mono) * len(names)
            found += [piece] * (cells <= _MOST_CELLS)
            yield piece
        self._things[kind] = tuple(seen)
        if cells <= _MOST_CELLS:
            self._wanted[kind, names, frozenset(pair for pair in seen if seen[pair])] = found

    def _pieces(
        self,
        kind: type[Row],
        names: Sequence[str],
        wanted: Wanted | None,
        where: tuple[Sequence[int], Near],
    ) -> Iterator[Columns]:
        places, near = where
        joins = _Joins(self, kind)

        def read(at: int) -> Piece | None:
            return self.segments[at].columns(kind, names, wanted, near)

        for at, piece in zip(places, self._ahead(read, places, kind), strict=True):
            if piece is None:
                joins.lose()
                continue
            times, kept = joins.add(at, piece.times, near)
            found = piece.values
            if near is None and len(kept) < len(piece.times.mono):
                found = {name: value[:, kept] for name, value in found.items()}
            width = max(_MOST_CELLS // max(len(piece.things) * len(names), 1), _LEAST_READINGS)
            for start in range(0, len(kept), width):
                some = slice(start, start + width)
                cut = {name: value[:, some] for name, value in found.items()}
                mono, wall, follows = times
                yield Columns(mono[some], wall[some], follows[some], piece.things, cut)

    def parts(self, kind: type[Row], near: Near, read: Callable[[SegmentReader], T]) -> Iterator[T]:
        """The results of `read` for the segments with the table, in order."""
        places = [at for at in self._places(kind) if near is None or self._touches(at, kind, near)]
        return self._ahead(lambda at: read(self.segments[at]), places, kind)

    def _touches(self, at: int, kind: type[Row], near: Sequence[Interval]) -> bool:
        first, last = self.segments[at].bounds(kind)
        return any(start <= last and end >= first for start, end in near)

    def _ahead(
        self, read: Callable[[int], T], places: Sequence[int], kind: type[Row]
    ) -> Iterator[T]:
        """The results of `read` for these segments, in order; if there are many rows, threads read
        ahead."""
        rows = sum(self.segments[at].segment.rows(kind) for at in places)
        if len(places) < 2 or rows < _MANY_ROWS:
            yield from map(read, places)
            return
        with ThreadPoolExecutor(_AHEAD, "sexton-read") as reader:
            coming: deque[Future[T]] = deque()
            for at in places:
                coming.append(reader.submit(read, at))
                if len(coming) > _AHEAD:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()

    def batches(
        self, kind: type[Row], start: float = -inf, end: float = inf, *, every: bool = True
    ) -> Iterator[Batch[Any]]:
        """Readings of a table from one moment to another, oldest first. Without `every`, empty
        readings are left out except at edges and gaps."""
        near = ((start, end),)
        places = [at for at in self._places(kind) if self._touches(at, kind, near)]
        joins = _Joins(self, kind)

        def read(at: int) -> pa.Table | None:
            return self._table(self.segments[at], kind, (start, end))

        for at, found in zip(places, self._ahead(read, places, kind), strict=True):
            reader = self.segments[at]
            if found is None and reader.segment.rows(kind):
                joins.lose()
                continue
            mono = np.empty(0) if found is None else np.unique(numbers(found.column(MONO)))
            times, kept = joins.add(at, reader.times(kind, mono), near)
            if len(kept):
                yield from _batches(kind, found, times, every)

    def matching(self, kind: type[Row], field: str, value: str) -> Iterator[Batch[Any]]:
        """Every reading of a table, oldest first, with only the rows that have this text in a
        column. Other rows are not decoded."""
        places = self._places(kind)
        joins = _Joins(self, kind)

        def read(at: int) -> pa.Table | None:
            return self.segments[at].matching(kind, field, value)

        for at, found in zip(places, self._ahead(read, places, kind), strict=True):
            reader = self.segments[at]
            if found is None and reader.segment.rows(kind):
                joins.lose()
                continue
            mono = reader.readings(kind).mono
            times, kept = joins.add(at, reader.times(kind, mono), None)
            if len(kept):
                yield from _batches(kind, found, times, every=True)

    def _table(self, reader: SegmentReader, kind: type[Row], part: Interval) -> pa.Table | None:
        """All columns of a table in a segment, at least of the readings in an interval. Small
        tables are kept, since the next query is likely to be near."""
        if not reader.segment.rows(kind):
            return None
        key = (reader.segment.name, kind)
        if key in self._kept:
            return self._kept[key]
        columns = (MONO, POSITION, *fields_of(kind))
        every = part == (-inf, inf)
        found = None if every else reader.part(kind, columns, part)
        if found is not None:
            return found
        found = reader.segment.table(kind, columns, texts_of(kind))
        if found is not None and not every:
            self._kept[key] = found
            while len(self._kept) > 1 and sum(t.nbytes for t in self._kept.values()) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return found

    def between(self, kind: type[Row], start: float, end: float) -> tuple[Batch[Any], ...]:
        """Readings from the last at or before `start` to the first at or after `end`."""
        having = [(reader, *reader.bounds(kind)) for reader in self.having(kind)]
        for reader, first, _ in reversed(having):
            mono = self.inside(kind, reader).mono if first <= start else np.empty(0)
            if len(mono) and mono[0] <= start:
                start = float(mono[np.searchsorted(mono, start, "right") - 1])
                break
        for reader, _, last in having:
            mono = self.inside(kind, reader).mono if last >= end else np.empty(0)
            if len(mono) and mono[-1] >= end:
                end = float(mono[np.searchsorted(mono, end)])
                break
        return tuple(self.batches(kind, start, end))

    def latest(self, kind: type[Row]) -> Batch[Any] | None:
        """The last reading that can be read."""
        for reader in reversed(self.having(kind)):
            first, last = reader.bounds(kind)
            if not self.span.holds(last):
                last = float(self.inside(kind, reader).mono[-1])
            for start in (last, first):
                found = list(self.batches(kind, start, last))
                if found:
                    return found[-1]
        return None

    def first(self, kind: type[Row]) -> Batch[Any] | None:
        """The first reading that can be read."""
        edges = self.bounds(kind)
        if edges is None:
            return None
        found = tuple(self.batches(kind, edges[0], edges[0]))
        return found[0] if found else next(self.batches(kind), None)

    def changes(self, kind: type[Row], fields: Sequence[str]) -> Iterator[Row]:
        """Rows of things that are new, or that differ in these fields from when last seen, in time
        order. Only these become rows."""
        last: dict[Key, tuple[Any, ...]] = {}
        for found in self.parts(kind, None, lambda reader: self._table(reader, kind, (-inf, inf))):
            if found is None:
                continue
            mono = numbers(found.column(MONO))
            rows = np.flatnonzero(inside(mono, self.span, None))
            runs = runs_of(found, kind.entity)
            place = {key: at for at, key in enumerate(dict.fromkeys(runs.things))}
            thing = np.repeat(np.array([place[key] for key in runs.things], np.int64), runs.lengths)
            rows = rows[np.lexsort((mono[rows], thing[rows]))]
            if not np.array_equal(rows, np.arange(found.num_rows)):  # sealed, it is in this order
                found, thing = found.take(pa.array(rows)), thing[rows]
            yield from _changed(kind, found, fields, (thing, last))

    def distinct(self, kind: type[Row], fields: Sequence[str]) -> list[tuple[Any, ...]]:
        """Every combination of these columns' values in the span, once each."""
        parts = self.parts(kind, None, lambda reader: reader.distinct(kind, fields, self.span))
        return list(dict.fromkeys(key for part in parts for key in part))

    def longest_step(self, kind: type[Row], mono: F64) -> float:
        """The longest step between readings of a table that is not a gap; `mono` are the readings
        of one segment."""
        if len(mono) >= _ENOUGH_READINGS:
            return longest_step(mono)
        return longest_known(
            mono, [(reader.count(kind), *reader.bounds(kind)) for reader in self.having(kind)]
        )


class _Joins:
    """Which reading follows the one before it, over the segments of one table."""

    def __init__(self, reader: SpanReader, kind: type[Row]) -> None:
        self._reader, self._kind = reader, kind
        self._last: tuple[int, float] | None = None
        self._begun = self._lost = False

    def lose(self) -> None:
        """Note that the next segment's table cannot be read."""
        self._lost = True

    def add(self, at: int, times: Times, near: Near) -> tuple[tuple[F64, F64, Bools], Ints]:
        """Times and `follows` of the wanted readings, and their indices."""
        mono, wall, follows = times.mono, times.wall, times.follows.copy()
        longest = self._reader.longest_step(self._kind, mono)
        follows[1:] &= np.diff(mono) <= longest
        mask = inside(mono, self._reader.span, near)
        kept = np.flatnonzero(mask)
        if len(kept):
            cut = np.diff(kept, prepend=kept[0] - 1) != 1
            follows = follows[kept] & ~cut
            follows[0] = not self._begun or (kept[0] == 0 and self._goes_on(at, mono[0], longest))
            self._begun = True
            self._lost = times.lost
            whole = kept[-1] == len(mono) - 1
            self._last = (at, float(mono[-1])) if whole else None
            mono, wall = mono[kept], wall[kept]
        else:
            self._lost = self._begun  # readings before the first wanted one are not missing
        return (mono, wall, follows), kept

    def _goes_on(self, at: int, mono: float, longest: float) -> bool:
        if self._last is None or self._lost:
            return False
        before, last = self._last
        joined = all(segment.joined for segment in self._reader.segments[before + 1 : at + 1])
        return joined and 0 < mono - last <= longest


def readers(segments: Sequence[Segment], wanted: Callable[[Segment], bool]) -> list[SegmentReader]:
    """Readers of the wanted segments; `segments` are all of a recording or of a boot, in order."""
    found = []
    before: dict[str, Segment] = {}
    for segment in segments:
        if wanted(segment):
            last = before.get(segment.boot_id)
            found.append(SegmentReader(segment, last is not None and _follows(last, segment)))
        before[segment.boot_id] = segment
    return found


def _follows(before: Segment, segment: Segment) -> bool:
    near = segment.start[0] - before.end[0] <= GAP_S
    return near and segment.sequence == before.last_sequence + 1


def longest_known(mono: F64, spans: Sequence[tuple[int, float, float]]) -> float:
    """The longest step between a segment's readings that is not a gap. If they are too few to tell,
    that of all segments: the number of their readings, the first and the last."""
    if len(mono) >= _ENOUGH_READINGS:
        return longest_step(mono)
    steps = [(last - first) / (n - 1) for n, first, last in spans if n > 1]
    steps += [b[1] - a[2] for a, b in pairwise(spans)]
    return longest_step(np.cumsum([0.0, *steps]))


def _batches(
    kind: type[Row], found: pa.Table | None, times: tuple[F64, F64, Bools], every: bool
) -> Iterator[Batch[Any]]:
    places: dict[float, tuple[int, int]] = {}
    rows: list[Row] = []
    if found is not None:
        mono = numbers(found.column(MONO))
        chosen = np.flatnonzero((mono >= times[0][0]) & (mono <= times[0][-1]))
        places, columns = grouped(kind, found, chosen)
        rows = rows_of(kind, columns)
    if not every:
        kept = np.isin(times[0], list(places)) | ~times[2]
        kept[[0, -1]] = True
        times = times[0][kept], times[1][kept], times[2][kept]
    for mono_s, wall_s, follows in zip(*(time.tolist() for time in times), strict=True):
        start, end = places.get(mono_s, (0, 0))
        yield Batch(mono_s, wall_s, tuple(rows[start:end]), follows)


def _changed(
    kind: type[Row],
    found: pa.Table,
    fields: Sequence[str],
    known: tuple[Ints, dict[Key, tuple[Any, ...]]],
) -> list[Row]:
    """Changes in one segment, whose rows are sorted by thing and time."""
    thing, last = known
    fresh = np.append(True, thing[1:] != thing[:-1])[: len(thing)]
    differs = fresh.copy()
    for name in fields:
        if name in found.column_names:
            differs[1:] |= _unlike_before(whole(found.column(name)))
    picked = np.flatnonzero(differs)
    ends = np.flatnonzero(np.append(fresh[1:], True)) if len(thing) else picked
    wanted = np.union1d(picked, ends)
    rows = rows_of(kind, fields_in(kind, found, wanted))
    is_picked = np.isin(wanted, picked).tolist()
    mono, position = (numbers(found.column(name))[wanted].tolist() for name in (MONO, POSITION))
    made: list[tuple[float, int, Row]] = []
    key_of, values_of = values_getter(kind.entity), values_getter(fields)
    for row, picks, *when in zip(rows, is_picked, mono, position, strict=True):
        key, value = key_of(row), values_of(row)
        if picks and last.get(key) != value:
            made.append((when[0], when[1], row))
        last[key] = value
    made.sort(key=lambda part: part[:2])
    return [row for _, _, row in made]


def _unlike_before(array: pa.Array) -> Bools:
    """Which values, from the second on, differ from the one before."""
    if pa.types.is_list(array.type):
        every = values(array)
        return np.array([a != b for a, b in pairwise(every)], np.bool_)
    if pa.types.is_string(array.type) or pa.types.is_dictionary(array.type):
        code = codes(array)
        unlike: Bools = code[1:] != code[:-1]
        return unlike
    number = numbers(array)
    unlike = number[1:] != number[:-1]
    there = known(array)
    if there is not None:
        unlike |= there[1:] != there[:-1]
    return unlike
