"""Flame graphs of any span of a recording, by wall time, as `sexton profile flame` makes them.

`sexton.profile` does the work; here a span of wall time becomes a selection of samples of one boot.

A minute of a large node is half a million samples, and stacks may have been taken all night or for
some minutes after each alarm. So first a small part is shown, evenly spread over the time that has
stacks, and then as much as is worth waiting for: up to a quarter of an hour in full.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from sexton.errors import StoreError
from sexton.explorer.tiles.follow import ANNEXES_LATE
from sexton.explorer.tiles.time_order import Ordered, Shown, in_time_order
from sexton.model.profile import Facts, Flame, FlameDifference
from sexton.model.text import moment, seconds
from sexton.profile.captures import Opened, Piece
from sexton.profile.difference import Side, difference
from sexton.profile.flame import merge_flames
from sexton.profile.recorded import RecordedPiece, Stacks, undecoded_pieces
from sexton.profile.select import Selection
from sexton.store.annex import Annex
from sexton.store.recording import Recording

Window = tuple[float, float]
#: Stacks are decoded at most this long after they were sampled.
LATE_S = 600.0
#: A preview has about this many samples from this many places; and this many seconds, if samples
#: per second are unknown.
_QUICK_SAMPLES, _QUICK_SLICES, _QUICK_S = 200_000, 3, 15.0
_LEAST_S = 0.3
#: Up to this many seconds are shown in full, of more only slices; less if two spans are compared.
LONGEST_S, COMPARED_S = 900.0, 300.0
SLICES, SLICE_S = 24, 15.0


class Reach(NamedTuple):
    """Start and end of the stacks, and their samples; `None` if not counted."""

    start: float
    end: float
    samples: int | None = None


class Choice(NamedTuple):
    """The windows that are shown; `note` says which part of the span that is, empty if all."""

    windows: list[Window]
    note: str


def choose(span: Window, reaches: Sequence[Reach], quick: bool = False) -> Choice:
    """Which parts of a span to show; no windows if it has no stacks.

    >>> night = [Reach(0.0, 43200.0, 43200 * 9000)]
    >>> choose((10.0, 70.0), night)
    Choice(windows=[(10.0, 70.0)], note='')
    >>> choose((10.0, 70.0), night, quick=True).note
    'a preview: 3 times 7.41 s of 1 min 0 s'
    >>> found = choose((0.0, 43200.0), night)
    >>> len(found.windows), found.windows[1], found.note
    (24, (1800.0, 1815.0), 'a sample: 24 times 15 s of 12 h 0 min, evenly spread')
    >>> choose((0.0, 43200.0), [Reach(60.0, 65.0), Reach(900.0, 920.0)]).windows
    [(0.0, 43200.0)]
    """
    there = _covered(span, reaches)
    length = sum(end - start for start, end in there)
    longest, number, each_s = LONGEST_S, SLICES, SLICE_S
    if quick:
        longest, number = _quick_s(reaches), _QUICK_SLICES
        each_s = longest / number
    if length <= longest:
        return Choice([span] if there else [], "")
    windows = _spread(there, length, number, each_s)
    what = "a preview" if quick else "a sample"
    spread = "" if quick else ", evenly spread"
    text = f"{what}: {number} times {each_s:.3g} s of {seconds(round(length))}{spread}"
    return Choice(windows, text)


def nearest(span: Window, to: Window) -> Window:
    """The part of a long span that is compared: the one nearest to the other span.

    >>> nearest((0.0, 5000.0), (6000.0, 6010.0)), nearest((7000.0, 7010.0), (0.0, 1.0))
    ((4700.0, 5000.0), (7000.0, 7010.0))
    """
    start, end = span
    if end - start <= COMPARED_S:
        return span
    return (end - COMPARED_S, end) if start < to[0] else (start, start + COMPARED_S)


def cut_note(span: Window, baseline: Window) -> str:
    """Which part of two spans is compared, empty if all.

    >>> cut_note((0.0, 60.0), (60.0, 90.0)), cut_note((0.0, 60.0), (60.0, 9000.0))
    ('', 'compared: the 5 min 0 s of each span nearest to the other')
    """
    if max(end - start for start, end in (span, baseline)) <= COMPARED_S:
        return ""
    return f"compared: the {seconds(COMPARED_S)} of each span nearest to the other"


def _covered(span: Window, reaches: Iterable[Reach]) -> list[Window]:
    """The parts of the span that have stacks, sorted, without overlaps."""
    found: list[Window] = []
    for reach in sorted(reaches, key=lambda other: other[:2]):
        start, end = max(reach.start, span[0]), min(reach.end, span[1])
        if found:
            start = max(start, found[-1][1])
        if start >= end:
            continue
        if found and found[-1][1] == start:
            start = found.pop()[0]
        found.append((start, end))
    return found


def _quick_s(reaches: Sequence[Reach]) -> float:
    counted = [reach for reach in reaches if reach.samples and reach.end > reach.start]
    if not counted:
        return _QUICK_S
    samples = sum(reach.samples or 0 for reach in counted)
    length = sum(reach.end - reach.start for reach in counted)
    return max(_QUICK_SAMPLES * length / samples, _LEAST_S)


def _spread(there: list[Window], length: float, number: int, each_s: float) -> list[Window]:
    """That many windows, one in each equal part of the covered time."""
    found: list[Window] = []
    for at in range(number):
        offset = length * at / number
        for start, end in there:
            if offset < end - start:
                found.append((start + offset, min(start + offset + each_s, end)))
                break
            offset -= end - start
    return found


class Who(NamedTuple):
    """Whose samples: of a core, of tasks and cgroups whose names contain these words."""

    cpu: int | None = None
    task: str | None = None
    cgroup: str | None = None

    def choice(self, start_ns: int, end_ns: int) -> Selection:
        """As a `Selection`. Words are never patterns: they come from a web page."""
        return Selection(
            start_ns,
            end_ns,
            None if self.cpu is None else frozenset({self.cpu}),
            task=None if not self.task else re.compile(re.escape(self.task)),
            cgroup=None if not self.cgroup else re.compile(re.escape(self.cgroup)),
        )


class Seen(NamedTuple):
    """A flame graph. `note` says which part of the span it shows, empty if all; unless it is
    `settled`, a more detailed one can be requested."""

    flame: Flame
    note: str = ""
    settled: bool = True


class _Boot(NamedTuple):
    """One boot's stacks, and the wall times they cover."""

    opened: Opened
    reaches: list[Reach]

    @property
    def start(self) -> float:
        return min(reach.start for reach in self.reaches)

    @property
    def end(self) -> float:
        return max(reach.end for reach in self.reaches)


