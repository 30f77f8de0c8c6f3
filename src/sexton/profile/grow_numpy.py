"""Trees of stacks by numpy, level by level from the root: a node is a parent and a frame.

All stacks that reach a level are sorted at once; their distinct (parent, frame) are its nodes. When
all levels are known, pre-order follows: a node stands after its parent and after everything below
its elder siblings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sexton.model.profile import I32, I64, Bools


class _Level(NamedTuple):
    """Nodes in the order of (parent, frame); `parent` is an index into the level above."""

    parent: I64
    frame: I64


def grown(roots: I32, starts: I64, frames: I32) -> tuple[I32, I32, I32, I32]:
    """Frame, depth and end of each node, and each stack's node."""
    levels = [_Level(np.zeros(1, np.int64), np.zeros(1, np.int64))]
    count = len(roots)
    level_of, place_of = np.zeros(count, np.int64), np.zeros(count, np.int64)
    alive, node, frame = np.arange(count), np.zeros(count, np.int64), roots.astype(np.int64)
    while len(alive):
        level, node = _level(node, frame)
        levels.append(level)
        level_of[alive], place_of[alive] = len(levels) - 1, node
        next_frame = starts[alive + 1] - len(levels) + 1
        going = next_frame >= starts[alive]
        alive, node, next_frame = alive[going], node[going], next_frame[going]
        frame = frames[next_frame].astype(np.int64)
    frame_of, depth, end, places = _pre_ordered(levels)
    return frame_of, depth, end, places[_starts(levels)[level_of] + place_of]


def joined(parts: Sequence[tuple[I32, I32]]) -> tuple[I32, I32, I32, list[I32]]:
    """The union of trees, given as frame and depth of their nodes; and where each tree's nodes are.

    Their own siblings need not be in order, as after renumbering frames.
    """
    sizes = [len(frame) for frame, _ in parts]
    none = np.zeros(0, np.int32)
    all_frames = np.concatenate([none, *(frame for frame, _ in parts)]).astype(np.int64)
    depths = np.concatenate([none, *(depth for _, depth in parts)]).astype(np.int64)
    # By depth, and within it as they stood: a node's parent is the last one before it that is one
    # level up, and nodes of a level stand in the order of their parents.
    deepest = int(depths.max(initial=0))
    order = np.argsort(depths.astype(np.uint16) if deepest < 1 << 16 else depths, kind="stable")
    bounds = np.cumsum([0, *np.bincount(depths, minlength=1)])
    levels = [_Level(np.zeros(1, np.int64), np.zeros(1, np.int64))]
    node = np.zeros(len(depths), np.int64)
    above = order[: bounds[1]]
    for depth in range(1, deepest + 1):
        here = order[bounds[depth] : bounds[depth + 1]]
        parent = above[np.searchsorted(above, here) - 1]
        level, node[here] = _level(node[parent], all_frames[here])
        levels.append(level)
        above = here
    frame, depth_of, end, places = _pre_ordered(levels)
    found = places[_starts(levels)[depths] + node]
    return frame, depth_of, end, np.split(found, np.cumsum(sizes)[:-1]) if parts else []


def _level(parent: I64, frame: I64) -> tuple[_Level, I64]:
    """The distinct (parent, frame), and which of them each is."""
    key = parent << 32 | frame  # both are below 2^31
    # A stable sort is quick where much is in order already, as siblings of one tree are.
    order = np.argsort(key, kind="stable")
    key = key[order]
    new = _new(key)
    place = np.empty(len(key), np.int64)
    place[order] = np.cumsum(new) - 1
    key = key[new]
    return _Level(key >> 32, key & 0xFFFFFFFF), place


def _new(values: I64) -> Bools:
    """Where a sorted column goes on to another value."""
    new = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _starts(levels: list[_Level]) -> I64:
    return np.cumsum([0, *(len(level.frame) for level in levels)])


def _pre_ordered(levels: list[_Level]) -> tuple[I32, I32, I32, I32]:
    """Frame, depth and end in pre-order, and where each node of the levels went."""
    sizes = [np.ones(len(level.frame), np.int64) for level in levels]
    for above, below, level in zip(
        reversed(sizes[:-1]), reversed(sizes[1:]), reversed(levels[1:]), strict=True
    ):
        above += np.bincount(level.parent, below, len(above)).astype(np.int64)
    places = [np.zeros(1, np.int64)]
    for level, size in zip(levels[1:], sizes[1:], strict=True):
        before = np.cumsum(size) - size
        # What elder siblings take: all nodes before this one, less those before the first sibling.
        first = np.where(_new(level.parent), before, 0)
        places.append(places[-1][level.parent] + 1 + before - np.maximum.accumulate(first))
    place = np.concatenate(places)
    frame, depth, end = (np.empty(len(place), np.int32) for _ in range(3))
    frame[place] = np.concatenate([level.frame for level in levels])
    depth[place] = np.repeat(np.arange(len(levels)), [len(level.frame) for level in levels])
    end[place] = place + np.concatenate(sizes)
    return frame, depth, end, place.astype(np.int32)
