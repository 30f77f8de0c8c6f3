"""A flame graph in the order of time: equal stacks are merged only while they are consecutive.

Samples are counted in slices of time. A function that continues from slice to slice is one box; one
that returns later is another. Stacks that are too narrow to draw count for their callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from sexton.model.aligned import F64
from sexton.model.profile import I64, Bools, Flame, Tree
from sexton.profile.difference import Side
from sexton.profile.flame import core_seconds, empty_tree
from sexton.profile.heat import SECOND_NS
from sexton.profile.select import chosen_in, window
from sexton.profile.stack_tree import join

Span = tuple[float, float]
#: Slices of the shown time; none is shorter than a cell of the stacks lane.
SLICES, LEAST_S = 200, 0.02
#: A stack with a smaller share of all samples is narrower than a pixel.
_LEAST_SHARE = 1 / 2000


class Ordered(NamedTuple):
    """A flame graph whose siblings are in the order of time; `start` is per node, in UNIX seconds.

    `note` says which part of the span it shows, empty if all.
    """

    flame: Flame
    start: F64
    note: str = ""


class Shown(NamedTuple):
    """A part of the span, and its samples per boot."""

    span: Span
    sides: Sequence[Side]


class _Counts(NamedTuple):
    """Samples by slice and node, sorted by both."""

    slices: I64
    nodes: I64
    counts: I64


def in_time_order(parts: Sequence[Shown], note: str = "") -> Ordered:
    """The samples of these parts, which are sorted by time."""
    length = sum(end - start for (start, end), _ in parts)
    slice_s = max(length / SLICES, LEAST_S)
    trees: list[Tree] = []
    counted: list[_Counts] = []
    starts: list[F64] = []
    events: dict[str, None] = {}
    seconds: list[float | None] = []
    for part in parts:
        first = sum(len(known) for known in starts)
        number = max(int(np.ceil((part.span[1] - part.span[0]) / slice_s)), 1)
        starts.append(part.span[0] + slice_s * np.arange(number, dtype=np.float64))
        for side in part.sides:
            selection = side.selection
            for profile in side.opened.profiles(selection.start_ns, selection.end_ns):
                rows = window(profile, selection)
                chosen = chosen_in(profile, selection, rows)
                since = profile.time_ns[rows][chosen] - (selection.start_ns or 0)
                at = np.clip(since // max(round(slice_s * SECOND_NS), 1), 0, number - 1) + first
                node = profile.node[rows][chosen].astype(np.int64)
                weight = None if profile.weight is None else profile.weight[rows][chosen]
                counted.append(_counts(at.astype(np.int64), node, weight))
                trees.append(profile.tree)
                events.update(dict.fromkeys(event.name for event in profile.events))
                seconds.append(core_seconds(profile, selection))
    tree, places = join(trees) if trees else (empty_tree(), [])
    none = np.zeros(0, np.int64)
    every = _counts(
        np.concatenate([none, *(part.slices for part in counted)]),
        np.concatenate(
            [none, *(place[part.nodes] for place, part in zip(places, counted, strict=True))]
        ).astype(np.int64),
        np.concatenate([none, *(part.counts for part in counted)]),
    )
    made, own, begun = _grown(tree, _wide(tree, every))
    known = [value for value in seconds if value is not None]
    total = sum(known) if known and len(known) == len(seconds) else None
    moments = np.concatenate([np.zeros(0), *starts])
    flame = Flame(made, own, ", ".join(events), total)
    return Ordered(flame, moments[begun] if len(moments) else begun.astype(float), note)


def _counts(at: I64, node: I64, weight: I64 | None) -> _Counts:
    """Added up per slice and node."""
    width = int(node.max(initial=0)) + 1
    key, row = np.unique(at * width + node, return_inverse=True)
    if weight is None:
        return _Counts(key // width, key % width, np.bincount(row, minlength=len(key)))
    count = np.zeros(len(key), np.int64)
    np.add.at(count, row, weight)
    return _Counts(key // width, key % width, count)


def _wide(tree: Tree, every: _Counts) -> _Counts:
    """The same, with narrow stacks counted for their callers."""
    own = np.zeros(len(tree), np.int64)
    np.add.at(own, every.nodes, every.counts)
    totals = tree.totals(own)
    kept: Bools = totals >= totals[0] * _LEAST_SHARE
    node, parents = every.nodes.copy(), tree.parents()
    while (narrow := ~kept[node]).any():
        node[narrow] = parents[node[narrow]]
    return _counts(every.slices, node, every.counts)


def _grown(tree: Tree, every: _Counts) -> tuple[Tree, I64, I64]:
    """The tree in the order of time, own samples and the first slice of each of its nodes."""
    parents, ends, depth_of = tree.parents().tolist(), tree.end.tolist(), tree.depth.tolist()
    frames, depths, made_ends, own, begun = [0], [0], [0], [0], [0]
    # The open boxes by depth: their node, their number, and the last slice they were seen in.
    open_, made, seen = [0], [0], [0]

    def close(depth: int) -> None:
        for number in made[depth:]:
            made_ends[number] = len(frames)
        del open_[depth:], made[depth:], seen[depth:]

    def common(node: int) -> int:
        """The number of open boxes that contain the node."""
        depth = len(open_)
        while not open_[depth - 1] <= node < ends[open_[depth - 1]]:
            depth -= 1
        return depth

    # The order within a slice is unknown: open boxes come first, and callees before the samples of
    # their caller itself, so that neither is cut into more boxes than necessary.
    order = np.lexsort((-every.nodes, tree.end[every.nodes], every.slices))
    rows = zip(*(column[order].tolist() for column in every), strict=True)
    for at, group in groupby(rows, key=itemgetter(0)):
        for _, node, count in sorted(group, key=lambda row: -common(row[1])):
            depth = depth_of[node]
            if depth < len(open_) and open_[depth] == node:
                if depth + 1 < len(open_) and seen[depth + 1] != at:
                    close(depth + 1)
            else:
                close(common(node))
                path = []
                while node != open_[-1]:
                    path.append(node)
                    node = parents[node]
                for below in reversed(path):
                    depths.append(len(open_))
                    open_.append(below)
                    made.append(len(frames))
                    seen.append(at)
                    frames.append(int(tree.frame[below]))
                    made_ends.append(0)
                    own.append(0)
                    begun.append(at)
            seen[: depth + 1] = [at] * (depth + 1)
            own[made[depth]] += count
    close(0)
    frame, levels, end = (np.array(column, np.int32) for column in (frames, depths, made_ends))
    return Tree(frame, levels, end, tree.frames), np.array(own), np.array(begun)
