"""Stacks become a tree, and trees become one: by C where it was compiled, else by numpy.

Both give the same `Tree`: in pre-order, the children of a node in the order of their frames'
numbers. It depends on the stacks alone, not on the order in which they come.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from sexton.model.profile import I32, I64, Frames, Kind, Tree
from sexton.profile.grow_numpy import grown, joined
from sexton.profile.perf import native


def grow(roots: I32, starts: I64, frames: I32, table: Frames) -> tuple[Tree, I32]:
    """The tree of stacks, and each stack's node in it.

    Stack `s` is the task ``roots[s]`` and the frames ``frames[starts[s] : starts[s + 1]]``, leaf
    first; all of them point into `table`.

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
    """One tree over all frames, and for each tree where its nodes are in it.

    Frames with the same name, module and kind are one, numbered in the order of appearance.
    """
    table, maps = _merged([tree.frames for tree in trees])
    parts = [(maps[index][tree.frame], tree.depth) for index, tree in enumerate(trees)]
    frame, depth, end, nodes = joined(parts)
    return Tree(frame, depth, end, table), nodes


def _check(roots: I32, starts: I64, frames: I32, known: int) -> None:
    fits = len(starts) == len(roots) + 1 and starts[0] == 0 and starts[-1] == len(frames)
    if not fits or (np.diff(starts) < 0).any():
        raise ValueError("stacks do not fit their frames")
    for column in (roots, frames):
        if len(column) and not 0 <= column.min() <= column.max() < known:
            raise ValueError("a stack has a frame that is in no table")


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
            raise MemoryError("no memory for the tree")
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
        # Frame 0 is the root's, whatever it is called.
        maps.append(np.array([0, *found[1:]], np.int32))
    names, modules, kinds = zip(*known, strict=True)
    return Frames(names, modules, np.array(kinds, np.uint8)), maps
