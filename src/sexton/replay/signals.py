"""A recording as signals: what `sexton.explain.aligned` compares.

All times are on the monotonic clock of one boot, so that setting the wall clock has no effect.
Tables are read one after the other, segment by segment, and only the needed columns and segments;
the rates of only one table are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from sexton.explain.aligned import Plan, compare, lay_out, prepare
from sexton.model.aligned import F64, Aligned, Signal
from sexton.model.row import Row, table
from sexton.model.rows.cgroup import CgroupEvent, CgroupEventGap
from sexton.model.rows.event import KernelEvent
from sexton.model.text import printable
from sexton.model.window import GAP_S
from sexton.replay.segment_reader import Near, SegmentReader, inside
from sexton.replay.signal_tables import (
    TABLES,
    core_task_signals,
    device_signals,
    table_signals,
    task_signals,
)
from sexton.replay.span import Span
from sexton.replay.span_reader import SpanReader
from sexton.replay.stacks import function_signals
from sexton.series.sums import Readings, Sums, readings
from sexton.store.arrays import numbers, values
from sexton.store.recording import Recording
from sexton.store.schema import MONO

Window = tuple[float, float]
#: Read around a window, so that its first step has a reading before it: some tables have one every
#: 10 s.
_BEFORE_S = 12.0
_AFTER_S = 11.0


def signals_of(
    recording: Recording, span: Span, near: Sequence[Window] | None = None
) -> Iterator[Signal]:
    """Every signal of the span, or only what these windows need, given the most important first
    (stacks are read for as many of them as is affordable)."""
    reader = SpanReader(recording, span)
    wanted = None
    if near is not None:
        wanted = _joined(sorted((start - _BEFORE_S, end + _AFTER_S) for start, end in near))
    for row in TABLES:
        yield from table_signals(row, reader, wanted)
    for signals in (device_signals, task_signals, core_task_signals, death_signals, log_signals):
        yield from signals(reader, wanted)
    yield from function_signals(recording, span, near)


def _joined(windows: Iterable[Window]) -> list[Window]:
    """Windows in time order, with those that are not a gap apart joined."""
    found: list[Window] = []
    for start, end in windows:
        if found and start - found[-1][1] <= GAP_S:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def recorded_in(recording: Recording, span: Span) -> tuple[Window, ...]:
    """Stretches of the span, on the monotonic clock, in which the recorder ran."""
    segments = (reader.segment for reader in SpanReader(recording, span).segments)
    stretches = chain.from_iterable(segment.stretches() for segment in segments)
    parts = ((max(a[0], span.start[0]), min(b[0], span.end[0])) for a, b in stretches)
    return tuple(_joined((start, end) for start, end in parts if start <= end))


def aligned_in(
    recording: Recording, span: Span, events_mono_s: Sequence[float], plan: Plan | None = None
) -> Aligned:
    """What was different before these events. Windows are chosen first; only they are read."""
    plan = plan or Plan()
    layout = lay_out(events_mono_s, plan.recorded or recorded_in(recording, span), plan)
    return compare(prepare(signals_of(recording, span, layout.windows), layout), plan, layout)


_MOST_MARKS = 200
_ALL = "the whole node"
#: Times of the events in one table, and what each was about.
_Happened = tuple[F64, list[str]]


def death_signals(reader: SpanReader, near: Near) -> Iterator[Signal]:
    """Removed cgroups by the directory they were in, and all of them together."""
    for about, mono, value in _counted(reader, near, CgroupEvent, _deaths):
        yield Signal("cgroup", printable(about), "cgroups removed", "/s", mono, value)


def log_signals(reader: SpanReader, near: Near) -> Iterator[Signal]:
    """Kernel log lines that a pattern matched, by their family."""
    for about, mono, value in _counted(reader, near, KernelEvent, _lines):
        if about != _ALL:
            yield Signal("kernel_log", printable(about), "lines", "/s", mono, value)


def _deaths(reader: SegmentReader) -> _Happened:
    names = ("kind", "path")
    found = reader.segment.table(CgroupEvent, (MONO, *names), coded=names)
    if found is None:
        return np.empty(0), []
    died = np.array([kind == "rmdir" for kind in values(found.column("kind"))], np.bool_)
    paths = values(found.column("path"), np.flatnonzero(died))
    return numbers(found.column(MONO))[died], [path.rpartition("/")[0] or "/" for path in paths]


def _lines(reader: SegmentReader) -> _Happened:
    found = reader.segment.table(KernelEvent, (MONO, "family", "mono_us"), coded=("family",))
    if found is None:
        return np.empty(0), []
    # The kernel's own time: a recorder that starts reads lines that are hours old.
    read, said = (values(found.column(name)) for name in (MONO, "mono_us"))
    when = [a if b is None else b / 1e6 for a, b in zip(read, said, strict=True)]
    return np.array(when, np.float64), values(found.column("family"))


def _counted(
    reader: SpanReader, near: Near, kind: type[Row], happened: Callable[[SegmentReader], _Happened]
) -> Iterator[tuple[str, F64, F64]]:
    codes: dict[str, int] = {_ALL: 0}
    sums = Sums()
    last: float | None = None
    for segment in reader.parts(kind, near, lambda segment_reader: segment_reader):
        moments = _moments(segment, kind)
        moments = moments[inside(moments, reader.span, near)]
        if not len(moments):
            continue
        when = _watched(segment, readings(moments, last), kind)
        last = float(moments[-1])
        times, names = happened(segment) if segment.segment.rows(kind) else (np.empty(0), [])
        at = np.searchsorted(moments, times)
        first = float(when.since[0]) if when.known[0] else moments[0]
        these = (times > first) & (at < len(moments))
        mine = np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)[these]
        at = at[these]
        rate = np.where(when.known[at], 1 / when.spent[at], 0.0)
        keys = np.concatenate([mine, np.zeros(len(mine), np.int64)])
        sums.add(when, keys, np.tile(at, 2), np.tile(rate, 2))
    called = list(codes)
    for code, mono, value in sums.largest(_MOST_MARKS):
        yield called[code], mono, value


def _moments(reader: SegmentReader, kind: type[Row]) -> F64:
    """When the table was read. If it never had rows, to about a second from the manifest, so that
    no file has to be opened."""
    entry = reader.segment.manifest["tables"].get(table(kind), {})
    if reader.segment.rows(kind) or "first" not in entry:
        return np.asarray(reader.readings(kind).mono, np.float64)
    return np.linspace(entry["first"][0], entry["last"][0], int(entry["batches"]))


def _watched(reader: SegmentReader, when: Readings, kind: type[Row]) -> Readings:
    """The readings, with steps in which the trace lost events marked as unknown."""
    if kind is not CgroupEvent or not reader.segment.rows(CgroupEventGap):
        return when
    found = reader.segment.table(CgroupEventGap, (MONO, "lost"))
    if found is None:
        return when
    lost = numbers(found.column(MONO))[numbers(found.column("lost")) > 0]
    # The two are read one after the other, at almost the same moment.
    known = when.known.copy()
    for moment in lost.tolist():
        known[int(np.abs(when.mono - moment).argmin())] = False
    return when._replace(known=known)
