"""Rows of one node over a span of time.

Live and replayed data are the same thing here: batches of rows with the time they were read, and
for every source the state it was in. What was not recorded is `None`. **Absent is not zero.**
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from sexton.model.frozen import Frozen, frozen
from sexton.model.node import Node
from sexton.model.row import Row, fields_of

if TYPE_CHECKING:
    import numpy as np

R = TypeVar("R", bound=Row)


class SourceState(NamedTuple):
    """How a source fared: "ok", "absent", "denied", "malformed", "timeout", "skipped", "failed".

    `detail` says what happened in one line; `grant` is what would give us the source, as a
    command where there is one. `reads` and `spent_s` are its own cost; `requested` is true if an
    option enabled it, so that its failure must be reported.
    """

    id: str
    path: str
    state: str
    detail: str = ""
    grant: str = ""
    reads: int = 0
    spent_s: float = 0.0
    requested: bool = False


@frozen
class Batch(Frozen, Generic[R]):
    """Rows of one type read at one moment. An empty batch means: looked, nothing there.

    `follows` is false where readings between the batch before it and this one are not here: left
    out of a long window, or never made. Nothing can be said of the time between the two.
    """

    mono_s: float
    wall_s: float
    rows: tuple[R, ...]
    follows: bool = True


@frozen
class Columns(Frozen):
    """One table as numpy arrays, each as long as the table, with `time` (monotonic seconds)."""

    arrays: Mapping[str, np.ndarray[Any, Any]]

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        return self.arrays[name]


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
    """What is known of one node between `start` and `end` (UNIX seconds).

    Where `bounds` are given, batches may be older: what was known when the window began.
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
        #: When something was read, on both clocks; made when it is first asked for.
        self._readings: list[tuple[float, float]] | None = None

    @property
    def seconds(self) -> float:
        """How long was watched, by the monotonic clock."""
        return self.end_mono - self.start_mono

    @property
    def node(self) -> Node | None:
        """Who this is, `None` where nothing told."""
        rows = self.latest(Node)
        return rows[0] if rows else None

    def batches(self, kind: type[R]) -> tuple[Batch[R], ...] | None:
        """Every reading of this row type, oldest first; `None` if it was never read."""
        return cast("tuple[Batch[R], ...] | None", self._batches.get(kind))

    def latest(self, kind: type[R]) -> tuple[R, ...] | None:
        """The last reading; `None` if it was never read."""
        items = self.batches(kind)
        return items[-1].rows if items else None

    def all(self, kind: type[R]) -> tuple[R, ...] | None:
        """Rows of every reading, in order: for events, which are read once each."""
        items = self.batches(kind)
        return None if items is None else tuple(row for batch in items for row in batch.rows)

    def why_missing(self, kind: type[Row]) -> SourceState:
        """The state of the source that would have given this row."""
        provider = self._providers.get(kind, "")
        return self.states.get(
            provider, SourceState(provider, "", "absent", "not recorded in this window")
        )

    def wall(self, mono_s: float) -> float:
        """The UNIX time of a monotonic moment, by the batch read nearest to it.

        By the nearest and not by one offset: the wall clock may jump inside a window.
        """
        if self._readings is None:
            read = ((each.mono_s, each.wall_s) for kept in self._batches.values() for each in kept)
            first: dict[float, float] = {}
            for moment, wall in sorted(chain(read, self._clock)):
                first.setdefault(moment, wall)
            self._readings = list(first.items())
        at = bisect_left(self._readings, (mono_s,))
        near = min(
            self._readings[max(at - 1, 0) : at + 1],
            key=lambda each: (abs(each[0] - mono_s), each),
            default=(mono_s, mono_s),
        )
        return near[1] + (mono_s - near[0])

    def columns(self, kind: type[Row]) -> Columns | None:
        """The table as arrays, for arithmetic over many rows: hours of many cores."""
        items = self.batches(kind)
        if items is None:
            return None
        import numpy as np

        arrays = {
            name: np.array([getattr(row, name) for batch in items for row in batch.rows])
            for name in fields_of(kind)
        }
        arrays["time"] = np.repeat(
            [batch.mono_s for batch in items], [len(batch.rows) for batch in items]
        )
        return Columns(arrays)


def bounds_of(tables: Iterable[Sequence[Batch[Any]]]) -> Bounds:
    """From the first to the last of these readings."""
    every = [batch for items in tables for batch in items]
    return Bounds(
        min((batch.wall_s for batch in every), default=0.0),
        max((batch.wall_s for batch in every), default=0.0),
        min((batch.mono_s for batch in every), default=0.0),
        max((batch.mono_s for batch in every), default=0.0),
    )
