"""A summary of a recording from its manifests, the times of its readings, and the few rows that the
recorder wrote about itself.

A *gap* is a time in which nothing was read: the recorder was not running or was stopped, the
machine was down or asleep. A *jump* is a step of the wall clock against the monotonic one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from sexton.errors import StoreError
from sexton.model.counters import delta
from sexton.model.row import Row
from sexton.model.rows.node import Node
from sexton.model.rows.recorder import Alarm, Mark, RecorderCost, RecorderNote
from sexton.model.settings import Settings
from sexton.model.window import GAP_S, SourceState
from sexton.store.annex import Annex
from sexton.store.layout import is_locked
from sexton.store.loose_files import read_status
from sexton.store.pieces import waiting_stacks
from sexton.store.pins import Pin, pins_in
from sexton.store.recording import JUMP_S, Moment, Recording, Segment
from sexton.store.schema import tables

R = TypeVar("R", bound=Row)


class Gap(NamedTuple):
    """From one reading to the next (UNIX seconds by the clock at the time). `seconds` is `None`
    after a reboot if the wall clock went backwards."""

    start: float
    end: float
    seconds: float | None
    reboot: bool


class Jump(NamedTuple):
    """When the wall clock moved, and by how much."""

    at: float
    seconds: float


@dataclass(slots=True)
class TableSum:
    """One table over all segments; `period_s` is `None` with fewer than two readings."""

    rows: int = 0
    bytes: int = 0
    readings: int = 0
    watched_s: float = 0.0
    pairs: int = 0

    @property
    def period_s(self) -> float | None:
        return self.watched_s / self.pairs if self.pairs else None


class TimedRow(NamedTuple):
    """A row that the recorder wrote about itself, and when."""

    wall_s: float
    row: Any


class ConfigSum(NamedTuple):
    """The recorder's configuration from a time on; `None` if it was not recorded."""

    since: float
    settings: Settings | None


class SourceSum(NamedTuple):
    """The last state of a source, and the number of segments it was in each state."""

    last: SourceState
    segments: dict[str, int]


@dataclass(slots=True)
class ProfileSum:
    """Stacks: what was decoded into annexes, and perf files that wait to be decoded.

    `lost` is what the kernel dropped while sampling, `None` if unknown.
    """

    annexes: int = 0
    samples: int = 0
    lost: int | None = None
    bytes: int = 0
    start: tuple[float, float] | None = None
    end: tuple[float, float] | None = None
    waiting: int = 0
    waiting_bytes: int = 0

    def add(self, annex: Annex) -> None:
        self.annexes += 1
        self.samples += annex.fact("samples") or 0
        if (lost := annex.fact("lost")) is not None:
            self.lost = (self.lost or 0) + lost
        self.bytes += annex.bytes
        self.start = self.start or annex.start
        self.end = annex.end


class CostSum(NamedTuple):
    """The recorder's own cost over the recording; `cpu_share` is of one core, children included."""

    cpu_share: float | None
    kernel_share: float | None
    most_bytes: int
    written_bytes: int


@dataclass(slots=True)
class Summary:
    """What `sexton recording info` shows."""

    path: Path
    node: Node | None = None
    host: str = ""
    sexton: str = ""
    recording_now: bool = False
    status: dict[str, Any] | None = None
    start: tuple[float, float] | None = None
    end: tuple[float, float] | None = None
    watched_s: float = 0.0
    boots: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    jumps: list[Jump] = field(default_factory=list)
    sealed: int = 0
    opened: int = 0
    bytes: int = 0
    pinned_bytes: int = 0
    disk_bytes: int = 0
    tables: dict[str, TableSum] = field(default_factory=dict)
    sources: list[SourceSum] = field(default_factory=list)
    alarms: list[TimedRow] = field(default_factory=list)
    marks: list[TimedRow] = field(default_factory=list)
    notes: list[TimedRow] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    configs: list[ConfigSum] = field(default_factory=list)
    cost: CostSum | None = None
    profiles: ProfileSum = field(default_factory=ProfileSum)
    problems: list[str] = field(default_factory=list)

    @property
    def bytes_an_hour(self) -> float | None:
        return self.bytes / self.watched_s * 3600 if self.watched_s >= 1 else None


def summarise(recording: Recording) -> Summary:
    """Go over the manifests once."""
    found = Summary(recording.path, recording_now=is_locked(recording.path))
    found.status = _status(recording.path)
    found.pins, not_pins = pins_in(recording.path)
    states: dict[str, Counter[str]] = {}
    last: dict[str, SourceState] = {}
    before: Segment | None = None
    for segment in recording.segments:
        _count(found, segment)
        if not found.configs or found.configs[-1].settings != segment.settings:
            found.configs.append(ConfigSum(segment.start[1], segment.settings))
        for annex in segment.annexes:
            found.profiles.add(annex)
        for state in segment.states:
            last[state.id] = state
        for source, name, number in _state_counts(segment.manifest):
            states.setdefault(source, Counter())[name] += number
        if before is not None and before.boot_id != segment.boot_id:
            gone = segment.start[1] - before.end[1]
            seconds = gone if gone >= 0 else None
            found.gaps.append(Gap(before.end[1], segment.start[1], seconds, True))
        elif before is not None:
            _between(found, before.end, segment.start)
        for (_, end), (start, _) in pairwise(segment.stretches()):
            _between(found, end, start)
        before = segment
    if before is not None:
        found.start, found.end = recording.segments[0].start, before.end
        found.host = str(before.manifest.get("host", ""))
        found.sexton = str(before.manifest.get("sexton", ""))
        found.sources = [SourceSum(last[key], dict(states.get(key, {}))) for key in sorted(last)]
    found.alarms = _timed_rows(recording.segments, Alarm)
    found.marks = _timed_rows(recording.segments, Mark)
    found.notes = _timed_rows(recording.segments, RecorderNote)
    with_node = [segment for segment in recording.segments if segment.rows(Node)]
    nodes = _timed_rows(with_node[-1:], Node)
    found.node = nodes[-1].row if nodes else None
    found.cost = _cost(recording.segments)
    waiting = waiting_stacks(recording.path)
    found.profiles.waiting = len(waiting)
    found.profiles.waiting_bytes = sum(stack.length for stack in waiting)
    found.problems = [*recording.problems, *not_pins]
    found.disk_bytes = _on_disk(recording.path)
    return found


