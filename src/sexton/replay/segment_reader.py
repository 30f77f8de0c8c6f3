"""One segment of a recording: when its tables were read, and their columns by thing and time.

Of a large table only the needed row groups are decoded: the file lists which things each of them
holds (`sexton.store.runs`), and its time range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.errors import StoreError
from sexton.model.row import Row, fields_of, table
from sexton.model.window import Key, Wanted
from sexton.replay.matrix import Matrix, Rows
from sexton.replay.span import Span
from sexton.sandbox import largest_read
from sexton.store.arrays import coded, numbers
from sexton.store.recording import Segment
from sexton.store.runs import Runs, by_thing, end_to_end, joined, pieces, runs_of
from sexton.store.schema import MONO, POSITION, WALL, texts_of
from sexton.store.sealed import TableFile

F64 = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Interval = tuple[float, float]
#: Intervals to read, sorted and disjoint; `None` is everything.
Near = Sequence[Interval] | None

#: Without a list of runs, a file with fewer row groups is read whole.
_FEW_GROUPS = 3


class Readings(NamedTuple):
    """The readings of one table in one segment, by time; `rows` is the number of rows in each."""

    mono: F64
    wall: F64
    rows: Ints

    def some(self, places: Ints | Bools) -> Readings:
        return Readings(self.mono[places], self.wall[places], self.rows[places])


_NO_READINGS = Readings(np.empty(0), np.empty(0), np.empty(0, np.int64))


class Times(NamedTuple):
    """Readings of a table in one segment: those whose rows were found, and the empty ones. `lost`:
    readings are missing after the last one."""

    mono: F64
    wall: F64
    follows: Bools
    lost: bool


class Piece(NamedTuple):
    """A segment's part of a table: its times, things and columns."""

    times: Times
    things: list[Key]
    values: dict[str, F64]


