"""Rows of one node over a span of time.

Live and replayed data are the same thing here: batches of rows with the time they were read, and
for every source the state it was in. What was not recorded is `None`. **Absent is not zero.**
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from sexton.model.frozen import Frozen, frozen
from sexton.model.row import Row, fields_of
from sexton.model.rows.node import Node

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    F64 = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]

T = TypeVar("T")
R = TypeVar("R", bound=Row)
#: Readings come every second: a longer pause is a gap in the recording. For a table that is read
#: less often, a step this many times as long as the median one is a gap.
GAP_S, _GAP_STEPS = 15.0, 2.5


class SourceState(NamedTuple):
    """The state of a source: "ok", "absent", "denied", "malformed", "timeout", "skipped", "failed".

    `detail` says what happened in one line; `grant` is what would make it readable, as a command
    if there is one. `reads` and `spent_s` are its own cost; `requested` is true if an option
    enabled it, so that its failure must be reported. `step_s` is the longest time that its counters
    are averages over, if they were scraped by Prometheus and not read by Sexton.
    """

    id: str
    path: str
    state: str
    detail: str = ""
    grant: str = ""
    reads: int = 0
    spent_s: float = 0.0
    requested: bool = False
    step_s: float | None = None


@frozen
class Batch(Frozen, Generic[R]):
    """Rows of one type read at one moment. An empty batch means: read, nothing found.

    `follows` is false if readings between the batch before and this one are missing: left out of a
    long window, or never made. Then nothing is known about the time between the two.
    """

    mono_s: float
    wall_s: float
    rows: tuple[R, ...]
    follows: bool = True


Key = tuple[Hashable, ...]
Wanted = Callable[[Key], bool]
Pairs = list[tuple[float, float]]


class Columns(NamedTuple):
    """Some columns of one table: a row per thing, a column per reading.

    `things` are the values of the table's entity fields, sorted if they are numbers. A value is NaN
    if the kernel did not provide it or the thing did not exist. `follows` is false if readings are
    missing before one.
    """

    mono: F64
    wall: F64
    follows: Bools
    things: list[Key]
    values: dict[str, F64]


def longest_step(mono: F64) -> float:
    """The longest step between these readings that is not a gap."""
    import numpy as np

    if len(mono) < 2:
        return GAP_S
    steps = np.sort(np.diff(mono))  # `np.median` takes ten times as long for so few
    usual = float(steps[(len(steps) - 1) // 2] + steps[len(steps) // 2]) / 2
    return max(GAP_S, _GAP_STEPS * usual)


class Bounds(NamedTuple):
    """The edges of a window: UNIX seconds, and the same moments on the monotonic clock.

    `clock` are further (monotonic, UNIX) moments at which something was read, for windows that do
    not hold every reading.
    """

    start: float
    end: float
    start_mono: float
    end_mono: float
    clock: tuple[tuple[float, float], ...] = ()


class Window:
    """What is known about one node between `start` and `end` (UNIX seconds).

    If `bounds` are given, batches may be older: what was known when the window began.
    """

    def __init__(
        self,
        batches: Mapping[type[Row], Sequence[Batch[Any]]],
        states: Iterable[SourceState] = (),
        providers: Mapping[type[Row], str] | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._batches = {kind: tuple(items) for kind, items in batches.items() if items}
        self.states = {state.id: state for state in states}
        self._providers = dict(providers or {})
        edges = bounds or bounds_of(self._batches.values())
        self.start, self.end = edges.start, edges.end
        self.start_mono, self.end_mono = edges.start_mono, edges.end_mono
        self._clock = edges.clock
        self._kept: dict[Hashable, Any] = {}

    @property
    def seconds(self) -> float:
        """How long was watched, by the monotonic clock."""
        return self.end_mono - self.start_mono

    @property
    def node(self) -> Node | None:
        """Which node this is; `None` if unknown."""
        rows = self.latest(Node)
        return rows[0] if rows else None

    def batches(self, kind: type[R]) -> tuple[Batch[R], ...] | None:
        """Every reading of this row type, oldest first; `None` if it was never read."""
        return cast("tuple[Batch[R], ...] | None", self._batches.get(kind))

    def between(self, kind: type[R], start: float, end: float) -> tuple[Batch[R], ...]:
        """Readings from the last at or before `start` to the first at or after `end`.

        Monotonic seconds. All that happened in between lies between the first and the last.
        """
        items = self.batches(kind) or ()
        mono = attrgetter("mono_s")
        first = max(bisect_right(items, start, key=mono) - 1, 0)
        last = bisect_left(items, end, key=mono)
        return items[first : last + 1]

    def matching(self, kind: type[R], field: str, value: str) -> Iterator[Batch[R]]:
        """Every reading, oldest first, with only the rows that have this text in a column."""
        for batch in self.batches(kind) or ():
            rows = tuple(row for row in batch.rows if getattr(row, field) == value)
            yield Batch(batch.mono_s, batch.wall_s, rows, batch.follows)

    def columns(
        self, kind: type[Row], names: Sequence[str], wanted: Wanted | None = None
    ) -> Iterator[Columns]:
        """Some columns of a table, in one or several pieces, oldest first; none if never read.

        `wanted` chooses things by their key.
        """
        found = columns_of(self._batches.get(kind, ()), kind, names, wanted)
        if found is not None:
            yield found

    def edges(self, kind: type[R]) -> tuple[Batch[R], Batch[R]] | None:
        """Its first and its last reading; `None` if it was never read."""
        items = self.batches(kind)
        return (items[0], items[-1]) if items else None

    def changes(self, kind: type[R], fields: Sequence[str] | None = None) -> Iterator[R]:
        """Rows of things that are new, or that differ in these fields from when last seen.

        In time order; without `fields`, all of them count.
        """
        rows = (row for batch in self.batches(kind) or () for row in batch.rows)
        return changed(rows, kind, fields)

    def distinct(self, kind: type[Row], fields: Sequence[str]) -> list[tuple[Any, ...]]:
        """Every combination of these fields' values that was read, once each."""
        rows = (row for batch in self.batches(kind) or () for row in batch.rows)
        return list(dict.fromkeys(map(values_getter(fields), rows)))

    def earlier(self, kind: type[R]) -> tuple[Batch[R], ...]:  # noqa: ARG002
        """Readings of an event table before the window, of the same boot: a recording has some."""
        return ()

    def read(self, kind: type[Row]) -> bool:
        """Whether it was read at all, with or without rows."""
        return kind in self._batches

    def bounds_of(self, kind: type[Row]) -> tuple[float, float] | None:
        """Its first and its last reading (monotonic seconds); `None` if it was never read."""
        items = self._batches.get(kind)
        return (items[0].mono_s, items[-1].mono_s) if items else None

    def row_count(self, kind: type[Row]) -> int:
        """The number of rows that were read."""
        return sum(len(batch.rows) for batch in self._batches.get(kind, ()))

    def keep(self, name: Hashable, make: Callable[[], T]) -> T:
        """The result of `make`, computed once per window and name."""
        if name not in self._kept:
            self._kept[name] = make()
        return cast("T", self._kept[name])

    def latest(self, kind: type[R]) -> tuple[R, ...] | None:
        """The last reading; `None` if it was never read."""
        items = self.batches(kind)
        return items[-1].rows if items else None

    def all(self, kind: type[R]) -> tuple[R, ...] | None:
        """Rows of every reading, in order: for events, which are read once each."""
        items = self.batches(kind)
        return None if items is None else tuple(row for batch in items for row in batch.rows)

    def why_missing(self, kind: type[Row]) -> SourceState:
        """The state of the source that provides this row."""
        provider = self._providers.get(kind, "")
        return self.states.get(
            provider, SourceState(provider, "", "absent", "not recorded in this window")
        )

    def scraped_every(self, kinds: Iterable[type[Row]]) -> float | None:
        """The longest time that one of these tables is averaged over, of all tables if none of them
        was scraped; `None` if Sexton read the node itself."""
        steps = {name: state.step_s for name, state in self.states.items() if state.step_s}
        mine = [steps[name] for kind in kinds if (name := self._providers.get(kind, "")) in steps]
        return max(mine or steps.values(), default=None)

    def wall(self, mono_s: float) -> float:
        """The UNIX time of a monotonic moment, by the reading nearest to it.

        Not by one offset: the wall clock may jump inside a window.
        """
        return _across(self._clocks()[0], mono_s)

    def mono(self, wall_s: float) -> float:
        """The monotonic moment of a UNIX time, by the reading nearest to it."""
        return _across(self._clocks()[1], wall_s)

    def _clocks(self) -> tuple[Pairs, Pairs]:
        """(monotonic, UNIX) at every reading, and the same the other way round, each sorted."""
        return self.keep("clocks", self._make_clocks)

    def _make_clocks(self) -> tuple[Pairs, Pairs]:
        read = (
            (amount.mono_s, amount.wall_s) for kept in self._batches.values() for amount in kept
        )
        first: dict[float, float] = {}
        for moment, wall in sorted(chain(read, self._clock)):
            first.setdefault(moment, wall)
        return list(first.items()), sorted((wall, mono) for mono, wall in first.items())


