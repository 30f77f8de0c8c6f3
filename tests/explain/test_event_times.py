"""Times at which the queried event occurred."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sexton.explain.aligned import Plan
from sexton.explain.event_times import holds, loop_of, occasions
from sexton.model.aligned import Signal
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.rows.cgroup import CgroupEvent
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.recorder import Mark
from sexton.model.rows.unit import RestartMark, Unit
from sexton.model.why import Subject
from sexton.model.window import Batch, Bounds, Window
from tests.explain.aligned.made import align
from tests.support.incident import UPTIME_S, WALL_S, incident


def cores(*shares: float, core: int = 5) -> list[Batch[CoreTimes]]:
    """A core's readings a second apart; a share is its system time, 1 is all of it."""
    spent, made = 0, []
    for second, share in enumerate((0.0, *shares)):
        spent += round(share * 1000)
        row = CoreTimes(core, 0, 0, spent, second * 1000 - spent, 0, 0, 0, 0)
        made.append(Batch(100.0 + second, 5000.0 + second, (row,)))
    return made


def monos(subject: Subject, window: Window, *findings: Finding) -> list[float]:
    return [moment.mono_s for moment in occasions(subject, window, findings).moments]


def test_a_reset_is_when_the_driver_began_to_speak_of_it():
    told = occasions(Subject("nic", "eth0"), incident(), ())
    assert told.words == "1 reset of eth0"
    assert told.moments == ((UPTIME_S + 7.0, WALL_S + 7.0),)
    assert occasions(Subject("nic", "eth1"), incident(), ()).words == "no reset of eth1"


def test_a_hold_counts_at_its_end_so_that_it_lies_in_the_seconds_before():
    window = Window({CoreTimes: cores(0, 1, 1, 1, 0, 0, 1, 1, 0)})
    assert monos(Subject("core", "5"), window) == [104.0, 108.0]
    assert monos(Subject("core", "4"), window) == []


@pytest.mark.parametrize(
    ("shares", "ends"),
    [((0, 1, 0), []), ((0.5, 0.5, 0.5), []), ((1, 1), [102.0]), ((1, 1, 0, 1, 1), [102.0, 105.0])],
)
def test_only_two_seconds_at_nine_tenths_are_a_hold(shares: tuple[float, ...], ends: list[float]):
    assert [end for _, end in holds(Window({CoreTimes: cores(*shares)}))] == ends


def test_a_gap_in_the_readings_ends_a_hold_unless_the_counters_across_it_show_it():
    def over_a_gap(*shares: float) -> list[float]:
        batches = cores(*shares)
        after = Batch(batches[4].mono_s, 5004.0, batches[4].rows, follows=False)
        read = [*batches[:3], after, batches[5]]
        return [end for _, end in holds(Window({CoreTimes: read}))]

    assert over_a_gap(1, 1, 0, 1, 1) == [102.0]
    assert over_a_gap(1, 1, 1, 1, 1) == [105.0]


def test_a_unit_ends_by_systemd_s_clock():
    found = monos(Subject("unit", "ecs.service"), incident())
    assert found == [UPTIME_S + 6.2]  # the end before it lies before the window


def test_the_journal_s_restarts_count_once_beside_systemd_s_clock():
    window = incident()
    marks = (RestartMark("ecs.service", 68_412, WALL_S + 6.5),
             RestartMark("ecs.service", 68_411, WALL_S + 1.0),
             RestartMark("other.service", 3, WALL_S + 2.0))  # fmt: skip
    both = Window({kind: window.batches(kind) or () for kind in (CoreTimes,)}
                  | {RestartMark: [Batch(UPTIME_S + 10.0, WALL_S + 10.0, marks)]})  # fmt: skip
    assert monos(Subject("unit", "ecs.service"), both) == [UPTIME_S + 1.0, UPTIME_S + 6.5]


def test_a_restart_is_logged_after_its_delay_and_the_exit_was_that_much_earlier():
    """Of `ecs.service` with its 10 s, by both; the restart of the end at 6.2 s comes too late."""
    window = incident()
    marks = (RestartMark("ecs.service", 68_412, WALL_S + 16.4),
             RestartMark("ecs.service", 68_411, WALL_S + 6.1))  # fmt: skip
    both = Window({kind: window.batches(kind) or () for kind in (CoreTimes, Unit)}
                  | {RestartMark: [Batch(UPTIME_S + 10.0, WALL_S + 10.0, marks)]})  # fmt: skip
    assert monos(Subject("unit", "ecs.service"), both) == [UPTIME_S + 6.2]


def test_of_a_loop_quicker_than_the_readings_only_some_ends_are_known_and_that_is_said():
    def unit(at: int) -> Unit:
        exit_us = (100 + at) * 1_000_000 - 300_000
        return Unit("a.service", "loaded", "activating", "auto-restart", None, 9 * at, None, 0,
                    exit_us - 200_000, exit_us, 0, "exit-code", 1, "/a", "systemd")  # fmt: skip

    def seen(restarts: int) -> list[Batch[Unit]]:
        rows = [(at, replace(unit(at), restarts=restarts * at)) for at in range(0, 60, 10)]
        return [Batch(100.0 + at, 5000.0 + at, (row,)) for at, row in rows]

    cores_read = cores(*[0] * 60)
    quick = Window({CoreTimes: cores_read, Unit: seen(restarts=9)})
    told = occasions(Subject("unit", "a.service"), quick, ())
    assert told.partial
    assert told.note == "450 restarts were counted; exit times are known only for these"
    slow = Window({CoreTimes: cores_read, Unit: [
        replace(batch, rows=(replace(batch.rows[0], restarts=number),))
        for number, batch in enumerate(seen(restarts=1))
    ]})  # fmt: skip
    told = occasions(Subject("unit", "a.service"), slow, ())
    assert (told.partial, told.note) == (False, "")


