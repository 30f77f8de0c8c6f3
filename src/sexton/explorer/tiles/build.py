"""From counters to columns of one second.

A reading tells of the time since the one before it. Of a counter that is its rate, made by
`signal_series.Series`, which knows resets and gaps; of a level it is the level. The second whose
middle lies in that time takes the value; a reading that came so early that no second's middle lies
in it shares the second with its neighbour, and the higher of the two is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.explorer.tiles.pyramid import Array, Ints, Pyramid, as_slice
from sexton.model.aligned import F64
from sexton.model.row import Row
from sexton.replay.signal_series import (
    F32,
    MOST_THINGS,
    Block,
    Key,
    Series,
    longest_step,
    read_block,
)
from sexton.replay.span import Span
from sexton.replay.span_reader import Book
from sexton.store.arrays import numbers
from sexton.store.recording import Segment
from sexton.store.schema import MONO, WALL

#: Between the clocks at a segment's begin and its end: more, and the wall clock jumped inside.
_DRIFT_S = 0.05
#: Wall times beyond the year 5138 are no times.
MOST_S = 1e11
#: No table is read less often than every hour: a reading tells of no more than this.
_REACH_S = 4096.0
_ALWAYS = Span("", (-inf, 0.0), (inf, 0.0))


class Clock:
    """One segment's wall clock by its monotonic one."""

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
        """By the reading at that moment or before it; in between, where nothing jumped."""
        if self._steady:
            found: F64 = mono + np.interp(mono, self._mono, self._offset)
            return found
        at = np.searchsorted(self._mono, mono, "right") - 1
        return mono + self._offset[np.clip(at, 0, len(self._mono) - 1)]

    def at(self, mono: float) -> float:
        """The same of one moment."""
        return float(self.wall(np.array([mono]))[0])


class Part(NamedTuple):
    """One segment, with its clock: what builders are fed."""

    book: Book
    clock: Clock


class Taken(NamedTuple):
    """What the readings of one segment say: a row per thing, a column per reading.

    `start` and `end` are wall seconds: of what time each reading tells. A reading that follows a
    gap tells of its last second at most, where it is a level, and of nothing where it is a rate.
    """

    start: F64
    end: F64
    things: list[Key]
    values: dict[str, F32]

    def at_most(self, seconds: float) -> Taken:
        """The same where no reading tells of more than so many seconds: nothing that happens is
        written down where nothing does, and the reading before is not the row before."""
        return self._replace(start=np.maximum(self.start, self.end - seconds))


