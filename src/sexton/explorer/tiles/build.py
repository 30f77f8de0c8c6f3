"""From counters to columns of one second.

A reading covers the time since the previous one: `sexton.series.meter` computes the value of a
metric in that step, and handles resets and gaps, which are those of a replay. The second whose
middle lies in the step gets the value. A reading so early that no second's middle lies in its step
shares a second with its neighbour: the higher value of the two is its peak, and both count in its
mean. The time of a step is divided among its seconds: it is their weight in means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.explorer.tiles.pyramid import Array, Cells, Ints, Meeting, Pyramid, as_slice
from sexton.model.aligned import F64
from sexton.model.row import Row
from sexton.model.window import Columns, Key, Window
from sexton.replay.segment_reader import SegmentReader
from sexton.replay.span_reader import longest_known
from sexton.series.catalogue import Kind, Metric
from sexton.series.cores import CoreSeries
from sexton.series.meter import Meter, fewer, several
from sexton.series.rates import F32, Bools, Floats
from sexton.store.arrays import numbers
from sexton.store.recording import Segment
from sexton.store.schema import MONO, WALL

#: If the clocks differ by more between a segment's start and end, the wall clock jumped inside.
_DRIFT_S = 0.05
#: Wall times beyond the year 5138 are invalid.
MOST_S = 1e11
#: Tables are read at least every hour: a reading covers no more than this.
_REACH_S = 4096.0
#: Segments from which the usual step of a table is known that has one or two readings in each.
_MOST_SPANS = 60


class Clock:
    """Converts a segment's monotonic times to wall times."""

    def __init__(self, segment: Segment) -> None:
        first, last = (pair[1] - pair[0] for pair in (segment.start, segment.end))
        mono: F64 = np.array([segment.start[0], segment.end[0]])
        offset: F64 = np.array([first, last])
        self._steady = abs(last - first) <= _DRIFT_S
        if not self._steady:
            readings = segment.readings()
            if readings is not None and readings.num_rows:
                mono, wall = (numbers(readings.column(name)) for name in (MONO, WALL))
                order = np.argsort(mono, kind="stable")
                mono, offset = mono[order], (wall - mono)[order]
        self._mono, self._offset = mono, offset

    def wall(self, mono: F64) -> F64:
        """By the last reading at or before each time; interpolated if the clock did not jump."""
        if self._steady:
            found: F64 = mono + np.interp(mono, self._mono, self._offset)
            return found
        at = np.searchsorted(self._mono, mono, "right") - 1
        return mono + self._offset[np.clip(at, 0, len(self._mono) - 1)]

    def at(self, mono: float) -> float:
        """The same for one time."""
        return float(self.wall(np.array([mono]))[0])


class Part(NamedTuple):
    """One segment with its clock; builders are fed these."""

    book: SegmentReader
    clock: Clock


class Taken(NamedTuple):
    """Values from the readings of one segment: a row per thing, a column per reading.

    `start` and `end` are the wall seconds each reading covers. A reading after a gap covers at most
    its last second if it is a level, and nothing if it is a rate. `given` are the seconds that each
    core was given, a row per thing, if the values are shares of them.
    """

    start: F64
    end: F64
    things: list[Key]
    values: dict[str, F32]
    given: F32 | None = None

    @property
    def seconds(self) -> Array:
        """The weight of each reading in a mean: a row per thing, or one for all."""
        return (self.end - self.start)[None] if self.given is None else self.given

    def at_most(self, seconds: float) -> Taken:
        """The same, with no reading covering more than these seconds: some tables have rows only
        when something happens, so the previous row is not the previous reading."""
        return self._replace(start=np.maximum(self.start, self.end - seconds))


