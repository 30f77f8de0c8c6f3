"""A recording read back as a window, for the same detectors that judge live.

Nothing is read before it is needed. `columns` goes through a table segment by segment, `between`
and `latest` read single segments, `batches` makes rows of everything and is meant for events and
small tables.

The window begins and ends with the span. Older readings of the same boot stand in where the span
has none: the hourly ones, and the kernel's and the services' lines, which are the node's memory
(live, the kernel's ring would still hold them).
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
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.event import KernelEvent, KernelLog, ServiceEvent
from sexton.model.rows.recorder import Alarm, Mark, RecorderCost, RecorderNote
from sexton.model.rows.softirq import ProbeCost, SoftirqWait
from sexton.model.rows.stack import StackCount
from sexton.model.rows.task import Thread
from sexton.model.rows.unit import RestartMark
from sexton.model.settings import differences
from sexton.model.text import count
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
from sexton.replay.span import Span, moment
from sexton.replay.span_reader import SegmentReader, SpanReader
from sexton.replay.stacks import stacks_in
from sexton.store.recording import Recording, Segment

R = TypeVar("R", bound=Row)
_Batches = tuple[Batch[Any], ...]

#: What a node remembers of the time before the span, and how many rows of that are read.
_MEMORY: tuple[type[Row], ...] = (KernelEvent, RestartMark, ServiceEvent)
_MOST_REMEMBERED = 100_000
#: Rows that are there when something happened: most of their readings are empty, and tell nothing.
_EVENTS: tuple[type[Row], ...] = (*_MEMORY, CgroupEvent, CgroupEventGap)
#: Rows about a moment, which say nothing about a later one.
_OF_A_MOMENT: tuple[type[Row], ...] = (
    CoreTimes, Thread, CgroupEvent, CgroupEventGap, SoftirqWait, ProbeCost, StackCount,
    Alarm, Mark, RecorderNote, RecorderCost, KernelLog, *_MEMORY,
)  # fmt: skip
#: A table with more rows than this is not kept in memory as rows.
_MOST_KEPT = 200_000
_MOST_DIFFERENCES = 8
#: As in `sexton.replay.span`: clocks are slewed by less than this between two readings.
_JUMP_S = 1.0


class Replay:
    """A span read back: its window, and what a reader of the verdict should know about it."""

    def __init__(self, recorded: RecordedWindow) -> None:
        self.window: Window = recorded
        self._recorded = recorded

    @property
    def notes(self) -> tuple[str, ...]:
        """Complete once the window was judged: damage is met as it is read."""
        return self._recorded.notes


def window(recording: Recording, span: Span) -> Replay:
    """The span as a window; `StoreError` where nothing is recorded in it."""
    return Replay(RecordedWindow(recording, span))


class RecordedWindow(Window):
    """A span of a recording; `notes` are what a reader of the verdict should know about it."""

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
        #: Every segment of the boot: a moment before the span has a wall time too.
        whole = Span(span.boot_id, (-inf, 0.0), (inf, 0.0))
        self._clock_reader = SpanReader(recording, whole)
        stacks, notes = stacks_in(recording, span)
        self._notes += notes
        if stacks is not None:
            self._rows[StackCount] = (stacks,)

    @property
    def notes(self) -> tuple[str, ...]:
        """Other boots, gaps, clock jumps; and damage, as far as it was met so far."""
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
        elif not found and (older := self._stand_in(kind)) is not None:
            found = [older]
        return tuple(found) or None

    def _held(self, kind: type[Row]) -> bool:
        """Is the table more than its readings in the span, or other than them?"""
        more = kind in _MEMORY or kind is KernelLog or (kind is StackCount and kind in self._rows)
        return more or not self._reader.having(kind)

    def between(self, kind: type[R], start: float, end: float) -> tuple[Batch[R], ...]:
        if kind in self._rows or self._held(kind):
            return super().between(kind, start, end)
        return self._reader.between(kind, start, end)

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
        if self._held(kind):
            return super().distinct(kind, fields)
        return self._reader.distinct(kind, fields)

    def earlier(self, kind: type[R]) -> tuple[Batch[R], ...]:
        return self.keep(("earlier", kind), lambda: tuple(self._older_events(kind)))

    def read(self, kind: type[Row]) -> bool:
        if self._reader.having(kind):
            return self.keep(("read", kind), lambda: self._reader.readable(kind))
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
        """By the reading nearest to it, of any table; only that segment's list is opened."""
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
        """The other way round. The wall clock may jump inside a segment, and not come back."""
        near: list[tuple[float, float]] = []
        for segment in self._clock_reader.segments:
            ends = (segment.segment.start, segment.segment.end)
            near += ((wall, mono) for mono, wall in ends)
            low, high = sorted(wall for _, wall in ends)
            jumped = abs((high - low) - (ends[1][0] - ends[0][0])) > _JUMP_S
            if jumped or low <= wall_s <= high:
                mono, wall = segment.clock()
                place = int(np.abs(wall - wall_s).argmin())
                near.append((float(wall[place]), float(mono[place])))
        nearest = min(near, key=lambda pair: (abs(pair[0] - wall_s), pair))
        return nearest[1] + (wall_s - nearest[0])

    def _older_events(self, kind: type[Row]) -> list[Batch[Any]]:
        """Readings before the span that brought something, and its edges: the newest."""
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
        """The first reading before the span and the last."""
        if self._before is None or (edges := self._before.bounds(kind)) is None:
            return []
        ends = (self._before.between(kind, edge, edge) for edge in dict.fromkeys(edges))
        return [batch for found in ends for batch in found[:1]]

    def _stand_in(self, kind: type[Row]) -> Batch[Any] | None:
        if kind in _OF_A_MOMENT or self._before is None:
            return None
        return self._before.latest(kind)

    def _reaching(self) -> Callable[[Any], KernelLog]:
        """For rows in order: the log reaches back to where its lines were read, and those segments
        may be deleted by now."""
        begins = _begins(self._recording, self._reader.segments[-1].segment)
        lines = 0

        def reaching(row: KernelLog) -> KernelLog:
            nonlocal begins, lines
            if row.lines < lines:
                begins = None  # a new recorder has read the ring again, all of it
            lines = row.lines
            floor = 0 if begins is None else int(begins * 1e6)
            if row.oldest_mono_us is None or row.oldest_mono_us >= floor:
                return row
            return replace(row, oldest_mono_us=floor)

        return reaching


