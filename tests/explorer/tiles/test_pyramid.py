from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.explorer.tiles.pyramid import HEAT, LINES, STACKS, Cells, Form, Meeting, Pyramid
from sexton.model.lane import COLUMNS, TOP

Array = np.ndarray[Any, Any]
SECONDS = st.lists(st.integers(-2000, 9000), min_size=1, max_size=60, unique=True).map(sorted)


def cells(values: Array, seconds: float = 1.0) -> Cells:
    return Cells(values, np.full((1, values.shape[2]), seconds))


def known(form: Form, values: Array) -> Array:
    return ~np.isnan(values) if form is LINES else values != form.absent


def some(form: Form, draw: st.DrawFn, shape: tuple[int, ...]) -> Array:
    number = int(np.prod(shape))
    most = 200 if form is HEAT else 60_000
    made = draw(
        st.lists(st.none() | st.integers(0, most), min_size=number, max_size=number).map(list)
    )
    flat = [form.absent if part is None else part for part in made]
    return np.array(flat, form.dtype).reshape(shape)


def every(pyramid: Pyramid, level: int) -> tuple[int, dict[str, Array]]:
    """All that there is at a level, with the first column's number."""
    tiles = [index >> level for index in pyramid.tiles]
    parts = [
        pyramid.planes(level, at, 1) for at in range(tiles[0], tiles[-1] + 1)
    ]  # one by one: the same must come in one strip
    return tiles[0] * COLUMNS, {
        name: np.concatenate([part[name] for part in parts], axis=2) for name in ("mean", "peak")
    }


@given(st.data(), SECONDS, st.sampled_from([LINES, STACKS]))
@settings(max_examples=40, deadline=None)
def test_a_column_is_the_mean_and_the_peak_of_the_seconds_below_it_that_are_known(
    data: st.DataObject, seconds: list[int], form: Form
):
    values = some(form, data.draw, (1, 2, len(seconds)))
    pyramid = Pyramid(form)
    pyramid.put(np.array(seconds), cells(values))
    pyramid.settle()
    for level in range(TOP + 1):
        first, planes = every(pyramid, level)
        for row in range(2):
            below: dict[int, list[float]] = {}
            for second, value in zip(seconds, values[0, row].tolist(), strict=True):
                if known(form, np.array([value], form.dtype))[0]:
                    below.setdefault(second >> level, []).append(value)
            there = np.flatnonzero(known(form, planes["peak"][0, row])) + first
            assert sorted(below) == there.tolist()
            assert (known(form, planes["mean"]) == known(form, planes["peak"])).all()
            for column, parts in below.items():
                assert planes["peak"][0, row, column - first] == max(parts)
                mean = planes["mean"][0, row, column - first]
                assert float(mean) == pytest.approx(sum(parts) / len(parts), rel=1e-4, abs=0.51)


@given(st.data(), SECONDS)
@settings(max_examples=40, deadline=None)
def test_all_of_a_peak_is_of_the_second_that_is_hottest(data: st.DataObject, seconds: list[int]):
    values = some(HEAT, data.draw, (4, 1, len(seconds)))
    pyramid = Pyramid(HEAT, 4, hot=(1, 2))
    pyramid.put(np.array(seconds), cells(values))
    pyramid.settle()
    by_second = {second: tuple(values[:, 0, at].tolist()) for at, second in enumerate(seconds)}

    def heat(told: tuple[int, ...]) -> int:
        return sum(0 if told[at] == HEAT.absent else told[at] + 1 for at in (1, 2))

    for level in (1, 3, 7, TOP):
        first, planes = every(pyramid, level)
        for column in {second >> level for second in seconds}:
            mine = [value for second, value in by_second.items() if second >> level == column]
            peak = tuple(planes["peak"][:, 0, column - first].tolist())
            hottest = max(map(heat, mine))
            assert heat(peak) == hottest
            assert peak in mine or hottest == 0


@given(st.data(), SECONDS)
@settings(max_examples=20, deadline=None)
def test_what_is_put_bit_by_bit_is_the_same_as_all_at_once(data: st.DataObject, seconds: list[int]):
    values = some(HEAT, data.draw, (4, 2, len(seconds)))
    values[:, (values == HEAT.absent).any(axis=0)] = HEAT.absent  # a row is known or it is not
    whole, bits = (Pyramid(HEAT, 4, hot=(1, 2)) for _ in range(2))
    whole.put(np.array(seconds), cells(values))
    whole.settle()
    for at, second in enumerate(seconds):
        bits.put(np.array([second]), cells(values[:, :, at : at + 1]))
        bits.settle()
    for level in (0, 2, 5, TOP):
        one, other = every(whole, level), every(bits, level)
        assert one[0] == other[0]
        assert all((one[1][name] == other[1][name]).all() for name in ("mean", "peak"))