class Metrics:
    """Metrics of one table, read segment by segment in the order of time."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics
        self._meter = Meter(metrics)
        self._boot, self._joins = "", _Joins()
        self._read: dict[str, _Read] = {}

    @property
    def table(self) -> type[Row]:
        return self._meter.table

    @property
    def cores(self) -> CoreSeries | None:
        """The series behind the shares that were taken last."""
        return self._meter.cores

    def take(self, part: Part) -> Taken | None:
        """What a segment adds to what was taken before; None if nothing."""
        segment = part.book.segment
        read = self._read.pop(segment.name, None)
        if segment.boot_id != self._boot:
            self._boot, self._joins = segment.boot_id, _Joins()
            self._meter = Meter(self._metrics)
        joins = self._joins
        joins.enter(part.book)
        if not part.book.count(self.table) or segment.end[0] <= joins.last:
            return None
        read = read or self._columns(part)
        if read is None:
            joins.lose()
            return None
        before = joins.last
        first, follows = joins.add(segment.name, read)
        if not len(follows):
            return None
        columns = _from(read.columns, first)._replace(follows=follows)
        made = self._meter.add(columns)
        if not columns.things:
            return None
        number = len(columns.mono)
        values = {
            metric.name: _padded(series.values, number)
            for metric, series in zip(self._metrics, made, strict=True)
        }
        spent = np.diff(columns.mono, prepend=before)
        spent[~follows] = 1.0
        given = None
        if self._metrics[0].kind is Kind.SHARE and self.cores is not None:
            given = _padded(self.cores.given, number)
        return Taken(columns.wall - spent, columns.wall, made[0].things, values, given)

    def over(self, window: Window) -> Taken | None:
        """The same for a whole window; None if it has no rows of the table."""
        found = several(window, self._metrics)
        if not found:
            return None
        first = found[0]
        spent = np.where(first.seconds > 0, first.seconds, 1.0)  # a level after a gap
        values = {
            metric.name: series.values.astype(np.float32, copy=False)
            for metric, series in zip(self._metrics, found, strict=True)
        }
        return Taken(first.wall - spent, first.wall, first.things, values)

    def ahead(self, part: Part) -> None:
        """Read what `take` will need of a later segment; may run in another thread."""
        if part.book.count(self.table) and (read := self._columns(part)) is not None:
            self._read[part.book.segment.name] = read

    def _columns(self, part: Part) -> _Read | None:
        """One segment's part of the table; None if it cannot be read."""
        piece = part.book.columns(self.table, self._meter.columns, self._metrics[0].wanted)
        if piece is None or not np.isfinite(piece.times.mono).all():
            return None
        mono, _, follows, lost = piece.times
        wall = part.clock.wall(mono)
        return _Read(fewer(Columns(mono, wall, follows, piece.things, piece.values)), lost)


class _Read(NamedTuple):
    """The readings of one segment; `lost`: some are missing after the last one."""

    columns: Columns
    lost: bool


class _Joins:
    """Which readings of a table follow the one before, by the rules of `sexton.replay`, while
    segments come one by one and the last one grows. `last` is the last reading so far."""

    def __init__(self) -> None:
        self.last = -inf
        self._whole = False  # nothing is missing after `last`
        self._segment, self._reached = "", -inf
        self._spans: dict[str, tuple[int, float, float]] = {}

    def enter(self, book: SegmentReader) -> None:
        """The next segment, with or without readings of the table."""
        segment = book.segment
        if segment.name != self._segment and segment.start[0] >= self._reached:  # else it grew
            self._whole &= book.joined
            self._segment = segment.name
        self._reached = max(self._reached, segment.end[0])

    def lose(self) -> None:
        """Its readings cannot be read."""
        self._whole = False

    def add(self, name: str, read: _Read) -> tuple[int, Bools]:
        """The number of the first reading that is new, and which of the new ones follow."""
        mono, follows = read.columns.mono, read.columns.follows.copy()
        first = int(np.searchsorted(mono, self.last, "right"))
        if first == len(mono):
            return first, follows[first:]
        self._spans[name] = (len(mono), float(mono[0]), float(mono[-1]))
        if len(self._spans) > _MOST_SPANS:
            del self._spans[next(iter(self._spans))]
        longest = min(longest_known(mono, [*self._spans.values()]), _REACH_S)
        follows[1:] &= np.diff(mono) <= longest
        if first:
            follows[first] &= mono[first - 1] == self.last
        else:
            follows[0] = self._whole and mono[0] - self.last <= longest
        self.last, self._whole = float(mono[-1]), not read.lost
        return first, follows[first:]


