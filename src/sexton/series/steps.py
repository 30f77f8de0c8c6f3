"""Steps between rows, for tables that are too rare to be columns; the rules are those of `rates`.

A counter that went backwards was reset (a driver reload, a wrap, a reused id): the step is
unknown, never negative and never "everything since zero".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from sexton.model.counters import delta
from sexton.model.frozen import Frozen, frozen
from sexton.model.row import Row
from sexton.model.window import Batch, Window

R = TypeVar("R", bound=Row)
N = TypeVar("N", int, float)


@frozen
class Step(Frozen, Generic[R]):
    """One entity between two readings, `seconds` apart."""

    start_mono: float
    end_mono: float
    before: R
    after: R

    @property
    def seconds(self) -> float:
        return self.end_mono - self.start_mono

    def delta(self, field: str) -> int | None:
        """How much a counter moved; `None` if it is absent or went backwards."""
        # `counters.delta` is too slow: a night has half a million of these.
        before, after = getattr(self.before, field), getattr(self.after, field)
        if before is None or after is None or after < before:
            return None
        moved: int = after - before
        return moved

    def delta_at(self, field: str, place: int) -> int | None:
        """The same for one of several counters in a field."""
        return delta(getattr(self.before, field)[place], getattr(self.after, field)[place])

    def rate(self, field: str) -> float | None:
        """The same per second."""
        moved = self.delta(field)
        return None if moved is None else moved / self.seconds


def known_sum(moved: Iterable[int | None]) -> int | None:
    """The sum of the known changes; `None` if none is known.

    >>> known_sum([3, None, 4]), known_sum([None])
    (7, None)
    """
    known = [amount for amount in moved if amount is not None]
    return sum(known) if known else None


def last_rate(levels: Sequence[tuple[float, float]], least_s: float) -> float | None:
    """How fast a gauge moved at the end, in per cent of itself per second: since the last moment
    at least `least_s` before the end. `None` if there is no such moment.

    >>> last_rate([(0.0, 50), (1.5, 200), (2.0, 190), (2.5, 180)], 1.0)
    -10.0
    """
    end, last = levels[-1]
    since = next((level for level in reversed(levels) if end - level[0] >= least_s), None)
    if since is None:
        return None
    return 100.0 * (last - since[1]) / max(since[1], 1) / (end - since[0])


def rise(before: N, after: N) -> N:
    """How a gauge changed from one reading to another, up or down.

    >>> rise(9, 5)
    -4
    """
    return after - before


def freed_between(before: int | None, after: int | None) -> int | None:
    """How far a gauge fell from one count to another: 0 if it rose, because others add to it while
    somebody frees; `None` if one of the two is unknown.

    >>> freed_between(9, 5), freed_between(5, 9), freed_between(None, 5)
    (4, 0, None)
    """
    return None if before is None or after is None else max(0, before - after)


def rises(levels: Sequence[int], places: Sequence[int] | None = None) -> list[int]:
    """Changes of a gauge, up or down, from each reading (or each of `places`) to the next.

    >>> rises((5, 9, 2)), rises((5, 9, 2), (0, 2))
    ([4, -7], [-3])
    """
    chosen = levels if places is None else [levels[at] for at in places]
    return [rise(before, after) for before, after in pairwise(chosen)]


def steps(
    batches: Sequence[Batch[R]], key: Callable[[R], Hashable], *, over_gaps: bool = False
) -> Iterator[tuple[Hashable, Step[R]]]:
    """Every entity's step between consecutive readings; entities that came or went have none.

    There is no step across missing readings: its rate would be an average over an unknown time.
    Callers that sum raw values also need those steps (`over_gaps`).
    """
    named: tuple[Batch[R], dict[Hashable, R]] | None = None  # so that keys are made once
    for earlier, later in pairwise(batches):
        if later.mono_s <= earlier.mono_s:
            continue  # a duplicate reading
        if not (later.follows or over_gaps):
            continue
        if named is None or named[0] is not earlier:
            named = (earlier, {key(row): row for row in earlier.rows})
        known = named[1]
        called = [key(row) for row in later.rows]
        for name, row in zip(called, later.rows, strict=True):
            before = known.get(name)
            if before is not None:
                yield name, Step(earlier.mono_s, later.mono_s, before, row)
        named = (later, dict(zip(called, later.rows, strict=True)))


def span(batches: Sequence[Batch[R]], key: Callable[[R], Hashable]) -> dict[Hashable, Step[R]]:
    """Every entity's step between its first and its last reading."""
    first: dict[Hashable, tuple[float, R]] = {}
    last: dict[Hashable, tuple[float, R]] = {}
    for batch in batches:
        for row in batch.rows:
            first.setdefault(key(row), (batch.mono_s, row))
            last[key(row)] = (batch.mono_s, row)
    return {
        name: Step(start, last[name][0], row, last[name][1])
        for name, (start, row) in first.items()
        if last[name][0] > start
    }


def span_around(
    window: Window, kind: type[R], key: Callable[[R], Hashable], between: tuple[float, float]
) -> dict[Hashable, Step[R]]:
    """The same over the readings around a span (UNIX seconds): from the last before it to the first
    after it, so that nothing inside is lost."""
    return span(window.between(kind, *(window.mono(value) for value in between)), key)