@dataclass(slots=True)
class SegmentReader:
    """One segment; `joined` if nothing is missing between it and the one before."""

    segment: Segment
    joined: bool
    _listed: tuple[list[str], Ints, Readings] | None = field(default=None)
    _readings: dict[type[Row], Readings] = field(default_factory=dict)
    _clock: tuple[F64, F64] | None = field(default=None)

    def __reduce__(self) -> tuple[type[SegmentReader], tuple[Segment, bool]]:
        return SegmentReader, (self.segment, self.joined)

    def count(self, kind: type[Row]) -> int:
        """The number of readings of a table, from the manifest."""
        return int(self._described(kind).get("batches", 0))

    def bounds(self, kind: type[Row]) -> Interval:
        """Monotonic times of the table's first and last reading, from the manifest."""
        described = self._described(kind)
        return float(described["first"][0]), float(described["last"][0])

    def _described(self, kind: type[Row]) -> dict[str, Any]:
        found: dict[str, Any] = self.segment.manifest["tables"].get(table(kind), {})
        return found

    def readings(self, kind: type[Row]) -> Readings:
        """When the table was read, empty readings included. Of two readings at one moment the later
        counts, as in `columns`."""
        if kind not in self._readings:
            self._readings[kind] = self._read_when(kind)
        return self._readings[kind]

    def _read_when(self, kind: type[Row]) -> Readings:
        names, code, every = self._list()
        if table(kind) not in names:
            return _NO_READINGS
        mine = every.some(np.flatnonzero(code == names.index(table(kind))))
        if (np.diff(mine.mono) > 0).all():
            return mine
        order = np.argsort(mine.mono, kind="stable")
        order = order[np.append(np.diff(mine.mono[order]) > 0, True)]
        return mine.some(order)

    def clock(self) -> tuple[F64, F64]:
        """Both clocks at every reading of any table, in order."""
        if self._clock is None:
            _, _, every = self._list()
            mono, first = np.unique(every.mono, return_index=True)
            self._clock = mono, every.wall[first]
        return self._clock

    def _list(self) -> tuple[list[str], Ints, Readings]:
        if self._listed is None:
            listed = self.segment.readings(coded=("table",))
            if listed is None or not listed.num_rows:
                self._listed = [], np.empty(0, np.int64), _NO_READINGS
            else:
                code, names = coded(listed.column("table"))
                every = (numbers(listed.column(name)) for name in (MONO, WALL, "rows"))
                self._listed = names, code, Readings(*every)
        return self._listed

    def times(self, kind: type[Row], mono: F64) -> Times:
        """The readings at `mono`, which had rows, and with them those that had none."""
        listed = self.readings(kind)
        if np.array_equal(mono, listed.mono):  # as usual
            return Times(mono, listed.wall, np.ones(len(mono), np.bool_), False)
        known = np.isin(mono, listed.mono)
        if not known.all():  # the list is damaged: use the times of the rows
            listed = self._from_rows(kind)
        if len(mono) == len(listed.mono):
            follows = np.ones(len(mono), np.bool_)
            return Times(mono, listed.wall, follows, False)
        there = np.isin(listed.mono, mono)
        kept = np.flatnonzero(there | (listed.rows == 0))
        lost = listed.mono[~there & (listed.rows > 0)]
        every = listed.mono[kept]
        follows = np.ones(len(every) + 1, np.bool_)
        follows[np.searchsorted(every, lost)] = False
        return Times(every, listed.wall[kept], follows[:-1], not follows[-1])

    def _from_rows(self, kind: type[Row]) -> Readings:
        found = self.segment.table(kind, (MONO, WALL))
        if found is None:
            return _NO_READINGS
        mono, first, number = np.unique(
            numbers(found.column(MONO)), return_index=True, return_counts=True
        )
        return Readings(mono, numbers(found.column(WALL))[first], number)

    def columns(
        self, kind: type[Row], names: Sequence[str], wanted: Wanted | None, near: Near = None
    ) -> Piece | None:
        """Its part of a table as columns; `None` if it cannot be read. Times are of all that was
        read, values only of the readings in `near`."""
        found = None
        if self.segment.rows(kind):
            found = self.rows(kind, names, wanted, near)
            if found is None:
                return None
        listed = self.readings(kind)
        if found is None or (not found.runs.rows and len(listed.mono)):
            mono = listed.mono[listed.rows > 0] if found is not None else np.empty(0)
            times = self.times(kind, mono)
            number = len(times.mono) if near is None else int(within(times.mono, near).sum())
            return Piece(times, [], {name: np.empty((0, number)) for name in names})
        made = Matrix(found, wanted)
        mono = made.mono
        if wanted is not None and not np.array_equal(mono, listed.mono):
            # At some readings only other things may have been present.
            mono = np.union1d(mono, listed.mono[listed.rows > 0])
        times = self.times(kind, mono)
        kept = None if near is None else np.flatnonzero(within(times.mono, near))
        try:
            if len(times.mono) == len(made.mono):
                return Piece(times, made.things, made.values(names, kept))
            every = made.values(names)
        except StoreError as error:
            self.segment.report(f"{self.segment.name}/{table(kind)}: {error}")
            return None
        place = np.searchsorted(times.mono, made.mono)
        if not np.array_equal(times.mono[place[place < len(times.mono)]], made.mono):
            return None  # the times of its readings are damaged
        spread = {}
        for name, value in every.items():
            laid = np.full((len(made.things), len(times.mono)), np.nan)
            laid[:, place] = value
            spread[name] = laid if kept is None else laid[:, kept]
        return Piece(times, made.things, spread)

    def rows(
        self, kind: type[Row], names: Sequence[str], wanted: Wanted | None = None, near: Near = None
    ) -> Rows | None:
        """Time and some columns of a table, and its runs: at least of the wanted things and of the
        readings in `near`. `None` if its file cannot be read."""
        columns = (MONO, *names)
        source = self._file(kind)
        if source is not None:
            with suppress(StoreError, pa.ArrowException):
                groups = [at for at in range(source.num_row_groups) if _reaches(source, at, near)]
                listed = source.runs(kind.entity)
                few = wanted is None or source.num_row_groups < _FEW_GROUPS
                if listed is not None or not few:
                    return _wanted_rows(source, (kind, columns, wanted), groups, listed)
                found = source.read((*columns, *kind.entity))
                return Rows(found, runs_of(found, kind.entity))
        texts = [name for name in kind.entity if name in texts_of(kind)]
        found = self.segment.table(kind, (*columns, *kind.entity), texts)
        if found is None:
            return None
        found = by_thing(found, kind.entity)
        return Rows(found, runs_of(found, kind.entity))

    def near(self, kind: type[Row], columns: Sequence[str], near: Near) -> pa.Table | None:
        """Some columns of a table, at least of the readings in `near`."""
        source = self._file(kind)
        if source is not None:
            with suppress(StoreError, pa.ArrowException):
                groups = [at for at in range(source.num_row_groups) if _reaches(source, at, near)]
                return source.read(columns, groups)
        return self.segment.table(kind, columns, texts_of(kind))

    def part(self, kind: type[Row], columns: Sequence[str], part: Interval) -> pa.Table | None:
        """Readings in an interval of a table, read one row group at a time; `None` if the table has
        only one or cannot be read this way."""
        source = self._file(kind)
        if source is None or source.num_row_groups < 2:
            return None
        try:
            parts = [source.read(columns, [])]
            for group in range(source.num_row_groups):
                if not _reaches(source, group, [part]):
                    continue
                mono = numbers(source.read([MONO], [group])[MONO])
                rows = np.flatnonzero((mono >= part[0]) & (mono <= part[1]))
                if len(rows):
                    parts.append(source.read(columns, [group]).take(pa.array(rows)))
            return pa.concat_tables(parts)
        except (StoreError, pa.ArrowException):
            return None

    def matching(self, kind: type[Row], name: str, value: str) -> pa.Table | None:
        """All columns of the rows with this text in a column; `None` if there are none, or the
        table cannot be read."""
        if not self.segment.rows(kind):
            return None
        columns = (MONO, POSITION, *fields_of(kind))
        source = self._file(kind)
        if source is not None:
            with suppress(StoreError, pa.ArrowException):
                parts = [source.read(columns, [])]
                for group in range(source.num_row_groups):
                    rows = _rows_with(source.read([name], [group]), name, value)
                    if len(rows):
                        parts.append(source.read(columns, [group]).take(pa.array(rows)))
                return pa.concat_tables(parts)
        found = self.segment.table(kind, columns, texts_of(kind))
        return None if found is None else found.take(pa.array(_rows_with(found, name, value)))

    def distinct(self, kind: type[Row], fields: Sequence[str], span: Span) -> list[Key]:
        """Combinations of these columns' values in the span, with repetitions."""
        if not self.segment.rows(kind):
            return []
        inside_it = all(map(span.holds, self.bounds(kind)))
        if inside_it:
            source = self._file(kind)
            with suppress(StoreError, pa.ArrowException):
                if source is not None:
                    return _combinations(source, kind.entity, fields)
        texts = [name for name in fields if name in texts_of(kind)]
        found = self.segment.table(kind, fields if inside_it else (MONO, *fields), texts)
        if found is not None and not inside_it:
            found = found.take(
                pa.array(np.flatnonzero(inside(numbers(found.column(MONO)), span, None)))
            )
        return [] if found is None else runs_of(found, fields).things

    def _file(self, kind: type[Row]) -> TableFile | None:
        """A sealed table's file. If `None`, read it by `segment.table`, which reports why."""
        if self.segment.sealed and kind.entity:
            with suppress(StoreError):
                return self.segment.file(kind)
        return None


