"""A recording as signals, and the events in it: what `sexton.explain.aligned` compares.

Everything is by the monotonic clock of one boot: a wall clock that is set moves nothing. Tables are
gone through one after the other, segment by segment, and only those columns and segments are read
that are asked for; a table's rates are in memory while its signals are taken, never two tables'.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from sexton.explain.aligned import Layout, Measured, Plan, compare, lay_out, prepare
from sexton.model.aligned import Aligned, Signal
from sexton.model.cgroup import CgroupEvent
from sexton.model.event import KernelEvent
from sexton.model.net import NicCounter
from sexton.model.recorder import Alarm, Mark
from sexton.model.row import Row
from sexton.model.task import Process, Thread
from sexton.model.window import Batch
from sexton.replay.reader_pool import Crew
from sexton.replay.signal_functions import function_signals
from sexton.replay.signal_marks import death_signals, log_signals
from sexton.replay.signal_tables import TABLES, device_signals, table_signals
from sexton.replay.signal_tasks import core_task_signals, task_signals
from sexton.replay.span import GAP_S, Span
from sexton.replay.span_reader import Book, Shelf, events
from sexton.store.recording import Recording

Window = tuple[float, float]
#: Around a window, so that its first step has a reading before it: some tables are read every 10 s.
_BEFORE_S = 12.0
_AFTER_S = 11.0
_MOST_EVENTS = 100_000
#: Lines of one happening follow one another within this.
_ONE_S = 10.0
#: What tells of an event, where its name alone does not.
_FAMILIES = {
    "nic_reset": ("nic_reset", "nic_watchdog", "nic_starved"),
    "soft_lockup": ("soft_lockup", "hard_lockup", "rcu_stall"),
}
_MARKED = ("job", "mark")


def signals_of(
    recording: Recording, span: Span, near: Sequence[Window] | None = None
) -> Iterator[Signal]:
    """Every signal of the span; or only what is needed of it for these windows, the most important
    first (stacks are read for as many of them as is affordable)."""
    for part in _parts(recording, span, near):
        yield from part.signals()


class _Part(NamedTuple):
    """Signals of one table, read when they are asked for; `rows` says about how long that takes.
    What stacks there are nobody has counted: they come first, and take no time where there are
    none."""

    signals: Callable[[], Iterator[Signal]]
    rows: int


def _parts(recording: Recording, span: Span, near: Sequence[Window] | None) -> Iterator[_Part]:
    books = _books(recording, span, near)
    found: list[tuple[type[Row], Callable[..., Iterator[Signal]]]] = [
        *((row, partial(table_signals, row)) for row in TABLES),
        (NicCounter, device_signals),
        (Process, task_signals),
        (Thread, core_task_signals),
        (CgroupEvent, death_signals),
        (KernelEvent, log_signals),
    ]
    most = 1
    for row, signals in found:
        rows = sum(book.segment.rows(row) for book in books)
        most = max(most, rows)
        yield _Part(partial(signals, books, span), rows)
    yield _Part(partial(function_signals, recording, span, near), most)


def _books(recording: Recording, span: Span, near: Sequence[Window] | None) -> list[Book]:
    books = Shelf(recording, span).books
    if near is None:
        return books
    wanted = sorted((start - _BEFORE_S, end + _AFTER_S) for start, end in near)
    longest = max((end - start for start, end in wanted), default=0.0)
    starts = [start for start, _ in wanted]
    found = []
    for book in books:
        first, last = book.segment.start[0], book.segment.end[0]
        some = wanted[bisect_left(starts, first - longest) : bisect_left(starts, last)]
        if any(end >= first for _, end in some):
            found.append(book)
    return found


def recorded_in(recording: Recording, span: Span) -> tuple[Window, ...]:
    """Stretches of the span, on the monotonic clock, in which the recorder ran."""
    found: list[Window] = []
    for book in Shelf(recording, span).books:
        start = max(book.segment.start[0], span.start[0])
        end = min(book.segment.end[0], span.end[0])
        if found and start - found[-1][1] <= GAP_S:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)


def events_in(recording: Recording, span: Span, kind: str) -> list[float]:
    """When something happened, on the monotonic clock, oldest first; each happening once.

    `kind` is "job" (somebody marked one), a family of kernel log lines ("nic_reset",
    "soft_lockup", …) or an alarm of the recorder ("held_core", "zombie_memcgs", …). Where the log
    tells of something, the alarm that was raised for it says nothing more.
    """
    shelf = Shelf(recording, span)
    if kind in _MARKED:
        return sorted({each.mono_s for each in _batches(shelf, Mark) if each.rows})
    families = _FAMILIES.get(kind, (kind,))
    said = {
        row.mono_us / 1e6
        for batch in _batches(shelf, KernelEvent)
        for row in batch.rows
        if row.family in families and row.mono_us is not None
    }
    told = _each_once(each for each in said if span.holds(each))
    if told:
        return told
    alarms = {
        batch.mono_s for batch in _batches(shelf, Alarm) for row in batch.rows if row.kind == kind
    }
    return sorted(alarms)


def aligned_in(
    recording: Recording,
    span: Span,
    events_mono_s: Sequence[float],
    plan: Plan | None = None,
    crew: Crew | None = None,
) -> Aligned:
    """What was different before these events: windows first, and then only what they need."""
    plan = plan or Plan()
    layout = lay_out(events_mono_s, plan.recorded or recorded_in(recording, span), plan)
    parts = list(_parts(recording, span, layout.windows))
    crew = crew or Crew(recording, 1)
    weights = [part.rows for part in parts]
    found = crew.each(partial(_measured, layout), parts, weights=weights)
    return compare([each for some in found for each in some], plan, layout)


def _measured(layout: Layout, part: _Part) -> list[Measured]:
    return prepare(part.signals(), layout)


def _batches(shelf: Shelf, kind: type[Row]) -> Sequence[Batch[Any]]:
    return events(shelf, kind, _MOST_EVENTS)[0] if shelf.having(kind) else ()


def _each_once(moments: Iterable[float]) -> list[float]:
    found: list[float] = []
    last = float("-inf")
    for each in sorted(moments):
        if each - last > _ONE_S:
            found.append(each)
        last = each
    return found