def _from(columns: Columns, first: int) -> Columns:
    """Without the readings before that one."""
    if not first:
        return columns
    values = {name: value[:, first:] for name, value in columns.values.items()}
    return Columns(columns.mono[first:], columns.wall[first:], columns.follows[first:],
                   columns.things, values)  # fmt: skip


def _padded(values: Floats, number: int) -> F32:
    """A value for every reading; NaN for the first of all, which has no step before it."""
    made = values.astype(np.float32, copy=False)
    if made.shape[1] == number:
        return made
    unknown = np.full((len(made), number - made.shape[1]), np.nan, np.float32)
    return np.concatenate([unknown, made], axis=1)


class Place(NamedTuple):
    """Which seconds get which readings, and which part of each; `early` ones share a second."""

    columns: Ints
    readings: Ints
    part: F64
    early: bool


def places(start: F64, end: F64) -> Iterator[Place]:
    """Columns of the readings that cover `start` to `end` (wall seconds)."""
    fine = np.isfinite(end) & (np.abs(end) < MOST_S)
    turns = np.flatnonzero(np.diff(end) <= 0) + 1  # the clock was set back
    for run in np.split(np.arange(len(end)), turns):
        run = run[fine[run]]
        if len(run):
            yield from _in_order(start[run], end[run], run)


def _in_order(start: F64, end: F64, run: Ints) -> Iterator[Place]:
    first = np.floor(start).astype(np.int64)
    last = np.floor(end).astype(np.int64)
    # Only each reading's own seconds: between the first and the last a clock may jump by years.
    number = last - first + 1
    at = np.repeat(np.arange(len(run)), number)
    offset = np.arange(len(at)) - np.repeat(np.cumsum(number) - number, number)
    second = first[at] + offset
    inside = (second + 0.5 > start[at]) & (second + 0.5 <= end[at])
    columns, chosen = second[inside], at[inside]
    # If a clock was set forward, two readings may claim one second: the later one gets it.
    columns, from_end = np.unique(columns[::-1], return_index=True)
    chosen = chosen[::-1][from_end]
    if len(columns):
        part = 1 / np.bincount(chosen, minlength=len(run))[chosen]
        yield Place(columns, run[chosen], part, False)
    missed = np.ones(len(run), np.bool_)
    missed[chosen] = False
    for index in np.flatnonzero(missed).tolist():
        middle = np.array([int(np.floor((start[index] + end[index]) / 2))], np.int64)
        yield Place(middle, run[index : index + 1], np.ones(1), True)


def put(
    pyramid: Pyramid, where: Iterable[Place], cells: Cells, meeting: Meeting = Meeting.LATER
) -> None:
    """Write a lane's readings into the seconds they cover; `cells` has a column per reading."""
    for place in where:
        at = as_slice(place.readings)
        some = Cells(cells.values[:, :, at], cells.seconds[:, at] * place.part, cells.rows)
        pyramid.put(place.columns, some, Meeting.SHARED if place.early else meeting)


class Rows:
    """The row of each thing in a pyramid, assigned in the order of their first appearance."""

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}
        self._known: tuple[list[Any], npt.NDArray[np.int64]] = ([], np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, thing: object) -> bool:
        return thing in self._places

    def __iter__(self) -> Iterator[Any]:
        return iter(self._places)

    def of(self, things: list[Any]) -> npt.NDArray[np.int64]:
        """Their rows; cached, since they are mostly those of the previous segment."""
        if things != self._known[0]:
            rows = [self._places.setdefault(thing, len(self._places)) for thing in things]
            self._known = (things, np.array(rows, np.int64))
        return self._known[1]

    def spread(self, things: list[Any], values: Array, absent: float) -> Array:
        """`values` (channels, things, …) in their rows; other rows are absent."""
        rows = self.of(things)
        if len(rows) == len(self._places) and (rows == np.arange(len(rows))).all():
            return values
        made = np.full((values.shape[0], len(self), *values.shape[2:]), absent, values.dtype)
        made[:, rows] = values
        return made
