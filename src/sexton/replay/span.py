"""Spans: a part of a recording, of one boot, from one moment to another.

Users give wall times, and wall clocks jump; monotonic clocks do not, but each boot has its own. So
a range of wall time becomes a span of one boot's monotonic clock here. What users should know about
it becomes a note: other boots, a clock that was set back so that a time occurred twice, hours in
which nothing was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from sexton.errors import StoreError
from sexton.model.text import count, local_time, moment, seconds
from sexton.model.window import GAP_S
from sexton.store.recording import JUMP_S, Recording, Segment

_MOST_NOTES = 3


@dataclass(frozen=True, slots=True)
class Span:
    """From `start` to `end`, each (monotonic, UNIX) seconds, both inclusive, of one boot.

    `turns` are the wall times at which the clock jumped or the recorder paused.
    """

    boot_id: str
    start: tuple[float, float]
    end: tuple[float, float]
    notes: tuple[str, ...] = ()
    turns: tuple[float, ...] = ()

    def touches(self, segment: Segment) -> bool:
        """Whether a part of the segment is in it."""
        inside = segment.start[0] <= self.end[0] and segment.end[0] >= self.start[0]
        return inside and segment.boot_id == self.boot_id

    def holds(self, mono_s: float) -> bool:
        return self.start[0] <= mono_s <= self.end[0]

    def overlap(self, part: tuple[float, float]) -> tuple[float, float] | None:
        """The part of an interval of monotonic time that lies in it; `None` if empty."""
        start, end = max(part[0], self.start[0]), min(part[1], self.end[0])
        return (start, end) if start <= end else None

    def part(self, earliest: float, latest: float) -> Span | None:
        """The part between two wall times, if the clock did not jump in it; `None` if empty."""
        if self.end[1] < earliest or self.start[1] > latest:
            return None
        start, end = self.start, self.end
        if start[1] < earliest:
            start = (start[0] + earliest - start[1], earliest)
        if end[1] > latest:
            end = (end[0] - (end[1] - latest), latest)
        return Span(self.boot_id, start, end)


def everything(recording: Recording) -> Span:
    """All of the last boot."""
    stretches = _stretches(recording)
    last = stretches[-1].boot_id
    mine = [stretch for stretch in stretches if stretch.boot_id == last]
    notes = [*_other_boots(recording, stretches, mine), *_breaks(mine)]
    return Span(last, mine[0].start, mine[-1].end, tuple(notes), _turns(mine))


def between(recording: Recording, earliest: float, latest: float) -> Span:
    """What was recorded between two wall times; `StoreError` if nothing was."""
    parts = _parts(recording, earliest, latest)
    if not parts:
        raise StoreError(
            f"nothing was recorded from {moment(earliest)} to {local_time(latest)};"
            f" {reach(recording)}"
        )
    mine = [parts[-1]]
    notes = []
    for part in reversed(parts[:-1]):
        if part.boot_id != mine[0].boot_id:
            break
        if part.end[1] > mine[0].start[1] + JUMP_S:
            notes.append(
                f"the clock was set back: {moment(mine[0].start[1])} to"
                f" {moment(min(part.end[1], mine[-1].end[1]))} occurred twice;"
                " the later one is judged"
            )
            break
        mine.insert(0, part)
    notes = [*_other_boots(recording, parts, mine), *notes, *_breaks(mine)]
    return Span(mine[0].boot_id, mine[0].start, mine[-1].end, tuple(notes), _turns(mine))


def around(recording: Recording, first: float, last: float, reach_s: float) -> Span:
    """`reach_s` seconds before and after a moment or a short time, of the boot that was running.

    Of several boots, the one whose recording holds it or is nearest to it; if two are equally near,
    the earlier. `StoreError` if nothing was recorded there.
    """
    start, end = first - reach_s, last + reach_s
    wide = between(recording, start, end)
    parts = _parts(recording, start, end)
    nearest = min(parts, key=lambda part: max(part.start[1] - last, first - part.end[1], 0.0))
    if nearest.boot_id == wide.boot_id:
        return wide
    mine = [part for part in parts if part.boot_id == nearest.boot_id]
    narrow = between(recording, mine[0].start[1], mine[-1].end[1])
    if narrow.boot_id != nearest.boot_id:  # the clock was set back: both boots had these times
        return wide
    boots = count(len({part.boot_id for part in parts}), "boot")
    note = f"{boots} in this span; the one running at that time is judged"
    return replace(narrow, notes=(note, *narrow.notes))


def _parts(recording: Recording, earliest: float, latest: float) -> list[Span]:
    parts = (stretch.part(earliest, latest) for stretch in _stretches(recording))
    return [part for part in parts if part is not None]


def _turns(mine: Sequence[Span]) -> tuple[float, ...]:
    return tuple(wall for a, b in pairwise(mine) for wall in (a.end[1], b.start[1]))


def unbroken(recording: Recording) -> list[Span]:
    """Its stretches without a gap, a reboot or a jump of the clock, in the order of recording;
    none if nothing is recorded."""
    return _stretches(recording) if recording.segments else []


def edges(recording: Recording) -> tuple[float, float]:
    """The first and the last wall time in it."""
    stretches = _stretches(recording)
    walls = [wall for stretch in stretches for wall in (stretch.start[1], stretch.end[1])]
    return min(walls), max(walls)


def reach(recording: Recording) -> str:
    """Where it begins and ends, for messages."""
    first, last = edges(recording)
    return f"the recording covers {moment(first)} to {local_time(last)}"


def _stretches(recording: Recording) -> list[Span]:
    found: list[Span] = []
    for segment in recording.segments:
        for part in segment.stretches():
            stretch = Span(segment.boot_id, *part)
            last = found[-1] if found else None
            if last is not None and last.boot_id == stretch.boot_id and _goes_on(last, stretch):
                found[-1] = Span(last.boot_id, last.start, stretch.end)
            else:
                found.append(stretch)
    if not found:
        raise StoreError(f"{recording.path}: nothing is recorded here yet")
    return found


def _goes_on(last: Span, stretch: Span) -> bool:
    jumped = abs(_offset(stretch.start) - _offset(last.end)) > JUMP_S
    return not jumped and stretch.start[0] - last.end[0] <= GAP_S


def _offset(pair: tuple[float, float]) -> float:
    return pair[1] - pair[0]


def _other_boots(
    recording: Recording, stretches: Sequence[Span], mine: Sequence[Span]
) -> Iterator[str]:
    boot_id = mine[0].boot_id
    others = {stretch.boot_id for stretch in stretches} - {boot_id}
    if others:
        boots = count(len(others) + 1, "boot")
        whole = [stretch for stretch in _stretches(recording) if stretch.boot_id == boot_id]
        first = min(stretch.start[1] for stretch in whole)
        yield f"{boots} in this span; the last is judged, recorded since {moment(first)}"


def _breaks(mine: Sequence[Span]) -> Iterator[str]:
    notes = []
    for before, after in pairwise(mine):
        if after.start[0] - before.end[0] > GAP_S:
            notes.append(
                f"nothing was recorded from {moment(before.end[1])} to {moment(after.start[1])}"
            )
        by = _offset(after.start) - _offset(before.end)
        if abs(by) > JUMP_S:
            way = "forward" if by > 0 else "back"
            notes.append(f"the wall clock was set {way} by {seconds(abs(by))}, to"
                        f" {moment(after.start[1])}")  # fmt: skip
    yield from notes[:_MOST_NOTES]
    if len(notes) > _MOST_NOTES:
        yield f"and {len(notes) - _MOST_NOTES} more gaps or jumps like these"
