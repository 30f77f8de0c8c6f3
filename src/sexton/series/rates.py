"""Turn counters into amounts and rates; nothing else in Sexton does.

A step is the time from one reading of a table to the next. The amount of a counter in a step is
unknown, never zero and never "everything since boot", if

- the counter went backwards: it was reset, it wrapped, or its id was reused;
- readings are missing in between: the recorder paused, a segment is damaged (`Columns.follows`);
- the thing was not read at both ends.

Unknown is NaN in arrays and `None` in single numbers.

**Across a gap.** The kernel counts on while nothing reads. So a caller that judges how much there
was, and not when, may have the step across missing readings, too (`over_gaps`): a mean above a
limit was above it, or further above for a part. A mean below it may hide a shorter stretch: see
`hidden_s`.

>>> import numpy as np
>>> from sexton.model.window import Columns
>>> def read(*values, follows=True):
...     mono = np.arange(len(values), dtype=float)
...     kept = np.array([follows] * len(values))
...     return Columns(mono, mono, kept, [("a",)], {"n": np.array([values], dtype=float)})
>>> steps_of([read(5, 9, 2, 3)]).moved["n"].tolist()
[[4.0, nan, 1.0]]
>>> parts = [read(5, 9), read(12, follows=False)._replace(mono=np.array([20.0]))]
>>> steps_of(parts).moved["n"].tolist(), steps_of(parts, over_gaps=True).moved["n"].tolist()
([[4.0]], [[4.0, 3.0]])
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt

from sexton.model.row import Row
from sexton.model.window import Columns, Key, Window

T = TypeVar("T")
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
#: Readings come a little early or late: nine tenths of a limit in seconds count as that limit.
SLACK = 0.9
#: Only the beginning of a long stretch is examined closely: a long window keeps that much whole.
CLOSE_S = 55.0
#: Every table that detectors judge by the second is read at least every ten seconds: in a longer
#: step nobody looked.
BLIND_S = 10.0


class Timed(Protocol):
    """The time between two readings (monotonic seconds)."""

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...


def lasts(seconds: float, limit: float) -> bool:
    """Did something last this long, within the precision of readings?"""
    return seconds >= limit * SLACK


def hidden_s(window: Window, step: tuple[F64, F64], amount: Floats, lasting: float = 1.0) -> float:
    """Seconds of the steps in which nobody looked, and in which `amount` is enough for `lasting`
    seconds at a limit: it is in units of the limit times seconds. The mean does not show those."""
    start, end = step
    seconds: F64 = end - start
    enough = (seconds >= BLIND_S) & (amount >= lasting * SLACK)
    return float(seconds[enough].sum()) if counts_on(window) else 0.0


def counts_on(window: Window) -> bool:
    """Whether counters that were read before and after a gap tell what was in it. Those of a
    Prometheus may be of two boots."""
    return window.scraped_every(()) is None


def mostly_in(step: Timed, start: float, end: float) -> bool:
    """Whether at least half of a step is inside a span: tables are read a moment apart."""
    overlap = min(step.end, end) - max(step.start, start)
    return overlap >= (step.end - step.start) / 2


def percent_of(ms: float, seconds: float) -> float:
    """Milliseconds in per cent of so many seconds."""
    return ms / 10 / seconds


class Amount(NamedTuple):
    """How far a counter moved in its known steps, and their seconds."""

    amount: float
    seconds: float

    @property
    def rate(self) -> float:
        """The amount per second."""
        return self.amount / self.seconds


class Steps(NamedTuple):
    """Amounts by which counters moved: a row per thing, a column per step from `start` to `end`.

    Monotonic seconds; `wall` is the UNIX time of the step's end.
    """

    start: F64
    end: F64
    wall: F64
    things: list[Key]
    moved: dict[str, F64]

    @property
    def seconds(self) -> F64:
        return self.end - self.start

    def rate(self, name: str) -> F64:
        """The amount of a counter per second."""
        made: F64 = self.moved[name] / self.seconds
        return made

    def over(self, name: str, start: float, end: float) -> dict[Key, Amount]:
        """By thing, the amount of a counter in the steps that are mostly inside a span; without
        those of which no such step is known."""
        overlap = np.minimum(self.end, end) - np.maximum(self.start, start)
        inside = np.flatnonzero(overlap >= self.seconds / 2)
        moved, seconds = self.moved.get(name, np.empty((0, 0)))[:, inside], self.seconds[inside]
        known = ~np.isnan(moved)
        sums, spent = np.where(known, moved, 0.0).sum(axis=1), (known * seconds).sum(axis=1)
        return {
            self.things[row]: Amount(float(sums[row]), float(spent[row]))
            for row in np.flatnonzero(known.any(axis=1)).tolist()
        }


class Born(NamedTuple):
    """How to recognise a thing that is new since the previous reading, and so counted from zero:
    its `field` is at most `rate` per second. If `field` is larger, the thing is older. If `field`
    went back, the thing was recreated under the same name: that step counts as zero."""

    field: str
    rate: float


class Stepper:
    """Makes steps from columns in pieces; the last reading of each piece is kept for the next.

    A value that falls was reset, unless it is a gauge (`may_fall`). With `over_gaps` there is a
    step across missing readings, too.
    """

    def __init__(
        self, born: Born | None = None, may_fall: bool = False, *, over_gaps: bool = False
    ) -> None:
        self._last: Columns | None = None
        self._born = born
        self._may_fall = may_fall
        self._over_gaps = over_gaps

    def add(self, columns: Columns) -> Steps:
        """The steps up to each of these readings, the first from the last one of the last piece."""
        before = self._last
        if self._over_gaps:
            columns = columns._replace(follows=np.ones(len(columns.mono), np.bool_))
        self._last = with_last(columns)
        start, follows = columns.mono, columns.follows
        if before is not None and (not follows[0] or before.mono[0] >= start[0]):
            before = None
        first: dict[str, F64] = {}
        if before is None:
            start, follows, skipped = start[:-1], follows[1:], 1
        else:
            start, skipped = np.append(before.mono, start[:-1]), 0
            first = _same_things(before, columns.things)
        moved = {
            name: self._moved(value, first.get(name), follows)
            for name, value in columns.values.items()
        }
        if self._born is not None:
            joined = columns if before is None else prepend(before, columns)
            _count_births(joined, moved, self._born)
        end, wall = columns.mono[skipped:], columns.wall[skipped:]
        return Steps(start, end, wall, columns.things, moved)

    def _moved(self, value: F64, first: F64 | None, follows: Bools) -> F64:
        if first is None:
            moved: F64 = np.diff(value, axis=1)
        else:  # without a copy of the readings: twelve hours of 96 cores are 265 MB
            moved = np.empty(value.shape)
            np.subtract(value[:, :1], first, out=moved[:, :1])
            np.subtract(value[:, 1:], value[:, :-1], out=moved[:, 1:])
        if not self._may_fall and (fell := moved < 0).any():
            moved[fell] = np.nan
        if not follows.all():
            moved[:, ~follows] = np.nan
        return moved


def _count_births(columns: Columns, moved: dict[str, F64], born: Born) -> None:
    value = columns.values[born.field]
    seconds = np.diff(columns.mono)
    new = np.isnan(value[:, :-1]) & (value[:, 1:] <= born.rate * seconds + 1)
    new &= columns.follows[1:]
    anew = (value[:, 1:] < value[:, :-1]) & columns.follows[1:]
    for name, array in columns.values.items():
        moved[name][new] = array[:, 1:][new]
        moved[name][anew] = 0.0


def with_last(columns: Columns) -> Columns:
    """The last reading alone, copied so that the others can be freed."""
    return Columns(
        columns.mono[-1:],
        columns.wall[-1:],
        columns.follows[-1:],
        columns.things,
        {name: value[:, -1:].copy() for name, value in columns.values.items()},
    )


def _same_things(before: Columns, things: list[Key]) -> dict[str, F64]:
    """The values of one reading for these things; NaN for new ones."""
    if before.things == things:
        return before.values
    known = {thing: at for at, thing in enumerate(before.things)}
    at = np.array([known.get(thing, -1) for thing in things], np.int64)
    return {
        name: np.append(value[:, 0], np.nan)[at][:, None] for name, value in before.values.items()
    }


def prepend(before: Columns, columns: Columns) -> Columns:
    """The readings with the previous one (`before`) in front."""
    first = _same_things(before, columns.things)
    return Columns(
        np.concatenate([before.mono, columns.mono]),
        np.concatenate([before.wall, columns.wall]),
        np.concatenate([[True], columns.follows]),
        columns.things,
        {name: np.concatenate([first[name], value], axis=1)
         for name, value in columns.values.items()},
    )  # fmt: skip


def steps_of(
    pieces: Iterable[Columns], born: Born | None = None, *, over_gaps: bool = False
) -> Steps:
    """All steps; a thing that is missing from a piece is unknown there."""
    stepper = Stepper(born, over_gaps=over_gaps)
    return joined([stepper.add(piece) for piece in pieces])


def joined(parts: Sequence[Steps]) -> Steps:
    """The steps of all pieces; a thing that is missing from one is unknown there."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Steps(np.empty(0), np.empty(0), np.empty(0), [], {})
    index: dict[Key, int] = {}
    for part in parts:
        for thing in part.things:
            index.setdefault(thing, len(index))
    names = list(dict.fromkeys(name for part in parts for name in part.moved))
    total = sum(len(part.end) for part in parts)
    made = {name: np.full((len(index), total), np.nan) for name in names}
    at = 0
    for part in parts:
        rows = np.array([index[thing] for thing in part.things], np.int64)
        width = len(part.end)
        for name, moved in part.moved.items():
            made[name][rows, at : at + width] = moved
        at += width
    return Steps(
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.end for part in parts]),
        np.concatenate([part.wall for part in parts]),
        list(index),
        made,
    )


