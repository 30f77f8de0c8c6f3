"""A recording as signals, and the events in it: what `sexton.explain.aligned` compares.

Everything is by the monotonic clock of one boot: a wall clock that is set moves nothing. Tables are
gone through one after the other, segment by segment, and only those columns and segments are read
that are asked for; a table's rates are in memory while its signals are taken, never two tables'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sexton.explain.aligned import Plan, compare, lay_out, prepare
from sexton.model.aligned import Aligned, Signal
from sexton.model.event import KernelEvent
from sexton.model.recorder import Alarm, Mark
from sexton.model.row import Row
from sexton.model.window import Batch
from sexton.replay.signal_functions import function_signals
from sexton.replay.signal_marks import death_signals, log_signals
from sexton.replay.signal_tables import TABLES, device_signals, table_signals
from sexton.replay.signal_tasks import core_task_signals, task_signals
from sexton.replay.span import Span
from sexton.replay.span_reader import SpanReader
from sexton.series.rates import GAP_S
from sexton.store.recording import Recording

Window = tuple[float, float]
#: Around a window, so that its first step has a reading before it: some tables are read every 10 s.
_BEFORE_S = 12.0
_AFTER_S = 11.0
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
    reader = SpanReader(recording, span)
    wanted = None if near is None else _apart(near)
    for row in TABLES:
        yield from table_signals(row, reader, wanted)
    for signals in (device_signals, task_signals, core_task_signals, death_signals, log_signals):
        yield from signals(reader, wanted)
    yield from function_signals(recording, span, near)


def _apart(windows: Sequence[Window]) -> list[Window]:
    """What is read for these windows: in order, and apart from one another."""
    found: list[Window] = []
    for start, end in sorted((start - _BEFORE_S, end + _AFTER_S) for start, end in windows):
        if found and start <= found[-1][1] + GAP_S:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def recorded_in(recording: Recording, span: Span) -> tuple[Window, ...]:
    """Stretches of the span, on the monotonic clock, in which the recorder ran."""
    found: list[Window] = []
    for each in SpanReader(recording, span).segments:
        start = max(each.segment.start[0], span.start[0])
        end = min(each.segment.end[0], span.end[0])
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
    reader = SpanReader(recording, span)
    if kind in _MARKED:
        return sorted({each.mono_s for each in _batches(reader, Mark) if each.rows})
    families = _FAMILIES.get(kind, (kind,))
    said = {
        row.mono_us / 1e6
        for batch in _batches(reader, KernelEvent)
        for row in batch.rows
        if row.family in families and row.mono_us is not None
    }
    told = _each_once(each for each in said if span.holds(each))
    if told:
        return told
    alarms = {
        batch.mono_s for batch in _batches(reader, Alarm) for row in batch.rows if row.kind == kind
    }
    return sorted(alarms)


def aligned_in(
    recording: Recording, span: Span, events_mono_s: Sequence[float], plan: Plan | None = None
) -> Aligned:
    """What was different before these events: windows first, and then only what they need."""
    plan = plan or Plan()
    layout = lay_out(events_mono_s, plan.recorded or recorded_in(recording, span), plan)
    return compare(prepare(signals_of(recording, span, layout.windows), layout), plan, layout)


def _batches(reader: SpanReader, kind: type[Row]) -> Iterator[Batch[Any]]:
    """Readings that brought something."""
    rows = sum(each.segment.rows(kind) for each in reader.having(kind))
    return reader.batches(kind) if rows else iter(())


def _each_once(moments: Iterable[float]) -> list[float]:
    found: list[float] = []
    last = float("-inf")
    for each in sorted(moments):
        if each - last > _ONE_S:
            found.append(each)
        last = each
    return found
