"""Holds of a core: whole steps, their seconds, and the shares of exactly those."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.model.rows.cpu import CoreTimes
from sexton.model.window import Batch, Window, columns_of
from sexton.series.catalogue import CORE_STEAL
from sexton.series.cores import (
    PARTS,
    CoreMeter,
    CoreSeries,
    HeldSoFar,
    Hold,
    Overlap,
    core_series,
    from_columns,
)
from sexton.series.meter import series
from tests.support.windows import make_window

Parts = tuple[int, int, int]  # system, user, steal: milliseconds of a step


def readings(steps: Sequence[Sequence[Parts]], step_s: float = 1.0) -> list[Batch[CoreTimes]]:
    """Cores with these parts of every step; the rest is idle."""
    spent = [[0, 0, 0, 0] for _ in steps[0]] if steps else []
    made = []
    for at, parts in enumerate([[(0, 0, 0)] * len(spent), *steps]):
        for core, (system, user, steal) in enumerate(parts):
            idle = round(1000 * step_s) - system - user - steal if at else 0
            for kind, amount in enumerate((user, system, idle, steal)):
                spent[core][kind] += amount
        rows = (CoreTimes(core, user, 0, system, idle, 0, 0, 0, steal)
                for core, (user, system, idle, steal) in enumerate(spent))  # fmt: skip
        made.append(Batch(10.0 + at * step_s, 1000.0 + at * step_s, tuple(rows)))
    return made


def held(batches: list[Batch[CoreTimes]], lasting: float = 0.0) -> list[Hold]:
    found = core_series(Window({CoreTimes: batches}))
    return [] if found is None else found.held(90.0, lasting)


def test_time_spent_in_the_steps_around_a_hold_is_not_part_of_it():
    system = (0, 800, 1000, 960, 1000, 890, 0)
    (hold,) = held(readings([[(part, 0, 0)] for part in system]))
    assert (hold.core, hold.start, hold.end, hold.seconds) == (0, 12.0, 15.0, 3.0)
    assert (hold.wall_start, hold.wall) == (1002.0, 1005.0)
    assert hold.shares.system == pytest.approx(100 * 2.96 / 3)
    assert hold.shares.seconds == hold.seconds


def test_shares_of_a_hold_are_those_of_the_same_seconds():
    batches = readings([[(900 + 10 * at, 50 - 5 * at, 0), (5, 5, 0)] for at in range(8)])
    found = core_series(Window({CoreTimes: batches}))
    assert found is not None
    (hold,) = found.held(90.0)
    assert found.over(hold.start, hold.end)[0] == pytest.approx(hold.shares)


def test_shorter_ones_are_left_out():
    batches = readings([[(part, 0, 0)] for part in (1000, 0, 1000, 1000, 0, 1000, 1000, 1000)])
    assert [hold.seconds for hold in held(batches)] == [1.0, 2.0, 3.0]
    assert [hold.seconds for hold in held(batches, 2.0)] == [2.0, 3.0]


@given(st.lists(st.lists(st.sampled_from([0, 500, 900, 1000]), min_size=2, max_size=2), max_size=9))
def test_readings_one_by_one_give_the_same_holds_as_all_at_once(system: list[list[int]]):
    batches = readings([[(part, 0, 0) for part in parts] for parts in system])
    so_far, meter = HeldSoFar(), CoreMeter()
    last: dict[tuple[int, float], Hold] = {}
    for batch in batches:
        step = meter.add(batch)
        for hold in so_far.add(step, 90.0) if step is not None else ():
            assert hold.end == batch.mono_s
            last[hold.core, hold.start] = hold
    whole = held(batches)
    assert len(last) == len(whole)
    for hold in whole:
        mine = last[hold.core, hold.start]
        assert mine[:4] == hold[:4]
        assert mine.shares == pytest.approx(hold.shares)


def test_a_hold_does_not_go_on_over_missing_readings():
    batches = readings([[(1000, 0, 0)]] * 6)
    del batches[3]
    batches[3] = replace(batches[3], follows=False)
    so_far, meter = HeldSoFar(), CoreMeter()
    steps = [meter.add(batch) for batch in batches]
    found = [hold for step in steps if step is not None for hold in so_far.add(step, 90.0)]
    assert [(hold.start, hold.end) for hold in found] == [
        (10.0, 11.0), (10.0, 12.0), (14.0, 15.0), (14.0, 16.0),
    ]  # fmt: skip
    assert [(hold.start, hold.end) for hold in held(batches)] == [(10.0, 12.0), (14.0, 16.0)]


def test_stolen_time_is_a_share_of_what_the_core_was_given():
    # 200 of 1,000 ms are not accounted for: the hypervisor took them and did not say so.
    parts = [(0, 400, 200)] * 3
    batches = readings([[part] for part in parts])
    lost = [
        replace(batch, rows=tuple(
            CoreTimes(0, row.user_ms, 0, 0, row.idle_ms - 200 * at, 0, 0, 0, row.steal_ms)
            for row in batch.rows
        ))
        for at, batch in enumerate(batches)
    ]  # fmt: skip
    window = Window({CoreTimes: lost})
    metric, cores = series(window, CORE_STEAL), core_series(window)
    assert metric is not None
    assert cores is not None
    assert metric.values.tolist() == cores.percent(cores.stolen).tolist()
    assert metric.values[0, 0] == pytest.approx(25.0)
    assert not math.isnan(metric.values[0, -1])


def counted(*steps: tuple[int, int]) -> CoreSeries:
    """One core with these system and idle milliseconds in each second."""
    system = np.cumsum([0, *(step[0] for step in steps)])
    idle = np.cumsum([10_000, *(step[1] for step in steps)])
    made = [
        (float(at), [CoreTimes(0, 0, 0, *map(int, ms), 0, 0, 0, 0)])
        for at, ms in enumerate(zip(system, idle, strict=True))
    ]
    found = core_series(make_window(made))
    assert found is not None
    return found


def test_too_few_ticks_are_neither_a_held_core_nor_a_calm_one():
    """All that is left was spent in the kernel: of 210 ms that says something, of 190 nothing."""
    found = counted((210, 0), (190, 0), (0, 0), (500, 500))
    assert found.percent(found.kernel)[0].tolist() == pytest.approx([100, *[math.nan] * 2, 50],
                                                                    nan_ok=True)  # fmt: skip
    shares = found.over(0.0, 4.0)[0]
    assert shares.kernel == pytest.approx(100 * 0.71 / 1.21)
    assert shares.seconds == 2.0


def test_an_idle_counter_that_steps_back_does_not_make_a_core_busy():
    found = counted((300, 700), (300, -10), (300, 700))
    assert found.percent(found.kernel)[0].tolist() == pytest.approx([30, 30, 30])


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_in_pieces_the_same_cores_are_known_as_in_one(cut: int):
    """A recording comes in segments: the first may have one reading, and a core that goes."""
    first, *rest = readings([[(0, 100, 0), (0, 100, 0), (0, 100, 0)]] * 4)
    batches = [first, *(replace(batch, rows=batch.rows[:2]) for batch in rest)]

    def cores(*parts: list[Batch[CoreTimes]]) -> list[int]:
        pieces = (columns_of(part, CoreTimes, PARTS) for part in parts)
        found = from_columns(piece for piece in pieces if piece is not None)
        return [] if found is None else found.cores

    assert cores(batches[:cut], batches[cut:]) == cores(batches) == [0, 1, 2]
    assert cores(batches[:1]) == []


@pytest.mark.parametrize("rows", [0, 1, 40, 4_000_000])
def test_cores_that_come_late_are_in_their_place_whatever_number_of_rows_was_announced(rows: int):
    every = readings([[(0, 100 * step, 0)] * 8 for step in range(6)])
    batches = [replace(batch, rows=batch.rows[:1]) for batch in every[:3]] + every[3:]
    pieces = [
        columns_of(batches[at : at + 2], CoreTimes, PARTS) for at in range(0, len(batches), 2)
    ]
    whole = from_columns([columns_of(batches, CoreTimes, PARTS)])
    found = from_columns(pieces, rows)
    assert found is not None
    assert whole is not None
    assert found.cores == whole.cores == list(range(8))
    for name in ("start", "end", "wall", "user", "system", "softirq", "wait", "stolen"):
        assert np.array_equal(getattr(found, name), getattr(whole, name), equal_nan=True), name
    shares = [each.percent(each.user) for each in (found, whole)]
    assert np.array_equal(*shares, equal_nan=True)
    # One core was there first: room for all rows of one is not made for each of eight.
    assert found.user.base.nbytes <= max(24 * rows, 24 * 8 * 2 * len(batches))


def overlap(system: list[float], start: list[float], end: list[float]) -> Overlap:
    """Core 7, given a whole core in each second in which its system time is known."""
    times = np.arange(len(system) + 1.0)
    spent = np.array([system], np.float32)
    given = np.where(np.isnan(spent), np.nan, 1.0).astype(np.float32)
    series = CoreSeries(times[:-1], times[1:], times[1:], [7], *[spent] * 5, given)
    return Overlap(series, np.array(start), np.array(end))


def test_over_another_tables_steps_each_step_counts_by_its_overlap():
    shares = overlap([1.0, 0.0, 0.5], [0.0, 0.5, 2.0], [1.0, 1.5, 3.0]).system(7)
    np.testing.assert_allclose(shares, [100, 50, 50])


def test_without_a_reading_the_share_is_unknown_and_not_zero():
    found = overlap([1.0, np.nan, 1.0], [1.0, 0.5], [2.0, 1.5])
    np.testing.assert_allclose(found.system(7), [np.nan, 100])
    assert np.isnan(found.system(8)).all(), "this core was never read"