def totals(pieces: Iterable[Columns]) -> dict[Key, dict[str, float]]:
    """The total amount of every counter, also across missing readings; a step back counts as zero.

    A counter that was read only once, or only went back, is left out.
    """
    found: dict[Key, dict[str, float]] = {}
    last: dict[str, dict[Key, float]] = {}
    for piece in pieces:
        for name, value in piece.values.items():
            ends = last.setdefault(name, {})
            before = np.array([ends.get(thing, np.nan) for thing in piece.things])
            filled = carried(np.concatenate([before[:, None], value], axis=1))
            moved = np.diff(filled, axis=1)
            rises = moved >= 0
            sums = np.where(rises, moved, 0.0).sum(axis=1).tolist()
            # A value that is unchanged because it was not read is not a step of zero.
            steps = np.asarray((rises & ~np.isnan(value)).any(axis=1))
            for thing, total, known, end in zip(
                piece.things, sums, steps, filled[:, -1].tolist(), strict=True
            ):
                if known:
                    mine = found.setdefault(thing, {})
                    mine[name] = mine.get(name, 0.0) + total
                ends[thing] = end
    return found


def totals_in(window: Window, kind: type[Row], *fields: str) -> dict[Key, dict[str, float]] | None:
    """The same over a window; `None` if the table was not read twice."""
    edges = window.bounds_of(kind)
    if edges is None or edges[0] == edges[1]:
        return None
    return window.keep(("totals", kind, fields), lambda: totals(window.columns(kind, fields)))


