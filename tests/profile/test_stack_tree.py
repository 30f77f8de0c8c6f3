"""A tree has exactly the stacks it was built from, in C and with numpy."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.model.profile import Frames, Kind, Tree
from sexton.profile.perf import native
from sexton.profile.stack_tree import grow, join

NAMES = ("", "sh", "cat", "main", "read", "write", "poll")
TABLE = Frames(NAMES, ("",) * len(NAMES), np.zeros(len(NAMES), np.uint8))

#: A task, then frames from the root on.
stacks = st.lists(
    st.lists(st.integers(1, len(NAMES) - 1), min_size=1, max_size=9).map(tuple), max_size=30
)


def grown(paths: list[tuple[int, ...]], table: Frames = TABLE) -> tuple[Tree, np.ndarray]:
    starts = np.cumsum([0, *(len(path) - 1 for path in paths)])
    frames = [frame for path in paths for frame in path[:0:-1]]
    roots = np.array([path[0] for path in paths], np.int32)
    return grow(roots, starts, np.array(frames, np.int32), table)


def expected(paths: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Every node as its path, in pre-order: which is the order of the paths."""
    return sorted({path[:end] for path in paths for end in range(len(path) + 1)} | {()})


def well_formed(tree: Tree) -> None:
    assert [column.dtype for column in (tree.frame, tree.depth, tree.end)] == [np.int32] * 3
    for node in range(len(tree)):
        below = tree.depth[node + 1 :] > tree.depth[node]
        end = node + 1 + (int(np.argmin(below)) if not below.all() else len(below))
        assert tree.end[node] == end


@pytest.fixture(params=["numpy", "c"])
def engine(request, monkeypatch) -> str:
    monkeypatch.setenv("SEXTON_ENGINE", request.param)
    assert native.engine() == request.param, "_walk.so is not compiled: scripts/setup dev"
    return request.param


@given(stacks)
def test_a_tree_has_every_stack_once_in_pre_order(engine: str, paths: list[tuple[int, ...]]):
    tree, leaf = grown(paths)
    well_formed(tree)
    assert [tree.path(node) for node in range(len(tree))] == expected(paths)
    assert [tree.path(int(node)) for node in leaf] == paths
    assert tree.depth.tolist() == [len(path) for path in expected(paths)]


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_grow_the_same_tree_of_many_deep_stacks(seed: int, monkeypatch):
    chance = np.random.default_rng(seed)
    depth = chance.integers(0, 300, 2000)
    starts = np.cumsum([0, *depth])
    # Few functions, so that stacks share much, and the last ones are all alike.
    frames = np.where(chance.random(starts[-1]) < 0.9, 3, chance.integers(1, 7, starts[-1]))
    frames[starts[1500] :] = 4
    roots = chance.integers(1, 3, 2000)
    found = []
    for name in ("numpy", "c"):
        monkeypatch.setenv("SEXTON_ENGINE", name)
        tree, leaf = grow(roots.astype(np.int32), starts, frames.astype(np.int32), TABLE)
        found.append((tree.frame, tree.depth, tree.end, leaf))
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


def test_one_very_deep_stack_is_grown(engine: str):
    tree, leaf = grow(np.int32([1]), np.array([0, 20_000]), np.full(20_000, 3, np.int32), TABLE)
    assert (len(tree), leaf.tolist()) == (20_002, [20_001])
    assert (tree.end == 20_002).all()


def test_nothing_grows_to_a_root(engine: str):
    tree, leaf = grown([])
    assert (tree.frame.tolist(), tree.end.tolist(), leaf.tolist()) == ([0], [1], [])


@pytest.mark.parametrize(
    ("roots", "starts", "frames"),
    [
        ([1], [0, 2], [3]),
        ([1], [0], []),
        ([1, 1], [0, 2, 1], [3]),
        ([7], [0, 0], []),
        ([1], [0, 1], [-1]),
        ([1], [0, 1], [7]),
    ],
)
def test_stacks_with_invalid_frames_are_refused(engine: str, roots, starts, frames):
    with pytest.raises(ValueError, match="stack"):
        grow(np.int32(roots), np.int64(starts), np.array(frames, np.int32), TABLE)


@given(st.lists(stacks, max_size=4), st.randoms())
def test_joined_trees_are_the_tree_of_all_their_stacks(parts: list, chance):
    trees = []
    for paths in parts:
        # Each tree has a table in an order of its own.
        order = [0, *chance.sample(range(1, len(NAMES)), len(NAMES) - 1)]
        names = tuple(NAMES[index] for index in order)
        table = Frames(names, ("",) * len(names), np.zeros(len(names), np.uint8))
        renumbered = [tuple(names.index(NAMES[frame]) for frame in path) for path in paths]
        trees.append(grown(renumbered, table)[0])
    tree, nodes = join(trees)
    well_formed(tree)

    def named(of: Tree, node: int) -> tuple[str, ...]:
        return tuple(of.frames.names[frame] for frame in of.path(node))

    paths = [tree.path(node) for node in range(len(tree))]
    assert paths == sorted(paths)
    everything = {tuple(NAMES[f] for f in path) for path in expected([*chain(*parts)])}
    assert [named(tree, node) for node in range(len(tree))] == sorted(
        everything, key=lambda path: tuple(tree.frames.names.index(name) for name in path)
    )
    for part, where in zip(trees, nodes, strict=True):
        assert where.dtype == np.int32
        assert [named(tree, int(n)) for n in where] == [named(part, n) for n in range(len(part))]


def test_frames_of_one_name_stay_apart_by_module_and_kind():
    kinds = np.array([Kind.ROOT, Kind.TASK, Kind.KERNEL], np.uint8)
    one = Frames(("", "sh", "read"), ("", "", "k"), kinds)
    other = Frames(("", "sh", "read"), ("", "", "libc"), np.array([0, 1, 3], np.uint8))
    trees = [grown([(1, 2)], table)[0] for table in (one, other, one)]
    tree, nodes = join(trees)
    assert [tree.frames.modules[frame] for frame in tree.frame] == ["", "", "k", "libc"]
    assert [where.tolist() for where in nodes] == [[0, 1, 2], [0, 1, 3], [0, 1, 2]]
    assert tree.frames.kinds.tolist() == [0, 1, 2, 3]