class Counters:
    """Some columns of a table, segment by segment and in the order of time.

    Columns that stand together in a tuple are added up and go by the name of the first. `how` is
    "rate", "change" or "level", see `Series`; `wanted` chooses among things.
    """

    def __init__(
        self,
        kind: type[Row],
        keys: Sequence[str],
        columns: Sequence[str | tuple[str, ...]],
        how: str = "rate",
        wanted: Callable[[Key], bool] | None = None,
    ) -> None:
        self.kind = kind
        self._keys, self._how = tuple(keys), how
        groups = [(each,) if isinstance(each, str) else each for each in columns]
        self._groups = {group[0]: group for group in groups}
        self._columns = [name for group in groups for name in group]
        self._wanted = wanted
        self._boot = ""
        self._last = -inf
        self._series = Series(how)
        self._read: dict[str, Block | None] = {}
        #: Of which things the choice below was made: mostly it holds for all segments.
        self._known: tuple[list[Key], list[str]] = ([], [])
        self._chosen: tuple[list[int], list[Key], list[Key]] = ([], [], [])

    def take(self, part: Part) -> Taken | None:
        """What a segment adds to what was taken before; `None` where that is nothing."""
        segment = part.book.segment
        read = self._read.pop(segment.name, None)
        if segment.boot_id != self._boot:
            self._boot, self._last, self._series = segment.boot_id, -inf, Series(self._how)
        if not segment.rows(self.kind) or segment.end[0] <= self._last:
            return None
        block = _since(read or self._block(part), self._last)
        if block is None or not np.isfinite(block.mono).all():
            return None
        block = self._added(block)
        rows, things, series = self._choice(block)
        spent = np.diff(block.mono, prepend=self._last)
        self._last = float(block.mono[-1])
        if not rows:
            return None
        raw = [each if len(rows) == len(each) else each[rows] for each in block.values.values()]
        found = self._rates(block.mono, series, np.concatenate(raw))
        longest = min(longest_step(block.mono), _REACH_S)
        spent[spent > longest] = min(1.0, longest)
        end = part.clock.wall(block.mono)
        shaped = found.reshape(len(block.values), len(rows), -1)
        return Taken(end - spent, end, things, dict(zip(block.values, shaped, strict=True)))

    def ahead(self, part: Part) -> None:
        """Read what `take` will need of a later segment: from another thread, while Arrow and numpy
        leave the interpreter to us."""
        if part.book.segment.rows(self.kind):
            self._read[part.book.segment.name] = self._block(part)

    def _block(self, part: Part) -> Block | None:
        return read_block(part.book, _ALWAYS, self.kind, self._keys, self._columns)

    def _added(self, block: Block) -> Block:
        """Columns that belong together as one; where one is missing there is none."""
        if len(self._groups) == len(self._columns):
            return block
        made: dict[str, F64] = {}
        for name, group in self._groups.items():
            if all(each in block.values for each in group):
                made[name] = block.values[name]
                for other in group[1:]:
                    made[name] += block.values[other]
        return Block(block.mono, block.things, made)

    def _choice(self, block: Block) -> tuple[list[int], list[Key], list[Key]]:
        """Which rows are wanted, what they are, and what their columns are to the series."""
        columns = list(block.values)
        if self._known != (block.things, columns):
            self._known = (block.things, columns)
            wanted = self._wanted
            rows = [at for at, key in enumerate(block.things) if wanted is None or wanted(key)]
            rows = rows[: MOST_THINGS // max(len(columns), 1)] if columns else []
            things = [block.things[at] for at in rows]
            self._chosen = (rows, things, [(name, *key) for name in columns for key in things])
        return self._chosen

    def _rates(self, mono: F64, series: list[Key], raw: F64) -> F32:
        self._series.add(mono, series, raw)
        found = self._series.drain()
        if found is None:  # too many came and went: those of now are begun anew
            self._series = Series(self._how)
            self._series.add(mono, series, raw)
            found = self._series.drain()
        assert found is not None
        return found


def _since(block: Block | None, last: float) -> Block | None:
    """Only readings after a moment."""
    if block is None or block.mono[0] > last:
        return block
    later = block.mono > last
    if not later.any():
        return None
    values = {name: each[:, later] for name, each in block.values.items()}
    return Block(block.mono[later], block.things, values)


class Place(NamedTuple):
    """Which seconds take which readings; `early` are those that share a second."""

    columns: Ints
    readings: Ints
    early: bool


def places(start: F64, end: F64) -> Iterator[Place]:
    """Where readings go that tell of the time from `start` to `end`, wall seconds."""
    fine = np.isfinite(end) & (np.abs(end) < MOST_S)
    turns = np.flatnonzero(np.diff(end) <= 0) + 1  # the clock was set back: what follows is later
    for run in np.split(np.arange(len(end)), turns):
        run = run[fine[run]]
        if len(run):
            yield from _in_order(start[run], end[run], run)


def _in_order(start: F64, end: F64, run: Ints) -> Iterator[Place]:
    first = np.floor(start).astype(np.int64)
    last = np.floor(end).astype(np.int64)
    # Each reading's seconds, and not all between the first and the last: a clock may jump by years.
    number = last - first + 1
    at = np.repeat(np.arange(len(run)), number)
    offset = np.arange(len(at)) - np.repeat(np.cumsum(number) - number, number)
    second = first[at] + offset
    inside = (second + 0.5 > start[at]) & (second + 0.5 <= end[at])
    columns, chosen = second[inside], at[inside]
    # Where a clock was set forward two readings may claim one second: the later has it.
    columns, from_end = np.unique(columns[::-1], return_index=True)
    chosen = chosen[::-1][from_end]
    if len(columns):
        yield Place(columns, run[chosen], False)
    missed = np.ones(len(run), np.bool_)
    missed[chosen] = False
    for each in np.flatnonzero(missed).tolist():
        middle = np.array([int(np.floor((start[each] + end[each]) / 2))], np.int64)
        yield Place(middle, run[each : each + 1], True)


def put(pyramid: Pyramid, taken: Taken, values: Array, rows: Ints | None = None) -> None:
    """Write a lane's values (channels, rows, readings) into the seconds they tell of."""
    put_at(pyramid, places(taken.start, taken.end), values, rows)


def put_at(
    pyramid: Pyramid, where: Iterable[Place], values: Array, rows: Ints | None = None
) -> None:
    """The same where the places are known."""
    for place in where:
        some = values[:, :, as_slice(place.readings)]
        pyramid.put(place.columns, some, place.early, rows)


class Rows:
    """Which row of a pyramid a thing has; given in the order in which they come."""

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
        """Their rows; mostly they are those of the segment before."""
        if things != self._known[0]:
            rows = [self._places.setdefault(each, len(self._places)) for each in things]
            self._known = (things, np.array(rows, np.int64))
        return self._known[1]

    def spread(self, things: list[Any], values: Array, absent: float) -> Array:
        """`values` (channels, things, …) as rows; those that are not among them are absent."""
        rows = self.of(things)
        if len(rows) == len(self._places) and (rows == np.arange(len(rows))).all():
            return values
        made = np.full((values.shape[0], len(self), *values.shape[2:]), absent, values.dtype)
        made[:, rows] = values
        return made
