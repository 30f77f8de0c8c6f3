"""Flame graphs in the order of time, of recordings whose samples are made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.errors import StoreError
from sexton.explorer.server.documents import ordered_document
from sexton.explorer.tiles.flames import Who
from sexton.explorer.tiles.time_order import Ordered
from sexton.explorer.tiles.view import View
from tests.support.annexes import with_stacks
from tests.support.profiles import SECOND, Sample
from tests.support.recordings import WALL_S

START = WALL_S + 100
READ, WRITE = ("main", "k:vfs_read"), ("main", "k:vfs_write")
HERTZ = 10


def recorded(place: Path, *turns: tuple[str, ...], cpu: int = 0) -> View:
    """Each stack in its turn for a second, from the start on."""
    made = [
        Sample(round((100 + at + step / HERTZ) * SECOND), cpu, stack, "app", 7)
        for at, stack in enumerate(turns)
        for step in range(HERTZ)
    ]
    with_stacks(place, made)
    return View.open(place)


def listed(found: Ordered) -> list[tuple[int, str, int, float]]:
    """Depth, name, samples and start of each box, from left to right and from the top down."""
    tree = found.flame.tree
    totals = tree.totals(found.flame.own)
    return [
        (int(tree.depth[at]), tree.frames.names[tree.frame[at]], int(totals[at]),
         round(float(found.start[at] - START), 1))
        for at in range(1, len(tree))
    ]  # fmt: skip


def test_what_comes_back_is_drawn_again_and_what_goes_on_is_one_box(tmp_path: Path):
    view = recorded(tmp_path, READ, READ, WRITE, READ)
    assert listed(view.ordered(START, START + 4)) == [
        (1, "app", 40, 0.0),
        (2, "main", 40, 0.0),
        (3, "vfs_read", 20, 0.0),
        (3, "vfs_write", 10, 2.0),
        (3, "vfs_read", 10, 3.0),
    ]


def test_it_has_the_samples_of_the_flame_graph(tmp_path: Path):
    view = recorded(tmp_path, READ, WRITE, READ)
    found, merged = view.ordered(START, START + 3), view.flame(START, START + 3)
    assert found.flame.samples == merged.samples == 30
    assert found.flame.core_seconds == merged.core_seconds
    assert view.ordered(START, START + 3, Who(task="nobody")).flame.samples == 0


def test_a_stack_too_narrow_to_be_drawn_counts_for_its_caller(tmp_path: Path):
    wide = [Sample(round((100 + at / 2000) * SECOND), 0, READ, "app", 7) for at in range(6000)]
    odd = Sample(round(101.50001 * SECOND), 0, ("main", "k:odd"), "app", 7)
    with_stacks(tmp_path, sorted([*wide, odd], key=lambda sample: sample.time_ns))
    found = View.open(tmp_path).ordered(START, START + 3)
    assert [(name, samples) for _, name, samples, _ in listed(found)] == [
        ("app", 6001),
        ("main", 6001),
        ("vfs_read", 6000),
    ]


def test_the_document_keeps_the_order_and_says_when(tmp_path: Path):
    document = ordered_document(recorded(tmp_path, WRITE, READ).ordered(START, START + 2))
    nodes = document["nodes"]
    assert [document["names"][name] for name in nodes["name"]] == [
        "all", "app", "main", "vfs_write", "vfs_read",
    ]  # fmt: skip
    assert nodes["parent"] == [-1, 0, 1, 2, 2]
    assert [round(start - START, 1) for start in nodes["start"]] == [0, 0, 0, 0, 1]
    assert document["total"] == 20


def test_where_there_are_no_stacks_it_says_so(tmp_path: Path):
    view = recorded(tmp_path, READ)
    with pytest.raises(StoreError, match="no stacks were recorded"):
        view.ordered(START + 5000, START + 5001)
