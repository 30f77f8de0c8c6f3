"""Lanes that other processes build are those that we build ourselves."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from lab.synthetic import write
from sexton.explorer.tiles.view import View
from sexton.replay.reader_pool import Crew
from tests.support.synthetic import small


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("night")
    plan = small(
        "crash_loop", "zombie_walk", "nic_reset", hours=0.5, stack_hertz=20, stack_nodes=100
    )
    write(made, plan)
    return made


def crew_of(view: View, number: int = 2) -> Crew:
    crew = Crew(view.recording, number, work=False)
    assert crew.hire()
    return crew


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


def test_they_are_the_same_whoever_built_them(place: Path):
    ours, theirs = View.open(place), View.open(place)
    ours.warm()
    told: list[str] = []
    theirs._progress = told.append
    with crew_of(theirs) as crew:
        theirs.warm(crew)
    assert sorted(told) == sorted(each.id for each in theirs.lanes() if each.id != "average")
    assert same(ours, theirs)


def test_what_is_recorded_later_is_added_to_what_they_built(tmp_path: Path):
    write(tmp_path, small("crash_loop", hours=0.5))
    every = sorted((tmp_path / "segments").iterdir())
    aside = tmp_path / "aside"
    aside.mkdir()
    for each in every[-3:]:
        each.rename(aside / each.name)
    view = View.open(tmp_path)
    with crew_of(view) as crew:
        view.warm(crew)
    for each in sorted(aside.iterdir()):
        each.rename(tmp_path / "segments" / each.name)
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
        mine, its = (each.strip("cores", 0, first, 2).planes["peak"] for each in (view, other))
        found.append(np.array_equal(mine, its))

    with crew_of(view) as crew:
        warming = threading.Thread(target=view.warm, args=(crew,))
        asking = [threading.Thread(target=ask) for _ in range(4)]
        for each in (warming, *asking):
            each.start()
        for each in (warming, *asking):
            each.join(60)
    assert found == [True] * 4


@pytest.mark.parametrize("number", [0, 1])
def test_those_who_are_killed_are_replaced_by_ourselves(place: Path, number: int):
    view, other = View.open(place), View.open(place)
    with crew_of(view) as crew:
        for worker in crew._workers[number:]:
            os.kill(worker.pid, signal.SIGKILL)
        view.warm(crew)
    other.warm()
    assert same(other, view)


def test_a_crew_of_another_recording_is_not_asked(place: Path, tmp_path: Path):
    write(tmp_path, small("crash_loop", hours=0.1))
    view, strange, plain = View.open(place), View.open(tmp_path), View.open(place)
    with crew_of(strange) as crew:
        view.warm(crew)
    plain.warm()
    assert same(plain, view)
