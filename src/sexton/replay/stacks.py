"""Kernel stacks from a recording, as ``diagnose --stacks`` takes them live.

A short span gives all of them. A longer one gives those of the seconds in which a core was mostly
in the kernel, which detectors look at; the heat of each annex shows these without reading a stack.
If there is no such second, some of those with the most kernel samples.

And as signals: the share of samples in which each kernel function was on the stack. They are read
only for the last seconds of each window, the most important windows first, until a limit of files;
and they are counted in bins of five seconds.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.errors import StoreError
from sexton.model.aligned import F64, Signal
from sexton.model.profile import I64, Bools, Frames, Heat, Kind, Profile, Tree
from sexton.model.rows.trace import StackCount
from sexton.model.text import count, printable
from sexton.model.window import Batch
from sexton.profile.flame import outermost
from sexton.profile.idle import idle_nodes, is_idle_function
from sexton.profile.recorded import (
    Stacks,
    check_tree,
    ends_of,
    indices,
    number_column,
    read_profile,
    read_seconds,
    sensible,
)
from sexton.replay.span import Span
from sexton.series.sums import Readings, Sums
from sexton.store.annex import LONGEST_RAW_S, Annex
from sexton.store.arrays import values
from sexton.store.pieces import waiting_stacks
from sexton.store.recording import Recording
from sexton.store.sealed import TableFile

#: Kernel samples that are taken from one span.
MOST_SAMPLES = 100_000
#: Enough if no core was mostly in the kernel.
_FEW_SAMPLES = 5_000
#: Annexes that are read for them: each takes some hundredths of a second.
_MOST_ANNEXES = 24
#: As many frames as live, see `sexton.sources.perf.stacks`.
_MOST_FRAMES = 64
_SECOND_NS = 1_000_000_000


class _Hot(NamedTuple):
    """Seconds of cores in one annex, with their kernel samples and all samples."""

    annex: Annex
    second: I64
    cpu: I64
    kernel: I64
    samples: I64

    def some(self, rows: Bools) -> _Hot:
        columns = (self.second, self.cpu, self.kernel, self.samples)
        return _Hot(self.annex, *(column[rows] for column in columns))


def stacks_in(
    recording: Recording, span: Span, most: int = MOST_SAMPLES
) -> tuple[Batch[StackCount] | None, list[str]]:
    """One reading with the kernel stacks of the span, `None` if none were recorded; and notes."""
    found = [annex for annex in _annexes(recording, span) if len(annex.second)]
    notes = []
    if waiting := _waiting(recording, span):
        read_by = f"sexton profile flame {printable(str(recording.path))}"
        notes.append(
            f"{count(waiting, 'file')} of stacks recorded and not decoded yet; {read_by} reads them"
        )
    if not found:
        return None, notes
    every = sum(int(annex.kernel.sum()) for annex in found)
    chosen = found if every <= most else _hottest(found, most)
    rows: list[StackCount] = []
    for annex in chosen:
        try:
            rows += _rows(annex)
        except StoreError as error:
            recording.problems.append(str(error))
    rows.sort(key=lambda row: (row.second_mono, row.cpu, row.pid, row.tid, row.frames))
    taken = sum(row.samples for row in rows)
    if chosen is not found:
        notes.append(
            f"{every:,} kernel stacks: the {taken:,} of the busiest cores and seconds are judged"
        )
    return Batch(*span.end, tuple(rows)), notes


def _waiting(recording: Recording, span: Span) -> int:
    """How many files that are not decoded yet may hold stacks of the span.

    They are dated by the filesystem. One that is younger than the recording was copied, and may be
    of any time.
    """
    last_s = max((segment.end[1] for segment in recording.segments), default=0.0)
    begin_s, end_s = span.start[1], span.end[1]
    number = 0
    for stack in waiting_stacks(recording.path):
        with suppress(FileNotFoundError):  # decoded meanwhile
            closed_s = os.lstat(stack.path).st_mtime
            copied = closed_s > last_s + LONGEST_RAW_S
            number += copied or begin_s <= closed_s <= end_s + LONGEST_RAW_S
    return number


def _annexes(recording: Recording, span: Span) -> Iterator[_Hot]:
    """Annexes of the span, with the seconds in it that have kernel samples."""
    start, end = span.start[0], span.end[0]
    for segment in recording.segments:
        near = segment.start[0] - LONGEST_RAW_S <= end and segment.end[0] + LONGEST_RAW_S >= start
        if segment.boot_id != span.boot_id or not near:
            continue
        for annex in segment.annexes:
            if annex.boot_id == span.boot_id and annex.start[0] <= end and annex.end[0] >= start:
                try:
                    heat = read_seconds(annex)
                except StoreError as error:
                    recording.problems.append(str(error))
                    continue
                yield _hot(annex, heat, (start, end))


def _hot(annex: Annex, heat: Heat, span: tuple[float, float]) -> _Hot:
    inside = (heat.second + 1 > span[0]) & (heat.second <= span[1]) & (heat.kernel > 0)
    columns = (heat.second, heat.cpu, heat.kernel, heat.samples)
    return _Hot(annex, *(column[inside].astype(np.int64) for column in columns))


def _hottest(found: list[_Hot], most: int) -> list[_Hot]:
    """The seconds mostly in the kernel, most kernel samples first, up to `most` samples."""
    held = [annex.some(2 * annex.kernel >= annex.samples) for annex in found]
    if any(len(annex.second) for annex in held):
        found = held
    else:
        most = min(most, _FEW_SAMPLES)
    kernel = np.concatenate([annex.kernel for annex in found])
    order = np.argsort(-kernel, kind="stable")
    enough = int(np.searchsorted(np.cumsum(kernel[order]), most)) + 1
    wanted = np.zeros(len(kernel), np.bool_)
    wanted[order[:enough]] = True
    made = []
    start = 0
    for annex in found:
        mine = wanted[start : start + len(annex.kernel)]
        start += len(annex.kernel)
        if mine.any():
            made.append(annex.some(mine))
    made.sort(key=lambda part: -int(part.kernel.sum()))
    return made[:_MOST_ANNEXES]


def _rows(hot: _Hot) -> Iterator[StackCount]:
    start_ns = int(hot.second.min()) * _SECOND_NS
    end_ns = (int(hot.second.max()) + 1) * _SECOND_NS
    profile = read_profile(hot.annex, Stacks(hot.annex), start_ns, end_ns)
    tree = profile.tree
    telling = _kernel(tree) & ~idle_nodes(tree)
    second = profile.time_ns // _SECOND_NS
    chosen = np.flatnonzero(telling[profile.node] & _among(second, profile, hot))
    keys = np.stack([second[chosen], profile.cpu[chosen], profile.thread[chosen],
                     profile.node[chosen]])  # fmt: skip
    distinct, number = np.unique(keys, axis=1, return_counts=True)
    named = _Named(tree)
    for at, samples in enumerate(number.tolist()):
        moment, cpu, thread, node = distinct[:, at].tolist()
        pid, tid, comm = profile.threads[thread]
        yield StackCount(moment, cpu, pid, tid, comm, named.frames(node), samples)


def _kernel(tree: Tree) -> Bools:
    found: Bools = (tree.frames.kinds == Kind.KERNEL)[tree.frame]
    return found


def _among(second: I64, profile: Profile, hot: _Hot) -> Bools:
    """Per sample: whether its core and second are in `hot`."""
    width = 1 << 20
    wanted = hot.second * width + hot.cpu
    found: Bools = np.isin(second * width + profile.cpu, wanted)
    return found


class _Named:
    """Kernel functions of a node, innermost first; each node is walked once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._parents: Any = tree.parents()
        self._kernel: list[bool] = (tree.frames.kinds == Kind.KERNEL).tolist()
        self._known: dict[int, tuple[str, ...]] = {}

    def frames(self, node: int) -> tuple[str, ...]:
        if node not in self._known:
            self._known[node] = tuple(self._walk(node))
        return self._known[node]

    def _walk(self, node: int) -> Iterator[str]:
        names, kernel = self._tree.frames.names, self._kernel
        for _ in range(_MOST_FRAMES):
            frame = int(self._tree.frame[node])
            if not kernel[frame]:
                return
            yield names[frame]
            node = int(self._parents[node])


