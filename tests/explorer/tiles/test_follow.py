"""A recording that changes under whoever looks at it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab.synthetic import write
from sexton.errors import StoreError
from sexton.explorer.tiles.view import View
from tests.support.synthetic import small


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "recording"
    write(made, small("crash_loop", hours=0.3), compacted=False)
    return made


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
