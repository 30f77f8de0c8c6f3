"""Lanes built at once are those that are built one by one."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from lab.synthetic import write
from sexton.explorer.tiles.view import View
from tests.support.synthetic import small


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("night")
    plan = small(
        "crash_loop", "zombie_walk", "nic_reset", hours=0.5, stack_hertz=20, stack_nodes=100
    )
    write(made, plan)
    return made


def same(one: View, other: View) -> bool:
    assert one.lanes() == other.lanes()
    assert one.span is not None
    assert one.span == other.span
    for lane in one.lanes():
        if lane.kind == "marks":
            assert one.marks(*one.span) == other.marks(*one.span)
            continue
        for level in range(lane.levels[0], 13):
            first = int(one.span[0] // (256 * (2.0**level if level >= 0 else 0.02)))
            strips = [view.strip(lane.id, level, first, 2) for view in (one, other)]
            assert strips[0].names == strips[1].names
            for name, plane in strips[0].planes.items():
                assert np.array_equal(
                    plane, strips[1].planes[name], equal_nan=plane.dtype.kind == "f"
                )
    return True


def one_by_one(view: View) -> View:
    for item in view._built:
        view._ready(item)
    return view


def test_lanes_built_at_once_are_those_built_one_by_one(place: Path):
    view = View.open(place)
    lines: list[str] = []
    view._progress = lines.append
    view.warm()
    assert sorted(lines) == sorted(lane.id for lane in view.lanes() if lane.id != "average")
    assert same(one_by_one(View.open(place)), view)


def test_the_lanes_that_a_page_shows_first_are_built_when_it_is_told(place: Path):
    view = View.open(place)
    lines: list[str] = []
    view._progress = lines.append
    view.warm(lambda: lines.append("first"))
    assert lines.count("first") == 1
    assert {*lines[: lines.index("first")]} >= {"cores", "events"}


def test_what_is_recorded_later_is_added_to_what_was_built(tmp_path: Path):
    write(tmp_path, small("crash_loop", hours=0.5))
    every = sorted((tmp_path / "segments").iterdir())
    aside = tmp_path / "aside"
    aside.mkdir()
    for path in every[-3:]:
        path.rename(aside / path.name)
    view = View.open(tmp_path)
    view.warm()
    for path in sorted(aside.iterdir()):
        path.rename(tmp_path / "segments" / path.name)
    aside.rmdir()
    assert view.refresh()
    fresh = View.open(tmp_path)
    view.warm()
    fresh.warm()
    assert same(fresh, view)


def test_whoever_asks_meanwhile_waits_for_the_lane_and_has_all_of_it(place: Path):
    view, other = View.open(place), View.open(place)
    other.warm()
    assert view.span is not None
    first = int(view.span[0] // 256)
    found: list[bool] = []

    def ask() -> None:
        mine, its = (item.strip("cores", 0, first, 2).planes["peak"] for item in (view, other))
        found.append(np.array_equal(mine, its))

    threads = [threading.Thread(target=item) for item in (view.warm, *[ask] * 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [True] * 4