class Samples:
    """All stacks of a recording. Requests are served one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Recording | None = None
        self._boots: list[_Boot] = []
        self._annexes: dict[str, list[Annex]] = {}
        self._pieces: dict[Path, RecordedPiece] = {}
        self._trees: OrderedDict[Path, Stacks] = OrderedDict()
        self.problems: list[str] = []

    def flame(self, recording: Recording, span: Window, who: Who, quick: bool = False) -> Seen:
        """`StoreError` if the span has no stacks. A `quick` one is a preview."""
        with self._lock:
            self._follow(recording)
            chosen = choose(span, self._reaches, quick)
            sides = [side for window in chosen.windows for side in self._sides(window, who)]
            if not sides:
                raise _none(span)
            flame = merge_flames([side.opened.flame(side.selection) for side in sides])
            return Seen(flame, chosen.note, not (quick and chosen.note))

    def ordered(self, recording: Recording, span: Window, who: Who) -> Ordered:
        """The same in the order of time."""
        with self._lock:
            self._follow(recording)
            chosen = choose(span, self._reaches)
            parts = [Shown(window, self._sides(window, who)) for window in chosen.windows]
            if not any(part.sides for part in parts):
                raise _none(span)
            return in_time_order(parts, chosen.note)

    def follow(self, recording: Recording) -> None:
        """Index the stacks now, so that the first request is faster."""
        with self._lock:
            self._follow(recording)

    def difference(
        self, recording: Recording, span: Window, baseline: Window, who: Who
    ) -> FlameDifference:
        """How a span differs from its baseline, and whether that may be chance."""
        with self._lock:
            self._follow(recording)
            before, after = nearest(baseline, span), nearest(span, baseline)
            return difference(self._most(before, who), self._most(after, who))

    @property
    def _reaches(self) -> list[Reach]:
        return [reach for boot in self._boots for reach in boot.reaches]

    def _in(self, span: Window) -> list[_Boot]:
        return [boot for boot in self._boots if boot.start < span[1] and boot.end > span[0]]

    def _sides(self, span: Window, who: Who) -> list[Side]:
        """One per boot in the span."""
        return [_side(boot, span, who) for boot in self._in(span)]

    def _most(self, span: Window, who: Who) -> Side:
        """Of the boot with most of the span: two boots are not compared with one."""
        boots = self._in(span)
        if not boots:
            raise _none(span)
        start, end = span
        most = max(boots, key=lambda boot: min(boot.end, end) - max(boot.start, start))
        return _side(most, span, who)

    def _follow(self, recording: Recording) -> None:
        if recording is self._seen:
            return
        boots: dict[str, list[Annex]] = {}
        late = {segment.name for segment in recording.segments[-ANNEXES_LATE:]}
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
            done = {annex.name for annex in annexes}
            end = recording.segments[-1].end if recording.segments else (0.0, 0.0)
            for waiting in undecoded_pieces(recording.path, boot_id, done, facts):
                begun_ns = waiting.begun_ns or 0
                begins.append((begun_ns, waiting))
                reaches.append(Reach(begun_ns / 1e9 + end[1] - end[0], end[1]))
        self.problems += [problem for problem in facts.problems if problem not in self.problems]
        if not begins:
            return None
        begins.sort(key=lambda start: start[0])
        return _Boot(Opened([start for _, start in begins], facts, ordered=True), reaches)


def _side(boot: _Boot, span: Window, who: Who) -> Side:
    bounds = [boot.opened.time_ns(value) for value in span]
    if bounds[0] is None or bounds[1] is None:
        raise StoreError("these stacks have no wall-clock times")
    return Side(boot.opened, who.choice(bounds[0], max(bounds[1], bounds[0] + 1)))


def _none(span: Window) -> StoreError:
    return StoreError(f"no stacks were recorded from {moment(span[0])} to {moment(span[1])}")
