"""A recording read back as a window, for the same detectors that judge live.

A short span holds every reading exactly as it was made. A long one is condensed, see
`sexton.replay.condense`. Either way the window begins and ends with the span, and older readings
of the same boot stand in where the span has none: the hourly ones, and the kernel's and the
services' lines, which are the node's memory (live, the kernel's ring would still hold them).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from math import inf, nextafter
from typing import Any, NamedTuple

from sexton.errors import StoreError
from sexton.model.cgroup import CgroupEvent, CgroupEventGap
from sexton.model.cpu import CoreTimes
from sexton.model.event import KernelEvent, KernelLog, ServiceEvent
from sexton.model.recorder import Alarm, Mark, RecorderCost, RecorderNote
from sexton.model.row import Row
from sexton.model.softirq import ProbeCost, SoftirqWait
from sexton.model.stack import StackCount
from sexton.model.task import Thread
from sexton.model.text import count
from sexton.model.unit import RestartMark
from sexton.model.window import Batch, Window, bounds_of
from sexton.replay.condense import condense
from sexton.replay.reader_pool import Crew
from sexton.replay.replayed_stacks import stacks_in
from sexton.replay.span import Span
from sexton.replay.span_reader import Pick, Shelf, events, take
from sexton.store.recording import Recording, Segment
from sexton.store.schema import tables

#: A span with more rows than this is condensed.
MOST_ROWS = 400_000
#: What a node remembers of before the span.
_MEMORY: tuple[type[Row], ...] = (KernelEvent, RestartMark, ServiceEvent)
_MOST_REMEMBERED = 100_000
#: Rows about a moment, which tell nothing of a later one.
_OF_A_MOMENT: tuple[type[Row], ...] = (
    CoreTimes, Thread, CgroupEvent, CgroupEventGap, SoftirqWait, ProbeCost, StackCount,
    Alarm, Mark, RecorderNote, RecorderCost, KernelLog, *_MEMORY,
)  # fmt: skip

_Batches = dict[type[Row], list[Batch[Any]]]


class Replay(NamedTuple):
    """A window, what its reader should know, and whether it is a selection."""

    window: Window
    notes: tuple[str, ...]
    condensed: bool


def window(
    recording: Recording,
    span: Span,
    most_rows: int = MOST_ROWS,
    crew: Crew | None = None,
) -> Replay:
    """The span as a window, read by a crew. With more than `most_rows` rows it is condensed."""
    shelf = Shelf(recording, span, crew)
    if not shelf.books:
        raise StoreError(f"{recording.path}: nothing is recorded in this span")
    notes = list(span.notes)
    rows = _estimate(shelf)
    clock: tuple[tuple[float, float], ...] = ()
    if rows <= most_rows:
        batches = _everything(shelf)
    else:
        chosen = condense(shelf)
        batches, clock = chosen.batches, chosen.clock
        notes += [_selected(rows), *chosen.notes]
    bounds = bounds_of(batches.values())
    turns = (bounds.start, bounds.end, *span.turns)
    bounds = bounds._replace(start=min(turns), end=max(turns), clock=clock)
    _remember(recording, span, batches)
    for kind in _MEMORY:
        if kind in batches:
            batches[kind] = _once(batches[kind])
    if KernelLog in batches:
        batches[KernelLog] = list(_reaching(recording, shelf, batches[KernelLog]))
    stacks, told = stacks_in(recording, span)
    if stacks is not None:
        batches[StackCount] = [stacks]
        notes += told
    last = shelf.books[-1].segment
    if recording.problems:
        pieces = count(len(recording.problems), "damaged or foreign piece")
        notes.append(f"{pieces} skipped; sexton recording verify {recording.path} names them")
    made = Window(batches, last.states, last.providers, bounds)
    return Replay(made, tuple(notes), rows > most_rows)


def _selected(rows: float) -> str:
    return (
        f"{rows / 1e6:.1f} million rows: every stall, event and counter counts, of the rest a"
        " selection (docs/recording.md)"
    )


def _estimate(shelf: Shelf) -> float:
    """How many rows, by the manifests; of a segment that is only touched its share."""
    total = 0.0
    for book in shelf.books:
        start, end = book.segment.start[0], book.segment.end[0]
        inside = min(end, shelf.span.end[0]) - max(start, shelf.span.start[0])
        share = inside / (end - start) if end > start else 1.0
        total += sum(map(book.segment.rows, tables().values())) * max(share, 0.0)
    return total


def _everything(shelf: Shelf) -> _Batches:
    wanted: dict[type[Row], dict[int, Pick]] = {}
    for kind in tables().values():
        picks = {
            place: Pick(mono.tolist())
            for place, book in enumerate(shelf.books)
            if book.numbers(kind) and len(mono := shelf.inside(kind, book))
        }
        if picks:
            wanted[kind] = picks
    return take(shelf, wanted)


def _remember(recording: Recording, span: Span, batches: _Batches) -> None:
    """What was known when the span began."""
    mine = [each for each in recording.segments if each.boot_id == span.boot_id]
    until = (nextafter(span.start[0], -inf), span.start[1])
    if not mine or mine[0].start[0] > until[0]:
        return
    before = Shelf(recording, Span(span.boot_id, mine[0].start, until))
    for kind in _MEMORY:
        older, _ = events(before, kind, _MOST_REMEMBERED)
        if older:
            batches[kind] = [*older, *batches.get(kind, ())]
    logs = _edges(before, KernelLog)
    if logs:
        batches[KernelLog] = [*logs, *batches.get(KernelLog, ())]
    for kind in tables().values():
        if kind not in _OF_A_MOMENT and not batches.get(kind):
            batches[kind] = _edges(before, kind)[-1:]


def _edges(shelf: Shelf, kind: type[Row]) -> list[Batch[Any]]:
    """The first reading and the last."""
    places = [place for place, book in enumerate(shelf.books) if shelf.reads(kind, book)]
    picks: dict[int, set[float]] = defaultdict(set)
    for order, which in ((places, 0), (places[::-1], -1)):
        for place in order:  # the first of them, unless its list is damaged
            inside = shelf.inside(kind, shelf.books[place])
            if len(inside):
                picks[place].add(float(inside[which]))
                break
    if not picks:
        return []
    return take(shelf, {kind: {place: Pick(each) for place, each in picks.items()}})[kind]


def _once(batches: Iterable[Batch[Any]]) -> list[Batch[Any]]:
    """A recorder that was started anew reads again what the log still holds: it was said once."""
    told: set[Hashable] = set()
    made = []
    for batch in batches:
        fresh = tuple(row for row in batch.rows if _line(row) not in told)
        told.update(key for row in fresh if (key := _line(row)) is not None)
        made.append(batch if len(fresh) == len(batch.rows) else replace(batch, rows=fresh))
    return made


def _line(row: Row) -> Hashable:
    """What makes two log lines the same one; `None` where nothing dates it."""
    if isinstance(row, KernelEvent):
        # The wall time is reckoned anew by each reader, the kernel's own is not.
        when = row.wall_s if row.mono_us is None else row.mono_us
        return None if when is None else (when, row.message)
    if isinstance(row, ServiceEvent):
        return None if row.wall_s is None else (row.wall_s, row.speaker, row.message)
    return row


def _reaching(
    recording: Recording, shelf: Shelf, batches: Iterable[Batch[KernelLog]]
) -> Iterator[Batch[KernelLog]]:
    """The log reaches back to where its lines were read, and those segments may be gone since."""
    begins = _begins(recording, shelf.books[-1].segment)
    lines = 0
    for batch in batches:
        for row in batch.rows:
            if row.lines < lines:
                begins = None  # a new recorder has read the ring again, all of it
            lines = row.lines
        if begins is not None:
            floor = int(begins * 1e6)
            rows = tuple(
                row
                if row.oldest_mono_us is None or row.oldest_mono_us >= floor
                else replace(row, oldest_mono_us=floor)
                for row in batch.rows
            )
            batch = replace(batch, rows=rows)
        yield batch


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
