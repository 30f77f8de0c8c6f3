"""Flame graphs of any span of a recording, by wall time: what `sexton profile flame` shows.

The engine is `sexton.profile`; here a span of wall time becomes a choice of samples of one boot,
and what was asked lately is kept.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from sexton.errors import StoreError
from sexton.explorer.tiles.built import ANNEXES_LATE
from sexton.explorer.tiles.stacks_choice import Reach, choose, nearest
from sexton.model.profile import Facts, Flame, FlameDifference
from sexton.profile.difference import Side, difference
from sexton.profile.flame import merge_flames
from sexton.profile.opened import Opened, Piece
from sexton.profile.recorded import RecordedPiece, Stacks, undecoded_pieces
from sexton.profile.select import Selection
from sexton.replay.span import moment
from sexton.store.annex import Annex
from sexton.store.recording import Recording

Window = tuple[float, float]
#: Stacks are decoded so long after they were sampled, at the most.
LATE_S = 600.0


class Who(NamedTuple):
    """Whose samples: of a core, of tasks and of cgroups that have these words in their names."""

    cpu: int | None = None
    task: str | None = None
    cgroup: str | None = None

    def choice(self, start_ns: int, end_ns: int) -> Selection:
        """As the engine takes it. Words are words, never patterns: they come from a web page."""
        return Selection(
            start_ns,
            end_ns,
            None if self.cpu is None else frozenset({self.cpu}),
            task=None if not self.task else re.compile(re.escape(self.task)),
            cgroup=None if not self.cgroup else re.compile(re.escape(self.cgroup)),
        )


class Seen(NamedTuple):
    """A flame graph, and what whoever sees it should know: `note` is empty where it is all there is
    of its span, and what is not `settled` can be had in more detail."""

    flame: Flame
    note: str = ""
    settled: bool = True


class _Boot(NamedTuple):
    """One boot's stacks, and where they reach by the wall clock."""

    opened: Opened
    reaches: list[Reach]

    @property
    def start(self) -> float:
        return min(each.start for each in self.reaches)

    @property
    def end(self) -> float:
        return max(each.end for each in self.reaches)


class Samples:
    """All stacks of a recording. One at a time is read, whoever asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Recording | None = None
        self._boots: list[_Boot] = []
        self._annexes: dict[str, list[Annex]] = {}
        self._pieces: dict[Path, RecordedPiece] = {}
        self._trees: OrderedDict[Path, Stacks] = OrderedDict()
        self.problems: list[str] = []

    def flame(self, recording: Recording, span: Window, who: Who, quick: bool = False) -> Seen:
        """`StoreError` where there are no stacks in the span. A `quick` one is a first look."""
        with self._lock:
            self._follow(recording)
            return self._seen_in(span, who, quick)

    def follow(self, recording: Recording) -> None:
        """Know what there is, so that whoever asks first need not wait for that too."""
        with self._lock:
            self._follow(recording)

    def difference(
        self, recording: Recording, span: Window, baseline: Window, who: Who
    ) -> FlameDifference:
        """What a span has more or less of than its baseline has, and whether that is chance."""
        with self._lock:
            self._follow(recording)
            before, after = nearest(baseline, span), nearest(span, baseline)
            return difference(self._most(before, who), self._most(after, who))

    def _seen_in(self, span: Window, who: Who, quick: bool) -> Seen:
        chosen = choose(span, [each for boot in self._boots for each in boot.reaches], quick)
        sides = [side for window in chosen.windows for side in self._sides(window, who)]
        if not sides:
            raise _none(span)
        flame = merge_flames([side.opened.flame(side.selection) for side in sides])
        return Seen(flame, chosen.note, not (quick and chosen.note))

    def _sides(self, span: Window, who: Who) -> list[Side]:
        """Of each boot that reaches into it."""
        start, end = span
        there = [each for each in self._boots if each.start < end and each.end > start]
        return [_side(each, span, who) for each in there]

    def _most(self, span: Window, who: Who) -> Side:
        """Of the boot that has most of it: two boots are not compared with one."""
        start, end = span
        there = [each for each in self._boots if each.start < end and each.end > start]
        if not there:
            raise _none(span)
        most = max(there, key=lambda each: min(each.end, end) - max(each.start, start))
        return _side(most, span, who)

    def _follow(self, recording: Recording) -> None:
        if recording is self._seen:
            return
        boots: dict[str, list[Annex]] = {}
        late = {each.name for each in recording.segments[-ANNEXES_LATE:]}
        known, self._annexes = self._annexes, {}
        for segment in recording.segments:
            mine = known.get(segment.name)
            if mine is None or segment.name in late:
                mine = segment.annexes
            self._annexes[segment.name] = mine
            for annex in mine:
                boots.setdefault(annex.boot_id, []).append(annex)
        last = recording.segments[-1].boot_id if recording.segments else ""
        boots.setdefault(last, [])
        self._boots = []
        for boot_id, annexes in boots.items():
            found = self._opened(recording, boot_id, annexes, boot_id == last)
            if found is not None:
                self._boots.append(found)
        self._seen = recording

    def _opened(
        self, recording: Recording, boot_id: str, annexes: list[Annex], last: bool
    ) -> _Boot | None:
        facts = Facts(path=str(recording.path), format="recording")
        begins: list[tuple[int, Piece]] = []
        reaches: list[Reach] = []
        for annex in annexes:
            piece = self._pieces.get(annex.path)
            if piece is None:
                piece = self._pieces[annex.path] = RecordedPiece(annex, self._trees)
            begins.append((piece.start_ns, piece))
            reaches.append(Reach(annex.start[1], annex.end[1], annex.fact("samples")))
        if last:
            done = {each.name for each in annexes}
            end = recording.segments[-1].end if recording.segments else (0.0, 0.0)
            for waiting in undecoded_pieces(recording.path, boot_id, done, facts):
                begun_ns = waiting.begun_ns or 0
                begins.append((begun_ns, waiting))
                reaches.append(Reach(begun_ns / 1e9 + end[1] - end[0], end[1]))
        self.problems += [each for each in facts.problems if each not in self.problems]
        if not begins:
            return None
        begins.sort(key=lambda each: each[0])
        return _Boot(Opened([each for _, each in begins], facts, ordered=True), reaches)


def _side(boot: _Boot, span: Window, who: Who) -> Side:
    bounds = [boot.opened.time_ns(each) for each in span]
    if bounds[0] is None or bounds[1] is None:
        raise StoreError("these stacks tell no wall time")
    return Side(boot.opened, who.choice(bounds[0], max(bounds[1], bounds[0] + 1)))


def _none(span: Window) -> StoreError:
    return StoreError(f"no stacks were recorded from {moment(span[0])} to {moment(span[1])}")
