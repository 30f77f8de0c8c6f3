"""Build a tree of stacks, and merge trees: in C where it was compiled, else with numpy.

Both give the same `Tree`: in pre-order, children sorted by frame number, independent of the order
of the stacks. The numpy way goes level by level from the root, where a node is a parent and a
frame: all stacks that reach a level are sorted at once, and their distinct (parent, frame) pairs
are its nodes. Pre-order follows when all levels are known: a node comes after its parent and after
the subtrees of its elder siblings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sexton.model.profile import I32, I64, Bools, Frames, Kind, Tree
from sexton.profile.heat import changes
from sexton.profile.perf import native


def grow(roots: I32, starts: I64, frames: I32, table: Frames) -> tuple[Tree, I32]:
    """The tree of the stacks, and the node of each stack.

    Stack `s` is the task ``roots[s]`` and the frames ``frames[starts[s] : starts[s + 1]]``, leaf
    first; all of them are indices into `table`.

    >>> table = Frames(("", "sh", "main", "read"), ("",) * 4, np.zeros(4, np.uint8))
    >>> starts = np.array([0, 2, 3])
    >>> tree, leaf = grow(np.int32([1, 1]), starts, np.int32([3, 2, 3]), table)
    >>> tree.frame.tolist(), tree.depth.tolist(), tree.end.tolist(), leaf.tolist()
    ([0, 1, 2, 3, 3], [0, 1, 2, 3, 2], [5, 5, 4, 4, 5], [3, 4])
    """
    roots = np.ascontiguousarray(roots, np.int32)
    starts = np.ascontiguousarray(starts, np.int64)
    frames = np.ascontiguousarray(frames, np.int32)
    _check(roots, starts, frames, len(table))
    library = native.library()
    if library is None:
        frame, depth, end, leaf = grown(roots, starts, frames)
    else:
        frame, depth, end, leaf = _grown_native(library, roots, starts, frames)
    return Tree(frame, depth, end, table), leaf


def join(trees: Sequence[Tree]) -> tuple[Tree, list[I32]]:
    """The union of trees, and for each tree the positions of its nodes in the union.

    Frames with the same name, module and kind are one frame, numbered in order of appearance.
    """
    table, maps = _merged([tree.frames for tree in trees])
    parts = [(maps[index][tree.frame], tree.depth) for index, tree in enumerate(trees)]
    frame, depth, end, nodes = joined(parts)
    return Tree(frame, depth, end, table), nodes


def subtree(tree: Tree, kept: Bools) -> tuple[Tree, I32]:
    """The tree of the kept nodes, and the position of each kept node in it; unused frames are
    dropped. The root and all callers of a kept node must be kept too."""
    place = np.zeros(len(tree) + 1, np.int32)
    np.cumsum(kept, out=place[1:])
    frame = tree.frame[kept]
    used = np.zeros(len(tree.frames), np.bool_)
    used[frame] = True
    used[0] = True
    numbers = np.flatnonzero(used).tolist()
    frames = Frames(
        tuple([tree.frames.names[number] for number in numbers]),
        tuple([tree.frames.modules[number] for number in numbers]),
        tree.frames.kinds[used],
    )
    renumbered = (np.cumsum(used) - 1).astype(np.int32)
    smaller = Tree(renumbered[frame], tree.depth[kept], place[tree.end[kept]], frames)
    return smaller, place[:-1]


def _check(roots: I32, starts: I64, frames: I32, known: int) -> None:
    fits = len(starts) == len(roots) + 1 and starts[0] == 0 and starts[-1] == len(frames)
    if not fits or (np.diff(starts) < 0).any():
        raise ValueError("stack offsets do not match the frames")
    for column in (roots, frames):
        if len(column) and not 0 <= column.min() <= column.max() < known:
            raise ValueError("a stack has a frame outside the table")


def _grown_native(
    library: native.Library, roots: I32, starts: I64, frames: I32
) -> tuple[I32, I32, I32, I32]:
    count = len(roots)
    items = np.empty((count, 2), np.uint64)
    path = np.empty(int(np.diff(starts).max(initial=0)) + 2, np.int32)
    leaf = np.empty(count, np.int32)
    out = (native.Column * 3)(*(native.Column(width=4) for _ in range(3)))
    places = [column.ctypes.data for column in (roots, starts, frames, items, path, leaf)]
    stacks = native.Stacks(*places[:3], count)
    try:
        if library.grow(ctypes.byref(stacks), *places[3:5], out, places[5]):
            raise MemoryError("out of memory for the tree")
        frame, depth, end = (library.taken(column, np.int32) for column in out)
    finally:
        for column in out:
            library.free(column.at)
    return frame, depth, end, leaf


def _merged(tables: list[Frames]) -> tuple[Frames, list[I32]]:
    known: dict[tuple[str, str, int], int] = {("", "", int(Kind.ROOT)): 0}
    maps: list[I32] = []
    for index, table in enumerate(tables):
        if index and table is tables[index - 1]:
            maps.append(maps[-1])
            continue
        rows = zip(table.names, table.modules, table.kinds.tolist(), strict=True)
        found = [known.setdefault(row, len(known)) for row in rows]
        # Frame 0 is the root, whatever its name.
        maps.append(np.array([0, *found[1:]], np.int32))
    names, modules, kinds = zip(*known, strict=True)
    return Frames(names, modules, np.array(kinds, np.uint8)), maps


class _Level(NamedTuple):
    """Nodes in the order of (parent, frame); `parent` is an index into the level above."""

    parent: I64
    frame: I64


def grown(roots: I32, starts: I64, frames: I32) -> tuple[I32, I32, I32, I32]:
    """Frame, depth and end of each node, and the node of each stack."""
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
    """The union of trees given as frame and depth of their nodes, and the positions of these.

    Siblings need not be in order: frames may have been renumbered.
    """
    sizes = [len(frame) for frame, _ in parts]
    none = np.zeros(0, np.int32)
    all_frames = np.concatenate([none, *(frame for frame, _ in parts)]).astype(np.int64)
    depths = np.concatenate([none, *(depth for _, depth in parts)]).astype(np.int64)
    # By depth, else in the given order: a node's parent is the last node before it that is one
    # level up, and the nodes of a level are in the order of their parents.
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
    """The distinct (parent, frame) pairs, and the pair of each row."""
    key = parent << 32 | frame  # both are below 2^31
    # A stable sort is fast on mostly sorted input, such as the siblings of one tree.
    order = np.argsort(key, kind="stable")
    key = key[order]
    new = changes(key)
    place = np.empty(len(key), np.int64)
    place[order] = np.cumsum(new) - 1
    key = key[new]
    return _Level(key >> 32, key & 0xFFFFFFFF), place


def _starts(levels: list[_Level]) -> I64:
    return np.cumsum([0, *(len(level.frame) for level in levels)])


def _pre_ordered(levels: list[_Level]) -> tuple[I32, I32, I32, I32]:
    """Frame, depth and end in pre-order, and the position of each node."""
    sizes = [np.ones(len(level.frame), np.int64) for level in levels]
    for above, below, level in zip(
        reversed(sizes[:-1]), reversed(sizes[1:]), reversed(levels[1:]), strict=True
    ):
        above += np.bincount(level.parent, below, len(above)).astype(np.int64)
    places = [np.zeros(1, np.int64)]
    for level, size in zip(levels[1:], sizes[1:], strict=True):
        before = np.cumsum(size) - size
        # The subtrees of elder siblings: all nodes before this one, less those before the first.
        first = np.where(changes(level.parent), before, 0)
        places.append(places[-1][level.parent] + 1 + before - np.maximum.accumulate(first))
    place = np.concatenate(places)
    frame, depth, end = (np.empty(len(place), np.int32) for _ in range(3))
    frame[place] = np.concatenate([level.frame for level in levels])
    depth[place] = np.repeat(np.arange(len(levels)), [len(level.frame) for level in levels])
    end[place] = place + np.concatenate(sizes)
    return frame, depth, end, place.astype(np.int32)
