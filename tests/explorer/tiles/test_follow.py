"""A recording that changes while it is open, and lanes that are built at once."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from lab.synthetic import write
from sexton.errors import StoreError
from sexton.explorer.tiles.view import View
from tests.support.synthetic import small


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("made") / "recording"
    write(made, small("crash_loop", hours=0.3), compacted=False)
    return made


@pytest.fixture
def place(untouched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untouched, tmp_path / "recording"))


def test_what_was_drawn_of_a_directory_that_vanished_stays_and_it_says_so(place: Path):
    view = View.open(place)
    view.warm()
    before = view.about()
    first = int(before["start"] // 256)
    drawn = view.strip("cores", 0, first, 1).planes["peak"].copy()
    place.rename(place.with_name("elsewhere"))
    for _ in range(2):
        assert not view.refresh()
    about = view.about()
    assert (about["start"], about["end"]) == (before["start"], before["end"])
    assert about["lanes"] == before["lanes"]
    assert [problem for problem in about["problems"] if "no longer exists" in problem] == [
        f"{place}: no longer exists"
    ]
    assert (view.strip("cores", 0, first, 1).planes["peak"] == drawn).all()
    place.with_name("elsewhere").rename(place)
    view.refresh()
    assert view.diagnosis(before["start"], before["end"]).findings


def test_a_segment_that_retention_took_is_no_damage(place: Path):
    view = View.open(place)
    view.warm()
    oldest = sorted((place / "segments").iterdir())[0]
    shutil.rmtree(oldest)
    # Whoever reads it now, before anybody looked again, meets a file that is gone.
    assert view.span is not None
    view.diagnosis(*view.span)
    assert any(problem.startswith(oldest.name) for problem in view.problems)
    view.refresh()
    assert not any(oldest.name in problem for problem in view.problems)
    assert view.span[0] > 0


@pytest.mark.parametrize("lane", ["cores", "average", "pressure", "restarts"])
def test_of_what_was_not_recorded_there_is_no_table(place: Path, lane: str):
    view = View.open(place)
    assert view.span is not None
    start, end = view.span
    for span in ((0.0, 1e7), (start - 50, start - 1), (end + 5, end + 60)):
        with pytest.raises(StoreError, match="nothing was recorded from "):
            view.table(lane, *span)
    assert view.table(lane, start - 10, start + 30).rows


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def built(view: View) -> set[str]:
    return {lane for lane, feed in view._built.items() if feed._seen is not None}


def one_by_one(view: View) -> View:
    for item in view._built:
        view._ready(item)
    return view


def test_lanes_built_at_once_are_those_built_one_by_one(night: Path):
    view = View.open(night)
    view.warm()
    assert built(view) == {lane.id for lane in view.lanes() if lane.id != "average"}
    assert same(one_by_one(View.open(night)), view)


def test_the_lanes_that_a_page_shows_first_are_built_when_first_is_called(night: Path):
    view = View.open(night)
    first: list[set[str]] = []
    view.warm(lambda: first.append(built(view)))
    assert first == [{"cores", "events"}]


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


def test_requests_during_the_build_wait_for_the_lane_and_get_all_of_it(night: Path):
    view, other = View.open(night), View.open(night)
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