Window = tuple[float, float]
BIN_S = 5.0
#: The last sixth of each window is read, but at least one bin.
_PART = 6
_MOST_COUNTED = 48
_MOST_FUNCTIONS = 400
_US = 1_000_000
_NOT_CODED = -2


class _Codes:
    """Functions as numbers, across annexes; -1 for those of an idle core.

    `depths` is the greatest depth of each in a stack.
    """

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self.names: list[str] = []
        self.depths: list[int] = []

    def of(self, names: Sequence[str], depths: Sequence[int]) -> I64:
        found = np.fromiter(map(self._code, names), np.int64, len(names))
        for code, depth in zip(found.tolist(), depths, strict=True):
            if code >= 0:
                self.depths[code] = max(depth, self.depths[code])
        return found

    def _code(self, name: str) -> int:
        if name not in self._known:
            self._known[name] = -1 if is_idle_function(name) else len(self.names)
            if self._known[name] >= 0:
                self.names.append(name)
                self.depths.append(0)
        return self._known[name]


class _Stacks:
    """An annex's tree. Names are read only for functions that occur in counted samples.

    A recursive function counts once, at its outermost node.
    """

    def __init__(self, annex: Annex, codes: _Codes) -> None:
        nodes, frames = annex.table("node"), annex.table("frame")
        depth = number_column(nodes, "depth", np.int32)
        frame = number_column(nodes, "frame", np.int32)
        kinds = number_column(frames, "kind", np.uint8)
        check_tree(depth)
        indices(frame, len(kinds), 0)
        tree = Tree(frame, depth, ends_of(depth), Frames(("",) * len(kinds), (), kinds))
        self.nodes = len(depth)
        self._start = np.flatnonzero((kinds == Kind.KERNEL)[frame] & outermost(tree))
        self._end = tree.end[self._start]
        self._frame = frame[self._start]
        self._names = frames.column("name")
        self._depth = np.zeros(len(kinds), np.int32)
        np.maximum.at(self._depth, self._frame, depth[self._start])
        self._codes = codes
        self._coded = np.full(len(kinds), _NOT_CODED, np.int64)

    def count(self, node: npt.NDArray[Any], weight: F64 | None) -> tuple[I64, F64, float]:
        """Functions, the samples with each of them on the stack, and all samples."""
        own = np.bincount(node, weight, minlength=self.nodes)
        running = np.zeros(self.nodes + 1)
        np.cumsum(own, out=running[1:])
        total = running[self._end] - running[self._start]
        counts = np.bincount(self._frame, total, minlength=len(self._coded))
        seen = np.flatnonzero(counts)
        new = seen[self._coded[seen] == _NOT_CODED]
        if len(new):
            names = values(self._names, new)
            self._coded[new] = self._codes.of(names, self._depth[new].tolist())
        seen = seen[self._coded[seen] >= 0]
        return self._coded[seen], counts[seen].astype(np.float64), float(running[-1])


