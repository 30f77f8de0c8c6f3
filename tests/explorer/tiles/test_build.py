from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.explorer.tiles.build import Clock, Metrics, Part, Rows, places
from sexton.model.rows.cpu import CoreTimes
from sexton.replay.segment_reader import SegmentReader
from sexton.replay.span_reader import readers
from sexton.series.catalogue import Kind, Metric
from sexton.store.recording import Recording
from tests.support.recordings import WALL_S, cores, write_sealed


def _counter(*columns: str) -> Metric:
    return Metric("user_ms", CoreTimes, columns, Kind.COUNTER, "ms/s", "for a test", "core", "0")


def claimed(start: list[float], end: list[float]) -> dict[int, list[int]]:
    """Which readings each second has."""
    found: dict[int, list[int]] = {}
    for place in places(np.array(start), np.array(end)):
        for column, reading in zip(place.columns.tolist(), place.readings.tolist(), strict=True):
            found.setdefault(column, []).append(reading)
    return found


def test_the_second_whose_middle_a_reading_covers_takes_it():
    assert claimed([99.2, 100.2, 101.2], [100.2, 101.2, 102.2]) == {99: [0], 100: [1], 101: [2]}


def test_a_reading_of_ten_seconds_fills_ten():
    assert claimed([100.4], [110.4]) == {second: [0] for second in range(100, 110)}


def test_a_reading_so_early_that_it_holds_no_middle_shares_the_second():
    assert claimed([99.6, 100.55], [100.55, 101.0]) == {100: [0, 1]}


def test_where_the_clock_was_set_back_the_later_readings_come_later():
    found = list(places(np.array([10.0, 11.0, 5.0]), np.array([11.0, 12.0, 6.0])))
    assert [place.readings.tolist() for place in found] == [[0, 1], [2]]


def test_a_clock_of_no_year_is_left_out():
    assert claimed([0.0, 1e300, float("nan")], [1.0, 1e300, float("nan")]) == {0: [0]}


@given(st.lists(st.floats(0.05, 9.0), min_size=1, max_size=50), st.floats(0, 1e6))
@settings(max_examples=100, deadline=None)
def test_no_reading_is_lost_and_no_second_in_between_is_left_without(
    steps: list[float], begin: float
):
    edges = begin + np.concatenate([[0.0], np.cumsum(steps)])
    found = claimed(edges[:-1].tolist(), edges[1:].tolist())
    assert sorted({number for mine in found.values() for number in mine}) == list(range(len(steps)))
    middles = [s for s in range(int(begin), int(edges[-1]) + 1) if edges[0] < s + 0.5 <= edges[-1]]
    assert set(middles) <= set(found)


def test_rates_go_on_from_segment_to_segment_and_end_at_a_gap(tmp_path: Path):
    write_sealed(tmp_path, [{CoreTimes: [cores(10.0), cores(11.0)]}], 1)
    write_sealed(tmp_path, [{CoreTimes: [cores(12.0), cores(13.0)]}], 2)
    write_sealed(tmp_path, [{CoreTimes: [cores(100.0), cores(101.0)]}], 3)
    counters = Metrics(_counter("user_ms"))
    told = []
    for book in readers(Recording(tmp_path).segments, lambda _: True):
        taken = counters.take(Part(book, Clock(book.segment)))
        assert taken is not None
        assert taken.things == [(0,), (1,)]
        told.append(taken.values["user_ms"][0].tolist())
    assert told[1] == [1000.0, 1000.0]
    assert np.isnan([told[0][0], told[2][0]]).all()
    assert told[2][1] == 1000.0


def test_the_same_segment_fed_twice_adds_nothing(tmp_path: Path):
    write_sealed(tmp_path, [{CoreTimes: [cores(10.0), cores(11.0)]}], 1)
    counters = Metrics(_counter("user_ms"))
    (segment,) = Recording(tmp_path).segments
    part = Part(SegmentReader(segment, False), Clock(segment))
    assert counters.take(part) is not None
    assert counters.take(part) is None


def test_columns_that_belong_together_are_added_up(tmp_path: Path):
    write_sealed(tmp_path, [{CoreTimes: [cores(10.0), cores(11.0)]}], 1)
    counters = Metrics(_counter("user_ms", "system_ms"))
    (segment,) = Recording(tmp_path).segments
    taken = counters.take(Part(SegmentReader(segment, False), Clock(segment)))
    assert taken is not None
    assert taken.values["user_ms"][:, 1].tolist() == [2000.0, 2000.0]
    assert taken.end.tolist() == pytest.approx([WALL_S + 10, WALL_S + 11])


def test_rows_keep_their_place_when_things_come_and_go():
    rows = Rows()
    assert rows.of(["a", "b"]).tolist() == [0, 1]
    assert rows.of(["c", "a"]).tolist() == [2, 0]
    values = np.array([[[1.0], [2.0]]], np.float32)
    made = rows.spread(["c", "a"], values, np.nan)
    assert made[0, [0, 2], 0].tolist() == [2.0, 1.0]
    assert np.isnan(made[0, 1, 0])