def changed(rows: Iterable[R], kind: type[R], fields: Sequence[str] | None) -> Iterator[R]:
    """Rows of things that are new, or that differ in these fields from when last seen."""
    key_of, values_of = values_getter(kind.entity), values_getter(fields or fields_of(kind))
    last: dict[Key, tuple[Any, ...]] = {}
    for row in rows:
        key, values = key_of(row), values_of(row)
        if last.get(key) != values:
            last[key] = values
            yield row


def columns_of(
    batches: Sequence[Batch[Any]],
    kind: type[Row],
    names: Sequence[str],
    wanted: Wanted | None = None,
) -> Columns | None:
    """Rows as columns; of two readings at one moment the later counts."""
    import numpy as np

    later = [batch.mono_s for batch in batches[1:]] + [inf] if batches else []
    kept = [batch for batch, after in zip(batches, later, strict=True) if after > batch.mono_s]
    if not kept:
        return None
    key_of, values_of = values_getter(kind.entity), values_getter(names)
    index: dict[Key, int] = {}
    places: list[int] = []
    readings: list[int] = []
    found: list[tuple[Any, ...]] = []
    before: list[Key] | None = None
    for at, batch in enumerate(kept):
        keys = [key_of(row) for row in batch.rows]
        if keys != before:  # mostly the same things in the same order
            before = keys
            some = [row for row, key in enumerate(keys) if wanted is None or wanted(key)]
            mine = [index.setdefault(keys[row], len(index)) for row in some]
        places += mine
        readings += [at] * len(some)
        found += [values_of(batch.rows[row]) for row in some]
    things = in_order(index)
    made = np.full((len(names), len(index), len(kept)), np.nan)
    if found:
        place = {key: at for at, key in enumerate(things)}
        rows = np.array([place[key] for key in index])[places]
        made[:, rows, readings] = np.array(found, dtype=np.float64).T
    return Columns(
        np.array([batch.mono_s for batch in kept]),
        np.array([batch.wall_s for batch in kept]),
        np.array([batch.follows for batch in kept]),
        things,
        dict(zip(names, made, strict=True)),
    )


def in_order(things: Iterable[Key]) -> list[Key]:
    """Things sorted if their keys are numbers, as in a recording; otherwise in their own order."""
    found = list(things)
    if all(type(part) is int for key in found for part in key):
        found.sort(key=cast("Any", tuple))
    return found


def values_getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these fields of a row, always as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    only = attrgetter(names[0])
    return lambda row: (only(row),)


def _across(clock: Pairs, moment: float) -> float:
    """A moment on the other clock, by the nearest pair; the earlier one if two are equally near."""
    at = bisect_left(clock, (moment,))
    if at == len(clock) or (at and moment - clock[at - 1][0] <= clock[at][0] - moment):
        at -= 1
    here, there = clock[at] if clock else (moment, moment)
    return there + (moment - here)


def bounds_of(tables: Iterable[Sequence[Batch[Any]]]) -> Bounds:
    """From the first to the last of these readings."""
    every = [batch for items in tables for batch in items]
    return Bounds(
        min((batch.wall_s for batch in every), default=0.0),
        max((batch.wall_s for batch in every), default=0.0),
        min((batch.mono_s for batch in every), default=0.0),
        max((batch.mono_s for batch in every), default=0.0),
    )
