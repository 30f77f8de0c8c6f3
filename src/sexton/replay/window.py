"""A recording read back as a window, for the same detectors that judge live.

Nothing is read before it is needed. `columns` goes through a table segment by segment, `between`
and `latest` read single segments, `batches` makes rows of everything and is meant for events and
small tables.

The window begins and ends with the span. Older readings of the same boot are used if the span has
none: those made hourly. Log lines of the kernel and of services from before are part of it (live,
the kernel's ring buffer would still hold them), and so are names of pods, which may be gone by now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import inf, nextafter
from typing import Any, TypeVar, cast

import numpy as np

from sexton.detect.registry import settings_in_force
from sexton.errors import StoreError
from sexton.model.row import Row, fields_of
from sexton.model.rows.cgroup import CgroupEvent, CgroupEventGap
from sexton.model.rows.cpu import CoreTimes, ProbeCost, SoftirqWait
from sexton.model.rows.event import KernelEvent, KernelLog, ServiceEvent
from sexton.model.rows.kubernetes import Container, Pod
from sexton.model.rows.recorder import Alarm, Mark, RecorderCost, RecorderNote
from sexton.model.rows.task import Thread
from sexton.model.rows.trace import StackCount
from sexton.model.rows.unit import RestartMark
from sexton.model.settings import differences
from sexton.model.text import count, moment
from sexton.model.window import (
    Batch,
    Bounds,
    Columns,
    SourceState,
    Wanted,
    Window,
    changed,
    columns_of,
)
from sexton.replay.segment_reader import SegmentReader
from sexton.replay.span import Span
from sexton.replay.span_reader import SpanReader
from sexton.replay.stacks import stacks_in
from sexton.store.recording import JUMP_S, Recording, Segment

R = TypeVar("R", bound=Row)
_Batches = tuple[Batch[Any], ...]

#: Log lines from before the span are part of the window; how many rows of them are read.
_MEMORY: tuple[type[Row], ...] = (KernelEvent, RestartMark, ServiceEvent)
_MOST_REMEMBERED = 100_000
#: Events: most of their readings are empty and need not be kept.
_EVENTS: tuple[type[Row], ...] = (*_MEMORY, CgroupEvent, CgroupEventGap, Container, Pod)
#: Names, of which `distinct` also gives those from before the span. There are too many for rows.
_NAMES: tuple[type[Row], ...] = (Container, Pod)
#: Rows about a moment, which are not valid later.
OF_A_MOMENT: tuple[type[Row], ...] = (
    CoreTimes, Thread, CgroupEvent, CgroupEventGap, SoftirqWait, ProbeCost, StackCount,
    Alarm, Mark, RecorderNote, RecorderCost, KernelLog, *_MEMORY, *_NAMES,
)  # fmt: skip
#: A table with more rows than this is not kept in memory as rows.
_MOST_KEPT = 200_000
_MOST_DIFFERENCES = 8


class Replay:
    """A span read back: its window, and notes for the reader of the verdict."""

    def __init__(self, recorded: RecordedWindow) -> None:
        self.window: Window = recorded
        self._recorded = recorded

    @property
    def notes(self) -> tuple[str, ...]:
        """Complete only after the window was judged: damage is found when it is read."""
        return self._recorded.notes


def window(recording: Recording, span: Span) -> Replay:
    """The span as a window; `StoreError` if nothing is recorded in it."""
    return Replay(RecordedWindow(recording, span))


class RecordedWindow(Window):
    """A span of a recording, read when needed."""

    def __init__(self, recording: Recording, span: Span) -> None:
        self._reader = SpanReader(recording, span)
        if not self._reader.segments:
            raise StoreError(f"{recording.path}: nothing is recorded in this span")
        self._recording = recording
        self._before = _before(recording, span)
        last = self._reader.segments[-1].segment
        super().__init__({}, last.states, last.providers, _bounds(self._reader))
        self._notes = [*span.notes, *_configured(self._reader.segments)]
        self._rows: dict[type[Row], _Batches | None] = {}
        #: Every segment of the boot: moments before the span have a wall time too.
        whole = Span(span.boot_id, (-inf, 0.0), (inf, 0.0))
        self._clock_reader = SpanReader(recording, whole)
        stacks, notes = stacks_in(recording, span)
        self._notes += notes
        if stacks is not None:
            self._rows[StackCount] = (stacks,)

    @property
    def notes(self) -> tuple[str, ...]:
        """Other boots, gaps, clock jumps; and damage found so far."""
        problems = len(self._recording.problems)
        if not problems:
            return tuple(self._notes)
        pieces = count(problems, "damaged or foreign piece")
        names = f"sexton recording verify {self._recording.path} names them"
        return (*self._notes, f"{pieces} skipped; {names}")

    def batches(self, kind: type[R]) -> tuple[Batch[R], ...] | None:
        if kind in self._rows:
            return cast("tuple[Batch[R], ...] | None", self._rows[kind])
        found = self._made(kind)
        if sum(len(batch.rows) for batch in found or ()) <= _MOST_KEPT:
            self._rows[kind] = found
        return cast("tuple[Batch[R], ...] | None", found)

    def _made(self, kind: type[Row]) -> _Batches | None:
        found = list(self._reader.batches(kind, every=kind not in _EVENTS))
        if kind in _MEMORY:
            found = _once([*self._older_events(kind), *found])
        elif kind is KernelLog:
            reaching = self._reaching()
            found = [
                replace(batch, rows=tuple(map(reaching, batch.rows)))
                for batch in (*self._older_edges(kind), *found)
            ]
        elif not found and self._before is not None and kind not in OF_A_MOMENT:
            older = self._before.latest(kind)
            found = [] if older is None else [older]
        return tuple(found) or None

    def _held(self, kind: type[Row]) -> bool:
        """Whether the table has other rows than its readings in the span."""
        more = kind in _MEMORY or kind is KernelLog or (kind is StackCount and kind in self._rows)
        return more or not self._reader.having(kind)

    def between(self, kind: type[R], start: float, end: float) -> tuple[Batch[R], ...]:
        if kind in self._rows or self._held(kind):
            return super().between(kind, start, end)
        return self._reader.between(kind, start, end)

    def matching(self, kind: type[R], field: str, value: str) -> Iterator[Batch[R]]:
        if kind in self._rows or self._held(kind):
            return super().matching(kind, field, value)
        return self._reader.matching(kind, field, value)

    def columns(
        self, kind: type[Row], names: Sequence[str], wanted: Wanted | None = None
    ) -> Iterator[Columns]:
        if not self._held(kind):
            yield from self._reader.columns(kind, names, wanted)
            return
        found = columns_of(self.batches(kind) or (), kind, names, wanted)
        if found is not None:
            yield found

    def edges(self, kind: type[R]) -> tuple[Batch[R], Batch[R]] | None:
        if kind in self._rows or self._held(kind):
            return super().edges(kind)
        ends = self.keep(("edges", kind), lambda: (self._reader.first(kind), self._last(kind)))
        return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])

    def changes(self, kind: type[R], fields: Sequence[str] | None = None) -> Iterator[R]:
        if kind is KernelLog:
            older = (row for batch in self._older_edges(kind) for row in batch.rows)
            every = chain(older, self._reader.changes(kind, fields_of(kind)))
            return cast("Iterator[R]", changed(map(self._reaching(), every), kind, fields))
        if self._held(kind):
            return super().changes(kind, fields)
        return cast("Iterator[R]", self._reader.changes(kind, fields or fields_of(kind)))

    def distinct(self, kind: type[Row], fields: Sequence[str]) -> list[tuple[Any, ...]]:
        if self._held(kind) and kind not in _NAMES:
            return super().distinct(kind, fields)
        found = self._reader.distinct(kind, fields)
        if kind in _NAMES and self._before is not None:
            found = list(dict.fromkeys([*self._before.distinct(kind, fields), *found]))
        return found

    def earlier(self, kind: type[R]) -> tuple[Batch[R], ...]:
        return self.keep(("earlier", kind), lambda: tuple(self._older_events(kind)))

    def read(self, kind: type[Row]) -> bool:
        if self._reader.having(kind):
            return self.keep(("read", kind), lambda: self._reader.readable(kind))
        if kind in _NAMES and self._before is not None and self._before.having(kind):
            return True
        return self.batches(kind) is not None

    def why_missing(self, kind: type[Row]) -> SourceState:
        found = super().why_missing(kind)
        if not self._reader.having(kind):
            return found
        again = f"sexton recording verify {self._recording.path}  # names what is damaged"
        return found._replace(state="malformed", detail="damaged in this recording", grant=again)

    def bounds_of(self, kind: type[Row]) -> tuple[float, float] | None:
        if not self._held(kind):
            return self._reader.bounds(kind)
        if kind is KernelLog and (edges := self._reader.bounds(kind)) is not None:
            older = self._before and self._before.bounds(kind)
            return (older or edges)[0], edges[1]
        items = self.batches(kind)
        return (items[0].mono_s, items[-1].mono_s) if items else None

    def row_count(self, kind: type[Row]) -> int:
        if not self._held(kind):
            return self._reader.row_count(kind)
        if kind is KernelLog:
            older = sum(len(batch.rows) for batch in self._older_edges(kind))
            return older + self._reader.row_count(kind)
        return sum(len(batch.rows) for batch in self.batches(kind) or ())

    def latest(self, kind: type[R]) -> tuple[R, ...] | None:
        if kind in self._rows or self._held(kind):
            return super().latest(kind)
        last = self._last(kind)
        return None if last is None else last.rows

    def _last(self, kind: type[Row]) -> Batch[Any] | None:
        return self.keep(("last", kind), lambda: self._reader.latest(kind))

    def wall(self, mono_s: float) -> float:
        """By the nearest reading of any table; only that segment's list is read."""
        segments = self._clock_reader.segments
        at = bisect_right(segments, mono_s, key=lambda segment: segment.segment.start[0]) - 1
        near = [segment.segment.start for segment in segments[at + 1 : at + 2]]
        if at >= 0:
            near.append(segments[at].segment.end)
            if mono_s < segments[at].segment.end[0]:
                mono, wall = segments[at].clock()
                place = int(np.searchsorted(mono, mono_s))
                some = slice(max(place - 1, 0), place + 1)
                near += zip(mono[some].tolist(), wall[some].tolist(), strict=True)
        nearest = min(near, key=lambda start: (abs(start[0] - mono_s), start))
        return nearest[1] + (mono_s - nearest[0])

    def mono(self, wall_s: float) -> float:
        """By the nearest reading. The wall clock may jump inside a segment for good."""
        near: list[tuple[float, float]] = []
        for segment in self._clock_reader.segments:
            ends = (segment.segment.start, segment.segment.end)
            near += ((wall, mono) for mono, wall in ends)
            low, high = sorted(wall for _, wall in ends)
            jumped = abs((high - low) - (ends[1][0] - ends[0][0])) > JUMP_S
            if jumped or low <= wall_s <= high:
                mono, wall = segment.clock()
                place = int(np.abs(wall - wall_s).argmin())
                near.append((float(wall[place]), float(mono[place])))
        nearest = min(near, key=lambda pair: (abs(pair[0] - wall_s), pair))
        return nearest[1] + (wall_s - nearest[0])

    def _older_events(self, kind: type[Row]) -> list[Batch[Any]]:
        """The newest readings before the span that had rows, and the first and last of them."""
        if self._before is None:
            return []
        most, start = _MOST_REMEMBERED, inf
        for reader in reversed(self._before.having(kind)):
            most -= reader.segment.rows(kind)
            if start < inf and most < 0:
                break
            start = reader.bounds(kind)[0]
        found = list(self._before.batches(kind, start)) if start < inf else []
        last = len(found) - 1
        return [batch for at, batch in enumerate(found) if batch.rows or at in (0, last)]

    def _older_edges(self, kind: type[Row]) -> list[Batch[Any]]:
        """The first and last reading before the span."""
        if self._before is None or (edges := self._before.bounds(kind)) is None:
            return []
        ends = (self._before.between(kind, edge, edge) for edge in dict.fromkeys(edges))
        return [batch for found in ends for batch in found[:1]]

    def _reaching(self) -> Callable[[Any], KernelLog]:
        """For rows in order: limits how far the log reaches back, since segments with its older
        lines may have been deleted."""
        begins = _begins(self._recording, self._reader.segments[-1].segment)
        lines = 0

        def reaching(row: KernelLog) -> KernelLog:
            nonlocal begins, lines
            if row.lines < lines:
                begins = None  # a new recorder has read the whole ring again
            lines = row.lines
            floor = 0 if begins is None else int(begins * 1e6)
            if row.oldest_mono_us is None or row.oldest_mono_us >= floor:
                return row
            return replace(row, oldest_mono_us=floor)

        return reaching