def _rows_with(found: pa.Table, name: str, value: str) -> Ints:
    code, texts = coded(found.column(name))
    return np.flatnonzero(code == texts.index(value)) if value in texts else np.empty(0, np.int64)


def _reaches(source: TableFile, group: int, near: Near) -> bool:
    if near is None:
        return True
    first, last = source.times(group)
    return any(start <= last and end >= first for start, end in near)


def _combinations(source: TableFile, keys: Sequence[str], fields: Sequence[str]) -> list[Key]:
    """Combinations of these columns' values in a file. Key columns are not decoded if the file
    lists its runs."""
    listed = source.runs(keys)
    if listed is None:
        return runs_of(source.read(fields), fields).things
    others = [name for name in fields if name not in keys]
    if not others:
        at = [keys.index(name) for name in fields]
        every = dict.fromkeys(thing for group in listed for thing in group.things)
        return [tuple(thing[place] for place in at) for thing in every]
    found, runs = source.read(others), end_to_end(listed)
    values_of = runs_of(found, others)
    starts = np.union1d(runs.starts, values_of.starts)
    run = np.searchsorted(runs.starts, starts, "right") - 1
    value = np.searchsorted(values_of.starts, starts, "right") - 1
    things = [runs.things[at] for at in run.tolist()]
    values = [values_of.things[at] for at in value.tolist()]
    columns = [
        [thing[keys.index(name)] for thing in things]
        if name in keys
        else [thing[others.index(name)] for thing in values]
        for name in fields
    ]
    return list(zip(*columns, strict=True))


