"""Functions over all stacks: how many samples were in one itself, and in it or what it called.

A function that calls itself is on a stack more than once and counts once. In pre-order that is
one look at each node: it lies within another of the same function exactly when its number is
below the largest `end` of those before it.
"""

from __future__ import annotations

import numpy as np

from sexton.model.flame import Flame, FunctionCount
from sexton.model.profile import I64, Bools, Kind, Tree


def functions(flame: Flame) -> list[FunctionCount]:
    """Every function with samples, by its own, then by its total, then by name; no tasks."""
    own, total = function_counts(flame.tree, flame.own)
    kinds = flame.tree.frames.kinds
    return _listed(flame, own, total, (kinds != Kind.TASK) & (kinds != Kind.ROOT))


def tasks(flame: Flame) -> list[FunctionCount]:
    """Every task with samples, the largest first; `own` are samples without any function."""
    own, total = function_counts(flame.tree, flame.own)
    found = _listed(flame, own, total, flame.tree.frames.kinds == Kind.TASK)
    return sorted(found, key=lambda each: (-each.total, each.name))


def function_counts(tree: Tree, own: I64) -> tuple[I64, I64]:
    """Per frame: samples in it itself, and in it or below it."""
    number = len(tree.frames)
    outer = outermost(tree)
    return _by_frame(tree, own, number), _by_frame(
        tree, np.where(outer, tree.totals(own), 0), number
    )


def outermost(tree: Tree) -> Bools:
    """Per node: is nothing above it the same function?"""
    number = len(tree)
    few = len(tree.frames) <= 1 << 16  # then numpy sorts without comparing
    order = np.argsort(tree.frame.astype(np.uint16) if few else tree.frame, kind="stable")
    # Frame by frame, each in its own range of numbers, so that one running maximum serves all.
    base = tree.frame[order].astype(np.int64) * (number + 1)
    reach = np.maximum.accumulate(base + tree.end[order])
    outer = np.ones(number, np.bool_)
    outer[order[1:]] = base[1:] + order[1:] >= reach[:-1]
    return outer


def _by_frame(tree: Tree, counts: I64, number: int) -> I64:
    if int(counts.max(initial=0)) * len(tree) < 1 << 53:  # then sums in floats are exact
        return np.bincount(tree.frame, counts, minlength=number).astype(np.int64)
    sums = np.zeros(number, np.int64)
    np.add.at(sums, tree.frame, counts)
    return sums


def _listed(flame: Flame, own: I64, total: I64, wanted: Bools) -> list[FunctionCount]:
    frames = flame.tree.frames
    found = [
        FunctionCount(
            frames.names[each],
            frames.modules[each],
            int(frames.kinds[each]),
            int(own[each]),
            int(total[each]),
        )
        for each in np.flatnonzero(wanted & (total > 0)).tolist()
    ]
    return sorted(found, key=lambda each: (-each.own, -each.total, each.name, each.module))