def _before(recording: Recording, span: Span) -> SpanReader | None:
    """What was recorded of the same boot before the span; `None` if nothing."""
    mine = [segment for segment in recording.segments if segment.boot_id == span.boot_id]
    until = (nextafter(span.start[0], -inf), span.start[1])
    if not mine or mine[0].start[0] > until[0]:
        return None
    return SpanReader(recording, Span(span.boot_id, mine[0].start, until))


def _bounds(reader: SpanReader) -> Bounds:
    """From the first to the last reading in the span, of any table."""
    span, first, last = reader.span, reader.segments[0], reader.segments[-1]
    start, end = first.segment.start, last.segment.end
    if not span.holds(start[0]):
        start = next(iter(_edges(first, span)), span.start)
    if not span.holds(end[0]):
        end = next(reversed(_edges(last, span)), span.end)
    walls = (start[1], end[1], *span.turns)
    return Bounds(min(walls), max(walls), start[0], end[0])


def _edges(reader: SegmentReader, span: Span) -> list[tuple[float, float]]:
    """The first and last moment of a segment's clock that are in a span, if any is."""
    mono, wall = reader.clock()
    there = np.flatnonzero((mono >= span.start[0]) & (mono <= span.end[0])).tolist()
    return [(float(mono[at]), float(wall[at])) for at in (*there[:1], *there[-1:])]