def _wanted_rows(
    source: TableFile,
    what: tuple[type[Row], Sequence[str], Wanted | None],
    groups: Sequence[int],
    listed: Sequence[Runs] | None,
) -> Rows:
    """The rows of the wanted things in some row groups, and their runs."""
    kind, columns, wanted = what
    if listed is not None and all(listed[group].even is not None for group in groups):
        return _even_rows(source, columns[1:], wanted, {at: listed[at] for at in groups})
    if wanted is None and listed is not None:
        return Rows(source.read(columns, groups), joined([listed[group] for group in groups]))
    parts: list[pa.Table] = []
    every: list[Runs] = []
    for group in groups:
        runs = listed[group] if listed else runs_of(source.read(kind.entity, [group]), kind.entity)
        some = range(len(runs.things)) if wanted is None else runs.some(wanted)
        if len(some):
            found = source.read(columns, [group])
            parts += [found.slice(*piece) for piece in pieces(some, runs)]
            every.append(runs.at(some))
    if not parts:
        return Rows(source.read(columns, []), Runs(np.empty(0, np.int64), [], 0))
    return Rows(pa.concat_tables(parts), joined(every))


def _even_rows(
    source: TableFile, names: Sequence[str], wanted: Wanted | None, listed: Mapping[int, Runs]
) -> Rows:
    """The same for row groups with the same readings of each thing. Times are decoded only of one,
    and a row group in which no wanted thing changed not at all."""
    parts = [source.read(names, [] if wanted is not None else list(listed))]
    every: list[Runs] = []
    moments: list[tuple[F64, int]] = []
    times: dict[int | None, F64] = {}
    for group, runs in listed.items():
        some = range(len(runs.things)) if wanted is None else runs.some(wanted)
        if not len(some):
            continue
        if wanted is not None:
            found = _unchanged(source, names, runs, some)
            if found is None:
                found = source.read(names, [group])
                parts += [found.slice(*piece) for piece in pieces(some, runs)]
            else:
                parts.append(found)
        every.append(runs.at(some))
        if runs.even not in times:
            times[runs.even] = source.first_times(group, int(runs.lengths[0]))
        moments.append((times[runs.even], len(some)))
    return Rows(pa.concat_tables(parts), end_to_end(every), moments)


def _unchanged(
    source: TableFile, names: Sequence[str], runs: Runs, some: Sequence[int]
) -> pa.Table | None:
    """The rows of these runs if none of them changed in the only column that is wanted; else
    `None`."""
    if runs.still is None or list(names) != [runs.still[0]] or names[0] not in source.names:
        return None
    values = [runs.still[1][at] for at in some]
    field = source.field(names[0])
    if None in values or not pa.types.is_integer(field.type) or 8 * runs.rows > largest_read():
        return None
    try:
        every = np.array(values, field.type.to_pandas_dtype())
    except OverflowError:  # the list is wrong
        return None
    rows = pa.array(np.repeat(every, runs.lengths[list(some)]))
    return pa.table([rows], pa.schema([field]))


def within(mono: F64, near: Sequence[Interval]) -> Bools:
    """Which of these moments lie in one of the intervals."""
    edges = np.array(near).reshape(-1, 2)
    place = np.searchsorted(edges[:, 0], mono, "right") - 1
    made: Bools = (place >= 0) & (mono <= np.append(edges[:, 1], -inf)[place])
    return made


def inside(mono: F64, span: Span, near: Near) -> Bools:
    """Which of these moments are in the span and in `near`."""
    mask: Bools = (mono >= span.start[0]) & (mono <= span.end[0])
    return mask if near is None else mask & within(mono, near)