def _on_disk(directory: Path) -> int:
    """The size of everything there: segments, waiting stacks, event rings, symbols, leftovers."""
    total = 0
    links: set[tuple[int, int]] = set()
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                about = os.lstat(os.path.join(place, name))
            except OSError:  # sealed or deleted meanwhile
                continue
            if (about.st_dev, about.st_ino) not in links:  # an annex may be in two segments
                links.add((about.st_dev, about.st_ino))
                total += about.st_size
    return total


def _state_counts(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """In how many segments each source was in which state: (source, state, number)."""
    compacted = manifest.get("compacted")
    if compacted is not None:
        for source, state, number in compacted.get("states", ()):
            yield str(source), str(state), int(number)
    else:
        for source, _, state, *_ in manifest.get("states", ()):
            yield str(source), str(state), 1


def _count(found: Summary, segment: Segment) -> None:
    found.sealed += segment.sealed
    found.opened += not segment.sealed
    size = segment.bytes
    found.bytes += size
    if any(pin.holds(segment) for pin in found.pins):
        found.pinned_bytes += size
    found.watched_s += sum(max(end[0] - start[0], 0.0) for start, end in segment.stretches())
    if segment.boot_id not in found.boots:
        found.boots.append(segment.boot_id)
    known = tables()
    for name, entry in segment.manifest["tables"].items():
        if name not in known:
            continue
        total = found.tables.setdefault(name, TableSum())
        total.rows += entry.get("rows", 0)
        total.bytes += entry.get("bytes", 0)
        readings = entry.get("batches", 0)
        total.readings += readings
        if readings > 1:
            total.watched_s += entry["last"][0] - entry["first"][0]
            total.pairs += readings - 1


def _between(found: Summary, last: Moment, start: Moment) -> None:
    """Count the time between two readings of one boot: a gap, a jump, or recorded time."""
    gone = start[0] - last[0]
    if gone > GAP_S:
        found.gaps.append(Gap(last[1], start[1], gone, False))
    elif gone > 0:
        found.watched_s += gone
    moved = (start[1] - start[0]) - (last[1] - last[0])
    if abs(moved) > JUMP_S:
        found.jumps.append(Jump(start[1], moved))


def _timed_rows(segments: Sequence[Segment], kind: type[R]) -> list[TimedRow]:
    """The rows of a small table, with their times."""
    return [
        TimedRow(batch.wall_s, row)
        for segment in segments
        if segment.rows(kind)
        for batch in segment.batches(kind)
        for row in batch.rows
    ]


def _cost(segments: Sequence[Segment]) -> CostSum | None:
    """Summed over segments from the recorder's counters, which start at zero with each recorder."""
    columns = ("read_mono_s", *RecorderCost.__slots__)
    spent_ms = kernel_ms = watched_s = 0.0
    kernel_known = False
    most = written = 0
    for rows in _costs(segments, columns):
        first, last = rows[0], rows[-1]
        most = max(most, *(row["rss_bytes"] + row["children_rss_bytes"] for row in rows))
        written += delta(first["written_bytes"], last["written_bytes"]) or 0  # at least
        gone = last["read_mono_s"] - first["read_mono_s"]
        used = delta(_cpu(first), _cpu(last))
        if gone > 0 and used is not None:
            watched_s += gone
            spent_ms += used
            in_kernel = delta(first["kernel_ms"], last["kernel_ms"])
            if in_kernel is not None:
                kernel_known = True
                kernel_ms += in_kernel
    if not most and not watched_s:
        return None
    return CostSum(
        spent_ms / 1000 / watched_s if watched_s else None,
        kernel_ms / 1000 / watched_s if watched_s and kernel_known else None,
        most,
        written,
    )


def _costs(segments: Sequence[Segment], columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    for segment in segments:
        content = segment.table(RecorderCost, columns) if segment.rows(RecorderCost) else None
        if content is not None and content.num_rows:
            yield content.sort_by("read_mono_s").to_pylist()


def _cpu(row: dict[str, Any]) -> int:
    return cast("int", row["cpu_ms"] + row["children_cpu_ms"])


def _status(path: Path) -> dict[str, Any] | None:
    try:
        return read_status(path / "status.json")
    except StoreError:
        return None
