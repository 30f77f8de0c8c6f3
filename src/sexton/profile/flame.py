"""Flame graphs: count samples per stack, merge, prune; and totals per function.

A recursive function is on a stack more than once and counts once. In pre-order that takes one pass:
a node lies within another of the same function exactly when its number is below the largest `end`
of those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from sexton.model.profile import I64, Bools, Flame, Frames, FunctionCount, Kind, Profile, Tree
from sexton.profile.heat import SECOND_NS, sampled
from sexton.profile.select import Selection, chosen_in, window
from sexton.profile.stack_tree import join, subtree


def flame_of(profile: Profile, selection: Selection) -> Flame:
    """The chosen samples per node of the profile's tree."""
    rows = window(profile, selection)
    chosen = chosen_in(profile, selection, rows)
    return Flame(
        profile.tree,
        own_counts(profile, rows, chosen),
        _event(profile, selection),
        core_seconds(profile, selection),
        selection.start_ns,
        selection.end_ns,
    )


def own_counts(profile: Profile, rows: slice, chosen: Bools) -> I64:
    """Samples of `rows` that are `chosen`, per node."""
    node = profile.node[rows][chosen]
    if profile.weight is None:
        return np.bincount(node, minlength=len(profile.tree))
    own = np.zeros(len(profile.tree), np.int64)
    np.add.at(own, node, profile.weight[rows][chosen])
    return own


def core_seconds(profile: Profile, selection: Selection) -> float | None:
    """Core time covered by the range and cores, whatever ran there.

    Per core the seconds in which it was sampled; the first and last second count only as far as
    they lie in the range and between the first and last sample. `None` without timestamps.
    """
    span = profile.span_ns
    if span is None:
        return None
    rows = window(profile, selection)
    chosen = chosen_in(profile, selection.all_samples(), rows)
    found = sampled(profile.time_ns[rows][chosen], profile.cpu[rows][chosen])
    start, end = selection.within(span)
    begins = np.maximum(found.second * SECOND_NS, start)
    ends = np.minimum((found.second + 1) * SECOND_NS, end)
    return float((ends - begins).sum()) / SECOND_NS


def merge_flames(flames: Sequence[Flame]) -> Flame:
    """Several flame graphs as one; equal stacks are added up."""
    if not flames:
        return Flame(empty_tree(), np.zeros(1, np.int64), "")
    if len(flames) == 1:
        return flames[0]
    tree, places = join([flame.tree for flame in flames])
    own = np.zeros(len(tree), np.int64)
    for flame, place in zip(flames, places, strict=True):
        np.add.at(own, place, flame.own)
    times = [flame.core_seconds for flame in flames if flame.core_seconds is not None]
    return Flame(
        tree,
        own,
        ", ".join(dict.fromkeys(flame.event for flame in flames if flame.event)),
        sum(times) if len(times) == len(flames) else None,
        _outermost((flame.start_ns for flame in flames), min),
        _outermost((flame.end_ns for flame in flames), max),
    )


def pruned(flame: Flame) -> Flame:
    """The same without nodes and frames that have no samples."""
    kept = flame.tree.totals(flame.own) > 0
    kept[0] = True
    return replace(flame, tree=subtree(flame.tree, kept)[0], own=flame.own[kept])


class FlameSum:
    """Adds up flame graphs one by one, in bounded memory.

    Merging each at once costs the size of the sum every time; keeping all of them takes too much
    memory. So they are merged when together they are as large as the sum.
    """

    def __init__(self) -> None:
        self._joined: list[Flame] = []
        self._waiting: list[Flame] = []

    def add(self, flame: Flame) -> None:
        self._waiting.append(pruned(flame))
        joined = sum(len(part.tree) for part in self._joined)
        if sum(len(part.tree) for part in self._waiting) >= max(joined, _FEW_NODES):
            self._join()

    def merged(self) -> Flame:
        self._join()
        return merge_flames(self._joined)

    def _join(self) -> None:
        if self._waiting:
            self._joined = [merge_flames([*self._joined, *self._waiting])]
            self._waiting = []


#: Smaller trees are collected before they are merged.
_FEW_NODES = 50_000


def empty_tree() -> Tree:
    """A tree of a root only."""
    zero = np.zeros(1, np.int32)
    return Tree(zero, zero, np.ones(1, np.int32), Frames(("all",), ("",), np.zeros(1, np.uint8)))


def _event(profile: Profile, selection: Selection) -> str:
    if selection.event is not None:
        return selection.event
    return ", ".join(dict.fromkeys(event.name for event in profile.events))


def _outermost(bounds: Iterable[int | None], choose: Callable[[list[int]], int]) -> int | None:
    """The first start or the last end; open if one of them is open."""
    every = list(bounds)
    known = [bound for bound in every if bound is not None]
    return choose(known) if len(known) == len(every) else None


def functions(flame: Flame) -> list[FunctionCount]:
    """Every function with samples (no tasks), by self, then total, then name."""
    own, total = function_counts(flame.tree, flame.own)
    kinds = flame.tree.frames.kinds
    return _listed(flame, own, total, (kinds != Kind.TASK) & (kinds != Kind.ROOT))


def tasks(flame: Flame) -> list[FunctionCount]:
    """Every task with samples, the largest first; `own` counts samples without a function."""
    own, total = function_counts(flame.tree, flame.own)
    found = _listed(flame, own, total, flame.tree.frames.kinds == Kind.TASK)
    return sorted(found, key=lambda count: (-count.total, count.name))


def function_counts(tree: Tree, own: I64) -> tuple[I64, I64]:
    """Per frame: self and total samples."""
    return _by_frame(tree, own), _by_frame(tree, np.where(outermost(tree), tree.totals(own), 0))


def outermost(tree: Tree) -> Bools:
    """Per node: is no caller the same function?"""
    number = len(tree)
    few = len(tree.frames) <= 1 << 16  # then numpy sorts without comparing
    order = np.argsort(tree.frame.astype(np.uint16) if few else tree.frame, kind="stable")
    # Each frame in its own range of numbers, so that one running maximum serves all.
    base = tree.frame[order].astype(np.int64) * (number + 1)
    reach = np.maximum.accumulate(base + tree.end[order])
    outer = np.ones(number, np.bool_)
    outer[order[1:]] = base[1:] + order[1:] >= reach[:-1]
    return outer


def _by_frame(tree: Tree, counts: I64) -> I64:
    number = len(tree.frames)
    if int(counts.max(initial=0)) * len(tree) < 1 << 53:  # then sums in floats are exact
        return np.bincount(tree.frame, counts, minlength=number).astype(np.int64)
    sums = np.zeros(number, np.int64)
    np.add.at(sums, tree.frame, counts)
    return sums


def _listed(flame: Flame, own: I64, total: I64, wanted: Bools) -> list[FunctionCount]:
    frames = flame.tree.frames
    found = [
        FunctionCount(
            frames.names[index],
            frames.modules[index],
            int(frames.kinds[index]),
            int(own[index]),
            int(total[index]),
        )
        for index in np.flatnonzero(wanted & (total > 0)).tolist()
    ]
    return sorted(found, key=lambda count: (-count.own, -count.total, count.name, count.module))
