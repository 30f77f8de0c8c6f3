"""A matrix of any span: not sampled is never zero, and the scale is the same at every zoom."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.model.profile import CELLS, NO_CLOCK, Clock, Heat
from sexton.profile.heat import add_heat, heat_of
from sexton.profile.heatmap import MOST_CORES, heatmap, heatmap_json
from tests.profile.naive import lists
from tests.support.profiles import SECOND, Sample, profile_of

WORK = ("main",)


def heat(*samples: Sample) -> Heat:
    return heat_of(profile_of(samples))


def test_a_column_is_a_second_and_a_row_20_ms():
    drawn = heatmap(
        heat(
            Sample(0, stack=WORK), Sample(25_000_000, 1, WORK), Sample(2 * SECOND + 1, stack=WORK)
        ),
        0,
        3 * SECOND,
    )
    assert drawn.values.shape == (CELLS, 3)
    assert drawn.rows[:3] == (0, 20, 40)
    assert drawn.values[:3, 0].tolist() == [1, 1, 0]
    assert drawn.values[:, 1].tolist() == [-1] * CELLS
    assert drawn.values[:2, 2].tolist() == [1, 0]
    assert drawn.column_ns(2) == (2 * SECOND, 3 * SECOND)


def test_what_lies_before_the_first_and_after_the_last_moment_was_not_sampled():
    start, end = 500_000_000, SECOND + 30_000_000
    drawn = heatmap(heat(Sample(start, stack=WORK), Sample(end - 1, stack=WORK)), start, end)
    assert drawn.values[:, 0].tolist() == [-1] * 25 + [1] + [0] * 24
    assert drawn.values[:, 1].tolist() == [0, 1] + [-1] * 48


def test_a_core_that_was_not_sampled_in_a_second_is_not_idle_in_it():
    drawn = heatmap(
        heat(
            Sample(0, 2, WORK),
            Sample(SECOND, 2, ("k:do_idle",), "swapper"),
            Sample(2 * SECOND, 7, WORK),
        ),
        0,
        3 * SECOND,
        "cores",
    )
    assert drawn.rows == (2, 7)
    assert drawn.values.tolist() == [[1, 0, -1], [-1, -1, 1]]


def test_a_wide_column_is_the_mean_of_its_sampled_seconds_and_peaks_keep_the_worst():
    found = heat(
        *(Sample(t, stack=WORK) for t in range(9)),
        Sample(SECOND, stack=("k:do_idle",), comm="swapper"),
        Sample(3 * SECOND, stack=WORK),
    )
    means = heatmap(found, 0, 4 * SECOND, "cores", 2)
    assert (means.column_seconds, means.values.tolist()) == (2, [[4.5, 1]])
    peaks = heatmap(found, 0, 4 * SECOND, "peaks", 2)
    assert peaks.values.tolist() == [[9, 1]]
    assert heatmap(found, 0, 4 * SECOND, "subsecond", 2).values[0].tolist() == [4.5, 1]


@given(
    st.lists(lists, max_size=3),
    st.integers(0, 2 * SECOND),
    st.integers(1, 3 * SECOND),
    st.integers(1, 5),
    st.sampled_from(["subsecond", "cores", "peaks"]),
)
def test_a_heatmap_is_what_adding_cell_by_cell_gives(groups, start, length, columns, kind):
    parts = [heat_of(profile_of(group)) for group in groups if group]
    parts.sort(key=lambda part: int(part.second[0]))
    end = start + length
    drawn = heatmap(parts, start, end, kind, columns)
    whole = add_heat(parts)
    first, last = start // SECOND, -(-end // SECOND)
    assert drawn.values.shape[1] <= columns
    assert drawn.values.shape[1] * drawn.column_seconds >= last - first
    seconds: dict[int, list[tuple[int, int, int, list[int]]]] = defaultdict(list)
    for second, cpu, busy, cells in zip(
        whole.second.tolist(), whole.cpu.tolist(), whole.busy.tolist(), whole.cells, strict=True
    ):
        if first <= second < last:
            seconds[(second - first) // drawn.column_seconds].append(
                (second, cpu, busy, cells.tolist())
            )
    for column in range(drawn.values.shape[1]):
        rows = seconds[column]
        for row, label in enumerate(drawn.rows):
            value = drawn.values[row, column]
            if kind == "subsecond":
                taken = {second for second, *_ in rows}
                total = sum(cells[row] for *_, cells in rows)
                # Only cells of which no part lies in the span may have been blotted out.
                at = (drawn.start_s + column) * SECOND + label * 1_000_000
                outside = at + 20_000_000 <= start or at >= end
                if drawn.column_seconds == 1 and outside:
                    assert value == -1
                    continue
                expected = total / len(taken) if taken else -1
            else:
                counts = [busy for _, cpu, busy, _ in rows if cpu == label]
                if not counts:
                    expected = -1
                elif kind == "peaks":
                    expected = max(counts)
                else:
                    expected = sum(counts) / len(counts)
            assert value == pytest.approx(expected)
    if kind != "subsecond":
        inside = {cpu for rows in seconds.values() for _, cpu, *_ in rows}
        assert drawn.rows == tuple(sorted(inside))


def test_nothing_sampled_is_a_heatmap_of_nothing():
    drawn = heatmap([], 0, 5 * SECOND)
    assert drawn.values.shape == (CELLS, 5)
    assert (drawn.values == -1).all()
    assert drawn.most == 0
    assert heatmap([], 0, 5 * SECOND, "cores").values.shape == (0, 5)


def test_a_span_of_an_absurd_length_has_no_more_columns_than_requested():
    assert heatmap([], 0, 2**62, "subsecond", 100).values.shape[1] <= 100
    assert heatmap([], 7, 7).values.shape == (CELLS, 1)


@pytest.mark.parametrize(("first", "beyond"), [(0, 10), (-1, 1), (-5, 3)])
@pytest.mark.parametrize("kind", ["cores", "peaks"])
def test_more_cores_than_a_machine_can_have_are_left_out_and_counted(kind, first, beyond):
    rows = MOST_CORES + beyond
    ones = np.ones(rows, np.int32)
    many = Heat(
        np.zeros(rows, np.int64),
        np.arange(first, first + rows, dtype=np.int32),
        ones,
        ones,
        ones * 0,
        np.zeros((rows, CELLS), np.uint16),
    )
    drawn = heatmap(many, 0, SECOND, kind)
    assert drawn.rows == tuple(range(first, first + MOST_CORES))
    assert drawn.left_out == beyond
    assert (drawn.values == 1).all()
    later = replace(many, second=many.second + 1, cpu=many.cpu + rows)
    both = heatmap([many, later], 0, 2 * SECOND, kind)
    assert both.rows == drawn.rows
    assert both.left_out == beyond + rows
    assert (both.values[:, 1] == -1).all()


def test_json_has_null_for_unsampled_columns_and_names_its_clock():
    found = heat(Sample(10 * SECOND, stack=WORK), Sample(12 * SECOND, stack=WORK))
    drawn = heatmap(found, 10 * SECOND, 13 * SECOND, "cores")
    said = json.loads(json.dumps(heatmap_json(drawn, Clock("monotonic", 1000 * SECOND))))
    assert said == {
        "schema": "sexton.heatmap/1",
        "kind": "cores",
        "start": 1010.0,
        "clock": "unix",
        "column_seconds": 1,
        "columns": 3,
        "rows": [0],
        "values": [[1, None, 1]],
        "max": 1,
        "unit": "busy samples per second",
        "left_out": 0,
    }
    untold = heatmap_json(heatmap(found, 10 * SECOND, 13 * SECOND, "cores", 2), NO_CLOCK)
    assert (untold["start"], untold["clock"]) == (10.0, "capture")
    assert untold["values"] == [[1.0, 1.0]]