def test_a_cgroup_s_deaths_are_those_in_it_and_below_it():
    events = tuple(
        CgroupEvent("rmdir", number, path, 101_000_000_000 + number)
        for number, path in enumerate(("/a", "/a/b", "/ab", "/c"))
    )
    window = Window({CoreTimes: cores(0, 0), CgroupEvent: [Batch(102.0, 5002.0, events)]})
    assert occasions(Subject("cgroup", "/a"), window, ()).words == "2 cgroup removals under /a"


def test_a_job_s_moment_is_its_mark_and_names_are_compared_as_printed():
    mark = Batch(101.0, 5001.0, (Mark("job \x1b[2J died"),))
    window = Window({CoreTimes: cores(0, 0), Mark: [mark]})
    assert monos(Subject("job", "job \x1b[2J died"), window) == [101.0]


def test_where_nothing_dates_it_the_findings_do():
    window = Window({CoreTimes: cores(*[0] * 20)})
    finding = Finding(
        "x", Verdict.PRESENT, Severity.WARNING, "x", {"task": ("a[1]",)}, 5003.0, 5006.0
    )
    lasting = Finding("y", Verdict.PRESENT, Severity.WARNING, "y", {}, 5000.0, 5020.0)
    found = occasions(Subject("task", "a"), window, (finding, lasting))
    assert [moment.mono_s for moment in found.moments] == [106.0]
    assert "end of the finding" in found.note


def test_a_time_is_itself():
    found = occasions(Subject("moment", "@5003", 5003.0), Window({CoreTimes: cores(*[0] * 9)}), ())
    assert found.moments == ((103.0, 5003.0),)
    assert found.note == ""


def test_a_minute_is_what_happened_in_it():
    said = Subject("moment", "21:20", WALL_S, 60.0)
    found = occasions(said, incident(), ())
    assert found.moments == ((UPTIME_S + 7.0, WALL_S + 7.0),)
    assert "eth0 was reset" in found.note
    quiet = occasions(said, incident(resets=False, burning=False), ())
    assert quiet.moments == ((float(UPTIME_S), WALL_S),)


def test_the_clocks_are_joined_by_the_nearest_reading():
    jumped = [Batch(100.0, 5000.0, ()), Batch(101.0, 9001.0, ()), Batch(102.0, 9002.0, ())]
    window = Window({CoreTimes: jumped}, bounds=Bounds(5000.0, 9002.0, 100.0, 102.0))
    assert window.mono(9001.5) == 101.5
    assert window.mono(5000.2) == pytest.approx(100.2)
    assert window.wall(100.2) == pytest.approx(5000.2)


RESTARTS = [15.0 + 10.1 * n for n in range(60)]


@pytest.mark.parametrize(
    "moments",
    [
        RESTARTS[:4],  # too few
        [46.0 * n for n in range(20)],  # far enough apart to be episodes
        [1.0 * n for n in range(90)],  # no two readings before each
        [n * n / 3 for n in range(9, 30)],  # no clock
        [],
        [5.0],
    ],
)
def test_what_is_no_loop_is_compared_like_anything_else(moments: list[float]):
    assert loop_of(moments) is None


@pytest.mark.parametrize("period", [8.0, 10.1, 30.0, 45.0])
def test_a_loop_is_known_though_it_misses_a_beat(period: float):
    moments = [period * n for n in range(20) if n != 7]
    loop = loop_of(moments)
    assert loop is not None
    assert loop.plan.before_s == pytest.approx(period / 4)
    assert "compared with the middle of the gaps" in loop.note


def signals() -> list[Signal]:
    """A culprit that works in the two seconds before each restart, and others that do not care."""
    mono = np.arange(0.0, 640.0)
    rng = np.random.default_rng(7)
    busy = rng.normal(5, 1, len(mono))
    for restart in RESTARTS:
        busy[(mono > restart - 2.2) & (mono <= restart)] += 40
    made = [Signal("task", "culprit", "CPU", "% of a core", mono, busy)]
    return made + [
        Signal("task", f"other {n}", "CPU", "% of a core", mono, rng.normal(5, 1, len(mono)))
        for n in range(60)
    ]


@pytest.mark.parametrize("number", [6, 12, 60])
def test_windows_of_a_loop_are_not_made_shorter_for_want_of_more_of_them(number: int):
    loop = loop_of(RESTARTS[:number])
    assert loop is not None
    found = align(signals(), RESTARTS[:number], loop.plan)
    assert found.before_s == pytest.approx(10.1 / 4)
    assert found.controls >= number - 1 if number < 24 else found.controls >= 24


def test_every_restart_of_a_loop_is_an_event_and_the_culprit_is_found():
    loop = loop_of(RESTARTS)
    assert loop is not None
    found = align(signals(), RESTARTS, loop.plan)
    assert len(found.events) == Plan().most_events  # of sixty, evenly chosen
    assert [item.about for item in found.ranked[: found.significant]] == ["culprit"]
    merged = align(signals(), RESTARTS)
    assert len(merged.events) < 2, "what it was before: one episode, and nothing to compare it with"
