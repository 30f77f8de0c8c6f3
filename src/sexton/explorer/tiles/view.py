"""A recording as the explorer sees it: lanes, marks, tables, flame graphs, answers.

Opening one reads manifests only. Each lane is built on first use, or by `warm`, which the
server runs in a thread; from then on tiles come from memory. Everything is by wall time,
over all boots: `span` explains what happens where the clock was set or the node was started again.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any, cast

from sexton.detect.registry import all_detectors
from sexton.errors import CommandError, StoreError
from sexton.explorer.lanes.cores import Builder as Cores
from sexton.explorer.lanes.cores import spikes
from sexton.explorer.tiles.feeding import LaneFeed, build_lanes
from sexton.explorer.tiles.follow import GrowingRecording
from sexton.explorer.tiles.questions import Questions
from sexton.explorer.tiles.registry import Builder, Declared, all_lanes
from sexton.explorer.tiles.tables import TableSpan
from sexton.model.lane import COLUMNS, MOST_TILES, TOP, Lane, Marked, Strip, Table
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.node import Node
from sexton.replay.span import moment, unbroken
from sexton.store.annex import annex_names
from sexton.store.recording import Recording

SCHEMA = "sexton.view/1"
Tell = Callable[[str], None]
Window = tuple[float, float]
#: As many of the longest columns as are drawn at once.
_MOST_TOLD_S = float(MOST_TILES - 1) * COLUMNS * (1 << TOP)
#: Lanes that a page shows first.
_FIRST = ("cores", "events")
#: Lines of one event follow one another within this.
_ONE_S = 10.0
_RESETS = ("nic_reset", "nic_watchdog", "nic_starved")
_RANK = ("critical", "warning", "info").index


class View(Questions):
    """Read by any number of threads. `path` is a recording's directory."""

    def __init__(self, path: Path, progress: Tell | None = None) -> None:
        super().__init__(GrowingRecording(path))
        self._progress = progress
        self._lanes = {lane.id: lane for lane in all_lanes()}
        self._built = {
            lane.id: LaneFeed(lane.build) for lane in self._lanes.values() if lane.build is not None
        }
        self._lock = threading.Lock()
        self._spiked: tuple[Recording, list[Marked]] | None = None
        self._stacked: tuple[Recording, bool] | None = None
        self._node: tuple[Recording, dict[str, Any]] | None = None

    @classmethod
    def open(cls, path: str | Path, progress: Tell | None = None) -> View:
        """`StoreError` if it is no recording. `progress` is called with what is being built."""
        return cls(Path(path), progress)

    @property
    def problems(self) -> list[str]:
        """What had to be left out, so far."""
        problems = list(self.recording.problems)
        for feed in self._built.values():
            problems += getattr(feed.builder, "problems", [])
        return problems

    @property
    def span(self) -> Window | None:
        """The first and the last wall time; `None` where nothing is recorded yet."""
        stretches = unbroken(self.recording)
        walls = [wall for stretch in stretches for wall in (stretch.start[1], stretch.end[1])]
        walls = [wall for wall in walls if isfinite(wall)]
        return (min(walls), max(walls)) if walls else None

    def about(self) -> dict[str, Any]:
        """The recording and its lanes: what ``/api/recording`` says, but for "tour"."""
        span = self.span
        return {
            "schema": SCHEMA,
            "node": self._node_of(self.recording),
            "start": None if span is None else span[0],
            "end": None if span is None else span[1],
            "live": self._followed.live,
            "lanes": [lane._asdict() for lane in self.lanes()],
            "finding_lanes": {known.id: list(known.lanes) for known in all_detectors()},
            "gaps": [list(gap) for gap in self.gaps()],
            "problems": self.problems,
        }

    def lanes(self) -> list[Lane]:
        """Those of which anything was recorded, in the order of the page."""
        found = []
        for lane in self._lanes.values():
            if self._is_there(lane):
                built = self._built[lane.of]
                series = built.builder.names(lane.id)
                words = (lane.title, lane.kind, lane.unit, lane.about)
                found.append(Lane(lane.id, *words, series, lane.levels))
        return found

    def gaps(self) -> list[Window]:
        """Wall times of which nothing was recorded, by a pause, a reboot or a clock set forward."""
        found: list[Window] = []
        reached: float | None = None
        for span in sorted(unbroken(self.recording), key=lambda interval: interval.start[1]):
            if reached is not None and span.start[1] > reached:
                found.append((reached, span.start[1]))
            reached = span.end[1] if reached is None else max(reached, span.end[1])
        return found

    def warm(self, first: Callable[[], None] | None = None) -> None:
        """Build everything; then tiles come from memory. `first` is called when the lanes that a
        page shows first are built."""
        recording = self.recording
        wanted = [lane for lane in self._lanes.values() if lane.build and self._is_there(lane)]
        wanted.sort(key=_first_seen)
        number = sum(attribute.id in _FIRST for attribute in wanted)
        for part in (wanted[:number], wanted[number:]):
            for lane in build_lanes(recording, part, self._built):
                if self._progress is not None:
                    self._progress(lane)
            if first is not None:
                first()
                first = None
        if self._has_stacks():
            self._samples.follow(recording)

    def strip(self, lane: str, level: int, first: int, count: int) -> Strip:
        """Some tiles; `CommandError` of a lane, level or number there is none of."""
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
        """What happened from `start` to before `end`; the gravest where there are too many."""
        every = self._ready("events").marks()
        times = [part.time for part in every]
        inside = every[bisect_left(times, start) : bisect_left(times, end)]
        if len(inside) <= most:
            return inside
        kept = sorted(inside, key=lambda mark: _RANK(mark.severity))[:most]
        return sorted(kept, key=lambda amount: amount.time)

    def marks_between(self, start: float, end: float) -> int:
        """How many there are."""
        times = [mark.time for mark in self._ready("events").marks()]
        return bisect_left(times, end) - bisect_left(times, start)

    def table(self, lane: str, start: float, end: float, most: int = 200) -> Table:
        """A lane's span in words; of numbers only as far as they are recorded, and the last months
        of a recording whose clock jumped by years."""
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
        """The next (or the last) of a kind: "spike", "reset" or a kind of mark; `None` if none."""
        if kind == "spike":
            every = self._spikes()
        else:
            every = merged_marks(self._ready("events").marks(), kind)
        times = [part.time for part in every]
        at = bisect_left(times, after) - 1 if backwards else bisect_right(times, after)
        return every[at] if 0 <= at < len(every) else None

    def refresh(self) -> bool:
        """Read what was recorded since; has the end moved?"""
        with self._lock:
            before = self.span
            self._followed.refresh()
            return self.span != before

    @property
    def bytes(self) -> int:
        """What its lanes hold in memory, about."""
        return sum(feed.builder.bytes for feed in self._built.values())

    def _spikes(self) -> list[Marked]:
        built = self._built["cores"]
        recording = self.recording
        with built.lock:
            builder = built.follow(recording)
            if self._spiked is None or self._spiked[0] is not recording:
                self._spiked = (recording, spikes(cast("Cores", builder)))
            return self._spiked[1]

    def _recorded(self, start: float, end: float) -> Window:
        first, last = self.span or (start, start)
        end = max(min(end, last + 1), first)
        return max(start, first, end - _MOST_TOLD_S), end

    def _ready(self, lane: str) -> Builder:
        built = self._built[self._lanes[lane].of]
        with built.lock:
            return built.follow(self.recording)

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
        recording = self.recording
        if self._stacked is None or self._stacked[0] is not recording:
            found = any(annex_names(segment.path) for segment in reversed(recording.segments))
            self._stacked = (recording, found)
        return self._stacked[1]

    def _node_of(self, recording: Recording) -> dict[str, Any]:
        if self._node is None or self._node[0] is not recording:
            node, census = (_last(recording, kind) for kind in (Node, CgroupCensus))
            about = {
                "host": node.hostname if node else None,
                "kernel": node.kernel if node else None,
                "cores": node.cores if node else None,
                "hierarchy": census.hierarchy if census else None,
            }
            self._node = (recording, about)
        return self._node[1]


def merged_marks(marks: list[Marked], kind: str) -> list[Marked]:
    """Marks of a kind. Those that follow one another at once are one: it begins with the first and
    says what the gravest says."""
    kinds = _RESETS if kind == "reset" else (kind,)
    found: list[Marked] = []
    last = float("-inf")
    for mark in marks:
        if mark.kind not in kinds:
            continue
        if mark.time - last > _ONE_S:
            found.append(mark)
        elif _RANK(mark.severity) < _RANK(found[-1].severity):
            found[-1] = mark._replace(time=found[-1].time)
        last = mark.time
    return found


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