def test_a_mean_of_twelve_levels_does_not_drift():
    pyramid = Pyramid(HEAT, 1, hot=(0,))
    rng = np.random.default_rng(3)
    values = rng.integers(0, 201, (1, 1, 1 << TOP)).astype(np.uint8)
    pyramid.put(np.arange(1 << TOP), cells(values))
    pyramid.settle()
    assert pyramid.planes(TOP, 0, 1)["mean"][0, 0, 0] == np.rint(values.mean())


def test_tiles_in_which_nothing_was_recorded_take_no_memory():
    pyramid = Pyramid(LINES)
    pyramid.put(np.array([5, 10**9]), cells(np.ones((1, 1, 2), np.float32)))
    pyramid.settle()
    assert pyramid.bytes < 200_000
    assert np.isnan(pyramid.planes(0, 40, 2)["mean"]).all()


def test_a_row_that_comes_later_was_zero_where_the_first_row_is_known_and_absent_processes():
    pyramid = Pyramid(LINES, fill=0.0)
    pyramid.put(np.array([3, 4]), cells(np.zeros((1, 1, 2), np.float32)))
    pyramid.settle()
    pyramid.put(np.array([5]), cells(np.array([[[0.0], [7.0]]], np.float32)))
    pyramid.settle()
    told = pyramid.planes(0, 0, 1)["mean"][0, 1, 2:7]
    assert np.isnan(told[[0, 4]]).all()
    assert told[1:4].tolist() == [0.0, 0.0, 7.0]
    above = pyramid.planes(2, 0, 1)
    assert above["mean"][0, 1, :2].tolist() == [0.0, 3.5]
    assert above["peak"][0, 1, :2].tolist() == [0.0, 7.0]


def test_what_is_written_later_counts_unless_the_hotter_is_wanted():
    pyramid = Pyramid(LINES)
    for value, how in ((5.0, Meeting.LATER), (3.0, Meeting.HOTTER), (4.0, Meeting.LATER)):
        pyramid.put(np.array([1]), cells(np.full((1, 1, 1), value, np.float32)), how)
        pyramid.settle()
        shown = pyramid.planes(0, 0, 1)["peak"][0, 0, 1]
        assert shown == (4.0 if value == 4.0 else 5.0)
    assert pyramid.planes(1, 0, 1)["peak"][0, 0, 0] == 4.0


def test_what_retention_deleted_is_let_go():
    pyramid = Pyramid(LINES)
    pyramid.put(np.arange(0, 5000), cells(np.ones((1, 1, 5000), np.float32)))
    pyramid.settle()
    before = pyramid.bytes
    pyramid.forget(2560.0)
    assert pyramid.tiles[0] == 10
    assert pyramid.bytes < before
    assert np.isnan(pyramid.planes(0, 9, 1)["mean"]).all()
    assert pyramid.planes(TOP, 0, 1)["peak"][0, 0, 0] == 1.0


@pytest.mark.parametrize("form", [HEAT, LINES])
def test_a_second_weighs_as_much_as_the_time_its_reading_stands_for(form: Form):
    pyramid = Pyramid(form)
    seconds = np.array([[0.2, 1.0, 1.0, 0.6]])
    values = np.array([[[200, 0, 50, form.absent]]], form.dtype)
    pyramid.put(np.arange(4), Cells(values, seconds))
    pyramid.settle()
    mean = pyramid.planes(2, 0, 1)["mean"][0, 0, 0]
    expected = (200 * 0.2 + 50) / 2.2
    assert mean == (np.rint(expected) if form is HEAT else pytest.approx(expected))
    assert pyramid.planes(TOP, 0, 1)["mean"][0, 0, 0] == mean


@pytest.mark.parametrize("early_first", [True, False])
def test_of_two_readings_in_a_second_the_hotter_is_the_peak_and_both_are_the_mean(
    early_first: bool,
):
    pyramid = Pyramid(HEAT)
    early = Cells(np.array([[[200]]], np.uint8), np.array([[0.5]])), Meeting.SHARED
    usual = Cells(np.array([[[20]]], np.uint8), np.array([[1.0]])), Meeting.LATER
    for cell, meeting in (early, usual) if early_first else (usual, early):
        pyramid.put(np.array([6]), cell, meeting)
        pyramid.settle()
    for level in (0, 1, 5):
        planes = pyramid.planes(level, 0, 1)
        assert planes["peak"][0, 0, 6 >> level] == 200
        assert planes["mean"][0, 0, 6 >> level] == 80
    pyramid.put(np.array([6]), usual[0])  # the clock was set back: it begins anew
    assert {int(plane[0, 0, 6]) for plane in pyramid.planes(0, 0, 1).values()} == {20}