def _before(recording: Recording, span: Span) -> SpanReader | None:
    """What was recorded of the same boot before the span."""
    mine = [segment for segment in recording.segments if segment.boot_id == span.boot_id]
    until = (nextafter(span.start[0], -inf), span.start[1])
    if not mine or mine[0].start[0] > until[0]:
        return None
    return SpanReader(recording, Span(span.boot_id, mine[0].start, until))


def _bounds(reader: SpanReader) -> Bounds:
    """From the first to the last reading in the span, whatever was read."""
    span, first, last = reader.span, reader.segments[0], reader.segments[-1]
    start, end = first.segment.start, last.segment.end
    if not span.holds(start[0]):
        start = next((pair for pair in _clock(first) if span.holds(pair[0])), span.start)
    if not span.holds(end[0]):
        end = next((pair for pair in _clock(last)[::-1] if span.holds(pair[0])), span.end)
    walls = (start[1], end[1], *span.turns)
    return Bounds(min(walls), max(walls), start[0], end[0])


def _clock(reader: SegmentReader) -> list[tuple[float, float]]:
    mono, wall = reader.clock()
    return list(zip(mono.tolist(), wall.tolist(), strict=True))


def _once(batches: Iterable[Batch[Any]]) -> list[Batch[Any]]:
    """A recorder that was restarted reads again what the log still holds: each line counts once."""
    known: set[Hashable] = set()
    made = []
    for batch in batches:
        fresh = tuple(row for row in batch.rows if _line(row) not in known)
        known.update(key for row in fresh if (key := _line(row)) is not None)
        made.append(batch if len(fresh) == len(batch.rows) else replace(batch, rows=fresh))
    return made


def _line(row: Row) -> Hashable:
    """What makes two log lines the same one; `None` where it has no date."""
    if isinstance(row, KernelEvent):
        # The wall time is reckoned anew by each reader, the kernel's own is not.
        when = row.wall_s if row.mono_us is None else row.mono_us
        return None if when is None else (when, row.message)
    if isinstance(row, ServiceEvent):
        return None if row.wall_s is None else (row.wall_s, row.speaker, row.message)
    return row


def _begins(recording: Recording, last: Segment) -> float | None:
    """Since when nothing is missing; `None` where that is since the recorder's first reading."""
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
    """Where the recorder's configuration was another than the one that judges now."""
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