def carried(values: F64) -> F64:
    """Unknown values replaced by the last known one; NaN if there is none."""
    known = ~np.isnan(values)
    if known.all():
        return values
    at = np.maximum.accumulate(np.where(known, np.arange(values.shape[1]), 0), axis=1)
    made: F64 = np.take_along_axis(values, at, axis=1)
    return made


def stretches(start: F64, end: F64, longest_s: float) -> Ints:
    """Per step: the first step of the gapless stretch of at most `longest_s` that ends with it."""
    number = np.arange(len(end))
    breaks = np.append(True, start[1:] != end[:-1])
    unbroken = np.maximum.accumulate(np.where(breaks, number, 0))
    first = np.searchsorted(start, end - longest_s, "left")
    made: Ints = np.minimum(np.maximum(first, unbroken), number)
    return made


def sums(values: Floats, first: Ints) -> F64:
    """Per step: the sum of the known values from `first` (see `stretches`) up to it."""
    total = np.concatenate([[0.0], np.cumsum(np.nan_to_num(values), dtype=np.float64)])
    made: F64 = total[1:] - total[first]
    return made


class Run(NamedTuple):
    """Consecutive steps of one thing at or above a limit: columns `first` to `last`."""

    row: int
    first: int
    last: int
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def lasts(self, seconds: float) -> bool:
        """Did it last this long, within the precision of readings?"""
        return lasts(self.seconds, seconds)

    def overlap(self, start: float, end: float) -> float:
        """Seconds it has in common with a span."""
        return max(0.0, min(self.end, end) - max(self.start, start))


class Series(NamedTuple):
    """One metric of many things over time: `values` has a row per thing, a column per step."""

    start: F64
    end: F64
    wall: F64
    things: list[Key]
    values: Floats

    @property
    def seconds(self) -> F64:
        return self.end - self.start

    def inside(self, start: float, end: float) -> slice:
        """The steps that overlap a span."""
        first = int(np.searchsorted(self.end, start, "right"))
        last = int(np.searchsorted(self.start, end, "left"))
        return slice(first, max(last, first))


def runs(times: Series | Steps, above: Bools) -> Iterator[Run]:
    """Stretches of consecutive steps that are marked in `above`, thing by thing."""
    touches = np.append(False, times.start[1:] == times.end[:-1])
    if not above.any():
        return
    begins = above & ~np.pad(above[:, :-1] & touches[1:], ((0, 0), (1, 0)))
    rows, firsts = np.nonzero(begins)
    ends = above & ~np.pad(above[:, 1:] & touches[1:], ((0, 0), (0, 1)))
    _, lasts = np.nonzero(ends)
    found = zip(rows.tolist(), firsts.tolist(), lasts.tolist(), strict=True)
    for row, first, last in found:
        yield Run(row, first, last, float(times.start[first]), float(times.end[last]))


class Lazy(Sequence[T]):
    """A sequence whose elements are made on access: a night has 43,200 steps."""

    def __init__(self, number: int) -> None:
        self._number = number

    @abstractmethod
    def make(self, at: int) -> T:
        """The element at an index."""

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> list[T]: ...

    def __getitem__(self, at: int | slice) -> T | list[T]:
        chosen = range(self._number)[at]
        return self.make(chosen) if isinstance(chosen, int) else list(map(self.make, chosen))


def nearest(mono: F64, moment: float, within: float) -> int | None:
    """The index of the reading nearest to a moment; `None` if none is `within` that many seconds.

    >>> [nearest(np.array([0.0, 1.0, 2.0]), moment, 2.0) for moment in (-9.0, -1.0, 1.2, 1.9, 3.0)]
    [None, 0, 1, 2, 2]
    """
    after = int(np.searchsorted(mono, moment))
    places = [at for at in (after - 1, after) if 0 <= at < len(mono)]
    at = min(places, key=lambda place: abs(mono[place] - moment), default=None)
    return None if at is None or abs(mono[at] - moment) > within else at