def _once(batches: Iterable[Batch[Any]]) -> list[Batch[Any]]:
    """Log lines without duplicates: a restarted recorder reads again what the log still holds."""
    known: set[Hashable] = set()
    made = []
    for batch in batches:
        fresh = tuple(row for row in batch.rows if _line(row) not in known)
        known.update(key for row in fresh if (key := _line(row)) is not None)
        made.append(batch if len(fresh) == len(batch.rows) else replace(batch, rows=fresh))
    return made


def _line(row: Row) -> Hashable:
    """The identity of a log line; `None` if it has no time."""
    if isinstance(row, KernelEvent):
        # Each recorder computes the wall time again; the kernel's own time is fixed.
        when = row.wall_s if row.mono_us is None else row.mono_us
        return None if when is None else (when, row.message)
    if isinstance(row, ServiceEvent):
        return None if row.wall_s is None else (row.wall_s, row.speaker, row.message)
    return row


def _begins(recording: Recording, last: Segment) -> float | None:
    """Since when no segment is missing; `None` if since the recorder's first reading."""
    begins: float | None = None
    before: Segment | None = None
    for segment in recording.segments:
        if segment.sequence > last.sequence:
            break
        follows = before is not None and before.last_sequence + 1 == segment.sequence
        if segment.boot_id != last.boot_id:
            before = segment
            continue
        if not follows:
            begins = None if before is None and segment.sequence <= 1 else segment.start[0]
        elif before is not None and before.boot_id != segment.boot_id:
            begins = None
        before = segment
    return begins


def _configured(segments: Sequence[SegmentReader]) -> Iterator[str]:
    """Notes on where the recorder's configuration differed from the current one."""
    found: list[tuple[float, list[str]]] = []
    for reader in segments:
        then = reader.segment.settings
        if then is None:
            continue
        unlike = differences(then, settings_in_force())
        if not found or found[-1][1] != unlike:
            found.append((reader.segment.start[1], unlike))
    for since, unlike in found:
        if unlike:
            when = f"from {moment(since)} on, " if len(found) > 1 else ""
            shown = unlike[:_MOST_DIFFERENCES]
            shown += [f"{len(unlike) - len(shown)} more"] if len(shown) < len(unlike) else []
            yield f"{when}recorded with another configuration: {'; '.join(shown)}"