def function_signals(
    recording: Recording, span: Span, near: Sequence[Window] | None
) -> Iterator[Signal]:
    """Shares of the functions that were seen most in any five seconds; none without stacks.

    If a function was never seen without another that it calls, only the inner one is given.
    """
    codes = _Codes()
    sums = Sums()
    requested = _windows(span, near)
    for annex, windows in _wanted(_annexes_near(recording, span, requested), requested):
        try:
            with sensible(annex):
                _count(annex, windows, codes, sums)
        except StoreError as error:
            if str(error) not in recording.problems:
                recording.problems.append(str(error))
    innermost: dict[bytes, tuple[int, F64, F64]] = {}
    for code, mono, value in sums.largest(_MOST_FUNCTIONS, by_peak=True):
        # Functions that were in exactly the same samples are one path through the kernel.
        same = value.tobytes()
        if same not in innermost or codes.depths[code] > codes.depths[innermost[same][0]]:
            innermost[same] = (code, mono, value)
    for code, mono, value in innermost.values():
        name = printable(codes.names[code])
        yield Signal("function", name, "share", "% of samples", mono, value)


def _annexes_near(recording: Recording, span: Span, windows: Sequence[Window]) -> list[Annex]:
    """Annexes of segments that are in or near these windows, by time."""
    merged = _merged([(start - LONGEST_RAW_S, end + LONGEST_RAW_S) for start, end in windows])
    found = []
    for segment in recording.segments:
        first, last = segment.start[0], segment.end[0]
        near = any(start <= last and end >= first for start, end in merged)
        if segment.boot_id == span.boot_id and near:
            found += [annex for annex in segment.annexes if annex.boot_id == span.boot_id]
    return sorted(found, key=lambda annex: annex.start)


