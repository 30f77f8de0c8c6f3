"""Overlapping maps, and values over time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sexton.profile.perf.spaces import laid_out
from sexton.profile.perf.walk import Since, value_at


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=25))
def test_every_place_belongs_to_the_latest_map_over_it(spans):
    start = np.array([first for first, _ in spans], np.uint64)
    end = np.array([first + length for first, length in spans], np.uint64)
    painted = dict[int, int]()
    for index, (first, length) in enumerate(spans):
        painted |= dict.fromkeys(range(first, first + length), index)
    laid = list(zip(*(column.tolist() for column in laid_out(start, end)), strict=True))
    shown = dict[int, int]()
    for first, last, which in laid:
        assert first < last
        assert not shown.keys() & set(range(first, last))
        # The same map twice is as good as once: it hides itself.
        shown |= dict.fromkeys(range(first, last), which)
    assert shown == painted
    assert laid == sorted(laid)


def test_maps_at_the_end_of_all_addresses_stay_in_bounds():
    top = (1 << 64) - 1
    start = np.array([top - 10, 0], np.uint64)
    end = np.array([top, top], np.uint64)
    first, last, which = laid_out(start, end)
    assert (first.tolist(), last.tolist(), which.tolist()) == ([0], [top], [1])


KEYS = st.integers(-2, 4)
TIMES = st.integers(-3, 9)


@given(
    st.lists(st.tuples(KEYS, TIMES, st.integers(0, 99)), unique_by=lambda row: row[:2]),
    st.lists(st.tuples(KEYS, TIMES), min_size=1),
)
def test_a_value_holds_from_its_time_until_the_next(entries, asked):
    entries.sort()
    columns = [np.array(column, np.int64) for column in zip(*entries, strict=True)] or [
        np.zeros(0, np.int64)
    ] * 3
    since = Since(columns[0].astype(np.int32), columns[1], columns[2].astype(np.int32))
    found = value_at(
        since,
        np.array([key for key, _ in asked], np.int32),
        np.array([time for _, time in asked], np.int64),
    )
    expected = [
        next((v for k, t, v in reversed(entries) if k == key and t <= time), -1)
        for key, time in asked
    ]
    assert found.tolist() == expected
