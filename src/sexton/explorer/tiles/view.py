"""A recording for the explorer: lanes, marks, tables, flame graphs, answers.

Opening one reads only manifests. Each lane is built on first use, or by `warm`, which the server
runs in a thread; after that tiles come from memory. Times are wall-clock times over all boots; if a
clock was set back, the later reading of a second is shown.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, cast

from sexton.detect.registry import all_detectors
from sexton.errors import CommandError, StoreError
from sexton.explorer.lanes.cores import Builder as Cores
from sexton.explorer.lanes.events import Builder as Events
from sexton.explorer.tiles.follow import GrowingRecording, LaneFeed, build_lanes
from sexton.explorer.tiles.questions import Questions
from sexton.explorer.tiles.registry import Builder, Declared, all_lanes
from sexton.explorer.tiles.tables import TableSpan
from sexton.model.finding import Severity
from sexton.model.lane import COLUMNS, MOST_TILES, TOP, Lane, Marked, Strip, Table
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.node import Node
from sexton.model.text import moment
from sexton.replay.span import unbroken
from sexton.store.annex import annex_names
from sexton.store.recording import Recording

SCHEMA = "sexton.view/1"
Window = tuple[float, float]
T = TypeVar("T")
#: The longest span of a table: as many of the longest columns as one strip has.
_LONGEST_S = float(MOST_TILES - 1) * COLUMNS * (1 << TOP)
#: Lanes that a page shows first.
_FIRST = ("cores", "events")


class View(Questions):
    """Thread-safe. `path` is a recording's directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(GrowingRecording(path))
        self._lanes = {lane.id: lane for lane in all_lanes()}
        self._built = {
            lane.id: LaneFeed(lane.build) for lane in self._lanes.values() if lane.build is not None
        }
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Recording, Any]] = {}

    @classmethod
    def open(cls, path: str | Path) -> View:
        """`StoreError` if it is no recording."""
        return cls(Path(path))

    @property
    def problems(self) -> list[str]:
        """What could not be read so far."""
        problems = list(self.recording.problems)
        for feed in self._built.values():
            problems += getattr(feed.builder, "problems", [])
        return problems

    @property
    def span(self) -> Window | None:
        """The first and the last wall time; None if nothing is recorded yet."""
        stretches = unbroken(self.recording)
        walls = [wall for stretch in stretches for wall in (stretch.start[1], stretch.end[1])]
        walls = [wall for wall in walls if isfinite(wall)]
        return (min(walls), max(walls)) if walls else None

    def about(self) -> dict[str, Any]:
        """The recording and its lanes: what ``/api/recording`` returns, except "tour"."""
        span = self.span
        return {
            "schema": SCHEMA,
            "node": self._once("node", self.recording, _node_of),
            "start": None if span is None else span[0],
            "end": None if span is None else span[1],
            "live": self._followed.live,
            "lanes": [lane._asdict() for lane in self.lanes()],
            "finding_lanes": {known.id: list(known.lanes) for known in all_detectors()},
            "gaps": [list(gap) for gap in self.gaps()],
            "problems": self.problems,
        }

    def lanes(self) -> list[Lane]:
        """The lanes with any recorded data, in the order of the page."""
        found = []
        for lane in filter(self._is_there, self._lanes.values()):
            series = self._built[lane.of].builder.names(lane.id)
            words = (lane.title, lane.kind, lane.unit, lane.about)
            limit = None if lane.limit is None else lane.limit.value
            found.append(Lane(lane.id, *words, series, lane.levels, limit))
        return found

    def gaps(self) -> list[Window]:
        """Spans without a recording: a pause, a reboot, or a clock that was set forward."""
        found: list[Window] = []
        reached: float | None = None
        for span in sorted(unbroken(self.recording), key=lambda interval: interval.start[1]):
            if reached is not None and span.start[1] > reached:
                found.append((reached, span.start[1]))
            reached = span.end[1] if reached is None else max(reached, span.end[1])
        return found

    def warm(self, first: Callable[[], None] | None = None) -> None:
        """Build everything; after that tiles come from memory. `first` is called when the lanes
        that a page shows first are built."""
        recording = self.recording
        wanted = [lane for lane in self._lanes.values() if lane.build and self._is_there(lane)]
        wanted.sort(key=_first_seen)
        number = sum(lane.id in _FIRST for lane in wanted)
        for part in (wanted[:number], wanted[number:]):
            build_lanes(recording, part, self._built)
            if first is not None:
                first()
                first = None
        if self._has_stacks():
            self._samples.follow(recording)

    def strip(self, lane: str, level: int, first: int, count: int) -> Strip:
        """Some tiles; `CommandError` if the lane, level or number is invalid."""
        known = self._known(lane)
        low, high = known.levels
        if not low <= level <= high:
            raise CommandError(f"{lane} has no level {level}: they go from {low} to {high}")
        if not 1 <= count <= MOST_TILES:
            raise CommandError(f"from 1 to {MOST_TILES} tiles at once, not {count}")
        with self._built[known.of].lock:
            drawn = self._built[known.of].follow(self.recording).draw(lane, level, first, count)
        return Strip(lane, level, first, count, drawn.names, drawn.channels, drawn.planes)

    def marks(self, start: float, end: float, most: int = 2000) -> list[Marked]:
        """What happened from `start` to before `end`; the most severe if there are too many."""
        inside = self._marks(start, end)
        if len(inside) <= most:
            return inside
        kept = sorted(inside, key=lambda mark: -Severity(mark.severity).rank)[:most]
        return sorted(kept, key=lambda mark: mark.time)

    def marks_between(self, start: float, end: float) -> int:
        """The number of marks in a span."""
        return len(self._marks(start, end))

    def _marks(self, start: float, end: float) -> list[Marked]:
        every = self._ready("events").marks()
        times = [mark.time for mark in every]
        return every[bisect_left(times, start) : bisect_left(times, end)]

    def table(self, lane: str, start: float, end: float, most: int = 200) -> Table:
        """A lane's span as text, limited to what was recorded, and to the last months if the clock
        jumped by years."""
        known = self._known(lane)
        if known.kind != "marks":
            first, last = self.span or (start, start)
            if end <= first or start > last:
                raise StoreError(f"nothing was recorded from {moment(start)} to {moment(end)}")
            start, end = self._recorded(start, end)
        span = TableSpan(self.recording, start, end)
        self._ready(known.of).preload(span)
        with self._built[known.of].lock:
            found = self._built[known.of].builder.table(lane, span, most)
        if known.kind != "lines":
            return found
        time, *lines = found.headings
        return found._replace(headings=(time, *(f"{name} ({known.unit})" for name in lines)))

    def found(self, kind: str, after: float, backwards: bool = False) -> Marked | None:
        """The next (or previous) "spike", "reset" or mark of a kind; None if there is none."""
        if kind == "spike":
            every = self._spikes()
        else:
            events = cast("Events", self._ready("events"))
            marks = events.marks()
            every = events.resets() if kind == "reset" else [m for m in marks if m.kind == kind]
        times = [part.time for part in every]
        at = bisect_left(times, after) - 1 if backwards else bisect_right(times, after)
        return every[at] if 0 <= at < len(every) else None

    def refresh(self) -> bool:
        """Read what was recorded since. Has the end moved?"""
        with self._lock:
            before = self.span
            self._followed.refresh()
            return self.span != before

    @property
    def bytes(self) -> int:
        """About how much memory its lanes take."""
        return sum(feed.builder.bytes for feed in self._built.values())

    def _spikes(self) -> list[Marked]:
        built, recording = self._built["cores"], self.recording
        with built.lock:
            cores = cast("Cores", built.follow(recording))
            return self._once("spikes", recording, lambda _: cores.spikes())

    def _recorded(self, start: float, end: float) -> Window:
        first, last = self.span or (start, start)
        end = max(min(end, last + 1), first)
        return max(start, first, end - _LONGEST_S), end

    def _ready(self, lane: str) -> Builder:
        return self._built[self._lanes[lane].of].ready(self.recording)

    def _known(self, lane: str) -> Declared:
        found = self._lanes.get(lane)
        if found is None:
            raise CommandError(f"unknown lane; there are {', '.join(self._lanes)}")
        return found

    def _is_there(self, lane: Declared) -> bool:
        if lane.kind == "stacks":
            return self._has_stacks()
        if lane.kind == "marks":
            return True
        return any(segment.rows(kind) for segment in self.recording.segments for kind in lane.needs)

    def _has_stacks(self) -> bool:
        return self._once("stacks", self.recording, _has_annexes)

    def _once(self, name: str, recording: Recording, make: Callable[[Recording], T]) -> T:
        """What `make` returns, kept until the recording grows."""
        kept = self._kept.get(name)
        if kept is None or kept[0] is not recording:
            kept = self._kept[name] = (recording, make(recording))
        return cast("T", kept[1])


def _has_annexes(recording: Recording) -> bool:
    return any(annex_names(segment.path) for segment in reversed(recording.segments))


def _node_of(recording: Recording) -> dict[str, Any]:
    node, census = (_last(recording, kind) for kind in (Node, CgroupCensus))
    return {
        "host": node.hostname if node else None,
        "kernel": node.kernel if node else None,
        "cores": node.cores if node else None,
        "hierarchy": census.hierarchy if census else None,
    }


def _first_seen(lane: Declared) -> tuple[bool, int]:
    shown = lane.id in _FIRST
    return not shown, _FIRST.index(lane.id) if shown else lane.order


def _last(recording: Recording, kind: type[Row]) -> Any:
    for segment in reversed(recording.segments):
        if segment.rows(kind):
            rows = [row for batch in segment.batches(kind) for row in batch.rows]
            if rows:
                return rows[-1]
    return None