def _windows(span: Span, near: Sequence[Window] | None) -> list[Window]:
    if near is None:
        return [(span.start[0], span.end[0])]
    return [(max(start, end - max(BIN_S, (end - start) / _PART)), end) for start, end in near]


def _wanted(
    annexes: Sequence[Annex], windows: Sequence[Window]
) -> Iterator[tuple[Annex, list[Window]]]:
    """Annexes by time with the parts to read of each; chosen by the most important windows."""
    chosen: dict[int, list[Window]] = {}
    starts = [annex.start[0] for annex in annexes]
    for start, end in windows:
        # Two perf files may overlap a little: the earlier may end after the later began.
        first = max(0, bisect_right(starts, start - LONGEST_RAW_S))
        for at in range(first, bisect_right(starts, end)):
            part = (max(start, starts[at]), min(end, annexes[at].end[0]))
            if part[1] - part[0] >= BIN_S / 2 and (at in chosen or len(chosen) < _MOST_COUNTED):
                chosen.setdefault(at, []).append(part)
    last = -inf
    for at in sorted(chosen):
        parts = []
        for start, end in _merged(chosen[at]):
            if end - max(start, last) >= BIN_S / 2:
                parts.append((max(start, last), end))
        if parts:
            last = parts[-1][1]
            yield annexes[at], parts


def _merged(windows: Sequence[Window]) -> list[Window]:
    found: list[Window] = []
    for start, end in sorted(windows):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _count(annex: Annex, windows: Sequence[Window], codes: _Codes, sums: Sums) -> None:
    stacks = _Stacks(annex, codes)
    samples = annex.opened("sample")
    for window in windows:
        edges = _edges(window)
        time_us, node, weight = _samples(samples, edges)
        indices(node, stacks.nodes, 0)
        bounds = np.searchsorted(time_us, edges)
        keys, places, shares = [], [], []
        known = np.zeros(len(edges), np.bool_)
        for at, (first, last) in enumerate(pairwise(bounds.tolist()), start=1):
            mine = None if weight is None else weight[first:last]
            seen, counts, whole = stacks.count(node[first:last], mine)
            known[at] = whole > 0
            keys.append(seen)
            places.append(np.full(len(seen), at))
            shares.append(100 * counts / max(whole, 1.0))
        mono = edges / _US
        when = Readings(np.append(-np.inf, mono[:-1]), mono, known)
        sums.add(when, *(np.concatenate(group) for group in (keys, places, shares)))


def _edges(window: Window) -> I64:
    """Bins from the window's end backwards; a rest at its beginning is not counted."""
    start, end = window
    number = max(1, int((end - start) / BIN_S + 0.01))
    width = min(BIN_S, end - start)
    found: I64 = np.rint((end - width * np.arange(number, -1, -1)) * _US).astype(np.int64)
    return found


def _samples(samples: TableFile, edges: I64) -> tuple[I64, I64, F64 | None]:
    metadata = samples.metadata
    groups = [
        at for at in range(metadata.num_row_groups) if _touches(metadata.row_group(at), edges)
    ]
    columns = ["time_us", "node"]
    if "weight" in samples.names:
        columns.append("weight")
    found = samples.read(columns, groups)
    time_us, node = (number_column(found, name, np.int64) for name in columns[:2])
    weight = number_column(found, "weight", np.int64) if len(columns) > 2 else None
    return time_us, node, None if weight is None else weight.astype(np.float64)


def _touches(group: Any, edges: I64) -> bool:
    statistics = group.column(0).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min < edges[-1] and statistics.max >= edges[0])
