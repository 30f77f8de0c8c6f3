"""Lanes of real recordings, against the same numbers worked out row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from math import floor, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexton.explorer.tiles.questions import finding_marks
from sexton.explorer.tiles.view import View
from sexton.model.lane import COLUMNS, Strip
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.memory import Pressure
from sexton.model.rows.net import TcpCounters
from sexton.series.steps import Step, steps
from sexton.store.recording import Recording

INCIDENTS = Path(__file__).parents[2] / "incidents"
NAMES = ("whole_chain-6.18-v1", "whole_chain-5.10-v1", "timer_zombies-6.1-v2", "busy-6.18-v1")
Key = Callable[[Any], Any]
Array = np.ndarray[Any, Any]


def path_of(name: str) -> Path:
    return INCIDENTS / name / "recording"


@cache
def view_of(name: str) -> View:
    return View.open(path_of(name))


def strip_of(view: View, lane: str, level: int) -> tuple[int, Strip]:
    """All of it, and the first column's number."""
    assert view.span is not None
    start, end = (floor(value) >> level for value in view.span)
    first = start // COLUMNS
    return first * COLUMNS, view.strip(lane, level, first, end // COLUMNS - first + 1)


def told_steps(name: str, kind: type[Row], key: Key) -> Iterator[tuple[Any, Step[Any], range]]:
    """Every step of every thing, and the seconds whose middle it holds."""
    for segment in Recording(path_of(name)).segments:
        batches = segment.batches(kind)
        walls = {batch.mono_s: batch.wall_s for batch in batches}
        for thing, step in steps(batches, key):
            end = walls[step.end_mono]
            start = end - step.seconds
            held = range(floor(start + 0.5), floor(end + 0.5))
            yield thing, step, held or range(floor((start + end) / 2), floor((start + end) / 2))


def in_half_percents(step: Step[Any]) -> list[float]:
    """By hand: of the time the core was given."""
    return [min(item / 5, 200) for item in spent_and_given(step)[0]]


def spent_and_given(step: Step[Any]) -> tuple[list[float], float]:
    """By hand: milliseconds per second that the core was given, and how many seconds those were:
    less than the step where ticks were lost."""
    before, after = asdict(step.before), asdict(step.after)
    moved = {name: after[name] - before[name] for name in after if name.endswith("_ms")}
    if min(moved[f"{name}_ms"] for name in ("user", "nice", "system", "irq", "softirq")) < 0:
        return [nan] * 4, nan
    ticked = sum(item for item in moved.values() if item > 0) / 1000
    given = ticked if 0.2 * step.seconds <= ticked < 0.85 * step.seconds else step.seconds
    groups = (("user", "nice"), ("system",), ("softirq", "irq"), ("iowait", "steal"))
    spent = [sum(max(moved[f"{name}_ms"], 0) for name in group) for group in groups]
    return [item / given for item in spent], given


@pytest.mark.parametrize("name", NAMES)
def test_every_second_of_every_core_is_what_its_counters_say(name: str):
    first, strip = strip_of(view_of(name), "cores", 0)
    shown = strip.planes["peak"]
    assert strip.dtype == "uint8"
    expected: dict[tuple[int, int], list[list[float]]] = {}
    for cpu, step, seconds in told_steps(name, CoreTimes, lambda row: row.cpu):
        for second in seconds or [seconds.start]:  # too short for a second's middle: it shares one
            expected.setdefault((cpu, second - first), []).append(in_half_percents(step))
    assert len(expected) > 150
    for (cpu, column), several in expected.items():
        found = shown[:, strip.names.index(f"core {cpu}"), column].astype(int).tolist()
        assert any(is_about(found, shares) for shares in several)
        hottest = max(shares[1] + shares[2] for shares in several)
        assert found[1] + found[2] >= hottest - 1.1
    known = {(int(row), int(column)) for row, column in np.argwhere((shown != 255).any(axis=0))}
    assert known == {
        (strip.names.index(f"core {cpu}"), column)
        for (cpu, column), several in expected.items()
        if not np.isnan(several).all()
    }


def is_about(found: list[int], shares: list[float]) -> bool:
    return all(
        number == 255 if np.isnan(share) else abs(number - share) <= 0.51
        for number, share in zip(found, shares, strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", [1, 4, 7])
def test_the_peak_of_a_column_is_the_hottest_second_in_it(name: str, level: int):
    first, fine = strip_of(view_of(name), "cores", 0)
    above, coarse = strip_of(view_of(name), "cores", level)
    seconds = fine.planes["peak"].astype(float)
    seconds[seconds == 255] = np.nan
    width = 1 << level
    checked = 0
    for column in range(coarse.columns):
        start = (above + column) * width - first
        mine = seconds[:, :, max(start, 0) : max(start + width, 0)]
        for row in range(len(coarse.names)):
            kernel = mine[1, row] + mine[2, row]
            shown = coarse.planes["peak"][:, row, column]
            if not mine.shape[2] or np.isnan(kernel).all():
                assert (shown[1:3] == 255).all()
                continue
            assert int(shown[1]) + int(shown[2]) == np.nanmax(kernel)
            checked += 1
    assert checked


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", [1, 4, 7])
def test_the_mean_of_a_column_is_the_time_spent_divided_by_the_time_given(name: str, level: int):
    first, strip = strip_of(view_of(name), "cores", level)
    spent: dict[tuple[int, int], Array] = {}
    given: dict[tuple[int, int], float] = {}
    for cpu, step, held in told_steps(name, CoreTimes, lambda row: row.cpu):
        seconds = held or [held.start]
        _, its = spent_and_given(step)
        for second in seconds if its == its else ():
            at = strip.names.index(f"core {cpu}"), (second >> level) - first
            given[at] = given.get(at, 0.0) + its / len(seconds)
            spent[at] = spent.get(at, 0.0) + np.array(in_half_percents(step)) * its / len(seconds)
    assert given
    for (row, column), seconds_given in given.items():
        shown = strip.planes["mean"][:, row, column]
        # Rounded as a second, as two readings of a second, and as a column.
        assert shown == pytest.approx(spent[row, column] / seconds_given, abs=1.52)


def test_the_core_that_was_held_is_seen_from_twelve_hours_away():
    _, strip = strip_of(view_of("whole_chain-6.18-v1"), "cores", 6)
    system = strip.planes["peak"][1]
    row = strip.names.index("core 0")
    assert system[row][system[row] != 255].max() > 180
    _, average = strip_of(view_of("whole_chain-6.18-v1"), "average", 6)
    mean = average.planes["mean"][0, average.names.index("system")]
    assert np.nanmax(mean) < 30  # which is why one looks at cores


@pytest.mark.parametrize("name", NAMES)
def test_pressure_and_tcp_are_the_rates_of_their_counters(name: str):
    wanted: tuple[tuple[str, type[Row], Key, str, float], ...] = (
        ("pressure", Pressure, lambda row: (row.resource, row.kind), "total_us", 1e-4),
        ("tcp", TcpCounters, lambda _row: ("retransmitted segments", "some"),
         "retransmitted_segments", 1.0),
    )  # fmt: skip
    for lane, kind, key, field, scale in wanted:
        first, strip = strip_of(view_of(name), lane, 0)
        highest: dict[tuple[str, int], float] = {}
        for (line, which), step, seconds in told_steps(name, kind, key):
            if which == "some" and line in strip.names:
                rate = (step.delta(field) or 0) / step.seconds * scale
                rate = min(rate, 100.0) if lane == "pressure" else rate
                for second in seconds or [seconds.start]:
                    at = (line, second - first)
                    highest[at] = max(rate, highest.get(at, 0.0))
        assert len(highest) > 80
        for (line, column), rate in highest.items():
            shown = strip.planes["peak"][0, strip.names.index(line), column]
            assert shown == pytest.approx(rate, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_live_and_dying_memcgs_are_those_of_the_census(name: str):
    view = view_of(name)
    _, strip = strip_of(view, "memcgs", 12)
    (_, segment) = (view, Recording(path_of(name)).segments[0])
    rows = [row for batch in segment.batches(CgroupCensus) for row in batch.rows]
    for which, field in (("live", "live"), ("dying", "dying")):
        peaks = strip.planes["peak"][0, strip.names.index(which)]
        told = [getattr(row, field) for row in rows if getattr(row, field) is not None]
        assert np.nanmax(peaks) == max(told)


def test_the_unit_that_left_the_dead_is_named():
    _, strip = strip_of(view_of("whole_chain-6.18-v1"), "memcgs", 0)
    line = strip.planes["mean"][0, strip.names.index("from lab-agent.service")]
    known = line[~np.isnan(line)]
    assert known[0] < 20
    assert known[-1] == 928 - 39 or known[-1] > 850
    assert (np.diff(known) >= 0).mean() > 0.9


def test_lines_of_the_kernel_are_marks_at_their_own_time():
    view = view_of("whole_chain-6.18-v1")
    assert view.span is not None
    (segment,) = Recording(path_of("whole_chain-6.18-v1")).segments
    offset = segment.start[1] - segment.start[0]
    rows = [row for batch in segment.batches(KernelEvent) for row in batch.rows]
    marks = view.marks(*view.span)
    for row in rows:
        assert row.mono_us is not None
        (mark,) = [item for item in marks if item.text == row.message]
        assert mark.time == pytest.approx(row.mono_us / 1e6 + offset, abs=0.01)
        assert mark.kind == row.family
    assert [item.kind for item in marks].count("mark") == 1
    assert [item.time for item in marks] == sorted(item.time for item in marks)


def test_the_next_spike_and_the_next_reset_are_found_and_the_last_ones_backwards():
    view = view_of("whole_chain-6.18-v1")
    assert view.span is not None
    start, end = view.span
    spike = view.found("spike", start)
    assert spike is not None
    assert spike.entity == "core 0"
    later = view.found("spike", spike.time)
    assert later is not None
    assert later.time > spike.time
    reset = view.found("reset", start)
    assert reset is not None
    assert reset.severity == "critical"
    assert view.found("reset", end, backwards=True) == reset
    assert view.found("reset", reset.time) is None
    assert view.found("no such thing", start) is None


@pytest.mark.parametrize("name", NAMES)
def test_stacks_are_all_busy_samples_of_the_recording(name: str):
    view = view_of(name)
    if "stacks" not in {lane.id for lane in view.lanes()}:
        pytest.skip("no stacks were recorded")
    from sexton.profile.recorded import read_heat

    segments = Recording(path_of(name)).segments
    heats = [read_heat(annex) for segment in segments for annex in segment.annexes]
    busy = sum(int(heat.cells.sum()) for heat in heats)
    _, strip = strip_of(view, "stacks", 0)
    cells = strip.planes["mean"][0].astype(int)
    assert strip.planes["mean"].shape[1] == 50
    assert int(cells[cells != 65535].sum()) == busy
    assert view.span is not None
    first = floor(view.span[0] / 5.12) - 1
    fine = [view.strip("stacks", -1, first + at, 1).planes["mean"] for at in range(40)]
    flat = np.concatenate([array[0, 0] for array in fine]).astype(int)
    assert int(flat[flat != 65535].sum()) == busy


def test_every_lane_has_a_table_and_says_what_it_leaves_out():
    view = view_of("whole_chain-6.18-v1")
    assert view.span is not None
    for lane in view.lanes():
        table = view.table(lane.id, *view.span, 3)
        assert 1 <= len(table.rows) <= 3 or lane.id == "restarts"
        assert all(len(row) == len(table.headings) for row in table.rows)
        assert all(isinstance(cell, str) for row in table.rows for cell in row)
    cores = view.table("cores", *view.span)
    assert cores.rows[0][0] == "core 0"
    assert view.table("events", *view.span, 2).left_out == len(view.marks(*view.span)) - 2


def test_the_answer_is_the_one_that_diagnose_gives():
    view = view_of("whole_chain-6.18-v1")
    assert view.span is not None
    found = view.diagnosis(*view.span)
    assert found is view.diagnosis(*view.span)
    assert found.chains[0].root == "cgroup_churn"
    assert found.chains[0].symptom == "job_deaths"
    marks = finding_marks(found)
    assert {"cores", "memcgs", "nic_faults"} <= {mark.lane for mark in marks}
    why = view.why("eth0")
    assert why.about.kind == "nic"
    assert "nic_resets" in why.findings
