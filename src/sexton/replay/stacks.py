"""Kernel stacks out of a recording, as ``diagnose --stacks`` takes them live.

A short span gives all of them. A longer one gives those of the seconds in which a core was mostly
in the kernel, which are the ones a detector asks about; the heat of each annex tells which, without
opening a stack. Where there is no such second, some of those with most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sexton.errors import StoreError
from sexton.model.heat import Heat
from sexton.model.profile import I64, Bools, Kind, Profile, Tree
from sexton.model.stack import StackCount
from sexton.model.window import Batch
from sexton.profile.idle import idle_nodes
from sexton.profile.kept import Stacks, read_profile, read_seconds
from sexton.replay.span import Span
from sexton.store.annex import Annex
from sexton.store.homes import LONGEST_RAW_S
from sexton.store.recording import Recording

#: Kernel samples that are taken from one span.
MOST_SAMPLES = 100_000
#: Where no core was mostly in the kernel, a taste is enough.
_FEW_SAMPLES = 5_000
#: Annexes that are opened for them: each takes some hundredths of a second.
_MOST_ANNEXES = 24
#: As many frames as live, see `sexton.sources.perf.stacks`.
_MOST_FRAMES = 64
_SECOND_NS = 1_000_000_000


class _Hot(NamedTuple):
    """Seconds of cores in one annex, with their samples in the kernel and in all."""

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
    """One reading with the kernel stacks of the span, and what the reader should know of it;
    `None` where none were recorded."""
    found = [each for each in _annexes(recording, span) if len(each.second)]
    if not found:
        return None, []
    every = sum(int(each.kernel.sum()) for each in found)
    chosen = found if every <= most else _hottest(found, most)
    rows: list[StackCount] = []
    for each in chosen:
        try:
            rows += _rows(each)
        except StoreError as error:
            recording.problems.append(str(error))
    rows.sort(key=lambda row: (row.second_mono, row.cpu, row.pid, row.tid, row.frames))
    taken = sum(row.samples for row in rows)
    notes = []
    if chosen is not found:
        notes.append(
            f"{every:,} kernel stacks: the {taken:,} of the busiest cores and seconds are judged"
        )
    return Batch(*span.end, tuple(rows)), notes


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
    """The seconds mostly in the kernel, those with most samples there first, until it is enough."""
    held = [each.some(2 * each.kernel >= each.samples) for each in found]
    if any(len(each.second) for each in held):
        found = held
    else:
        most = min(most, _FEW_SAMPLES)
    kernel = np.concatenate([each.kernel for each in found])
    order = np.argsort(-kernel, kind="stable")
    enough = int(np.searchsorted(np.cumsum(kernel[order]), most)) + 1
    wanted = np.zeros(len(kernel), np.bool_)
    wanted[order[:enough]] = True
    made = []
    start = 0
    for each in found:
        mine = wanted[start : start + len(each.kernel)]
        start += len(each.kernel)
        if mine.any():
            made.append(each.some(mine))
    made.sort(key=lambda each: -int(each.kernel.sum()))
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
    """Per sample: is its second of its core one of those?"""
    width = 1 << 20
    wanted = hot.second * width + hot.cpu
    found: Bools = np.isin(second * width + profile.cpu, wanted)
    return found


class _Named:
    """Kernel functions of a node, the innermost first; each node's once."""

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
