"""Whether it helped: each criterion met, not met, or not to be known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sexton.cli.fix.verify import _watch
from sexton.cure import measures
from sexton.cure.journal import Run, StepRecord
from sexton.cure.remedies.remove_empty_cgroups import REMOVE, EmptyCgroup, propose
from sexton.cure.verify import Met, heading, verify
from sexton.detect.growth import counts, growth, rate
from sexton.host.host import open_host
from sexton.model.rows.cgroup import CgroupCensus, CgroupThrottle
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.event import KernelLog
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.net import Nic, NicCounter
from sexton.model.rows.unit import Unit
from sexton.model.window import Batch, Window
from sexton.reports.text.fix import verified_json, verify_text
from sexton.reports.text.zombies import tally, zombies_json
from sexton.sources.cgroupfs.census import take
from sexton.sources.cgroupfs.layout import read_layout
from tests.cure.reclaim.made import zombies
from tests.model.test_plan import plan, step
from tests.support.windows import make_window

BASELINE = {
    "cores": "5", "core_5_kernel_percent": 97.0, "throttled_ms_per_second": 0.0,
    "reclaim_pages_per_second": 500.0, "zombies_per_minute": 6.0, "dying": 60.0,
}  # fmt: skip


def unit(restarts: int, start: int) -> Unit:
    return Unit("a.service", "loaded", "inactive", "dead", None, restarts, None, None, start,
                None, None, None, None, None, "")  # fmt: skip


def rows(second: float, **given: int):
    """A node at one moment; `dying=None` leaves the census uncounted."""
    got = {"dying": 60, "system_ms": 0, "softirq_ms": 0, "throttled": 0, "scanned": 0,
           "resets": 0, "restarts": 9}  # fmt: skip
    got |= given
    idle_ms = int(1_000 * second) - got["system_ms"] - got["softirq_ms"]
    dying = got["dying"]
    return [
        CgroupCensus("v1", 1, "/m", "node", None, 5, dying, "x", None),
        CoreTimes(5, 0, 0, got["system_ms"], idle_ms, 0, 0, got["softirq_ms"], 0),
        CgroupThrottle("/a", 10, 1, got["throttled"]),
        VmCounter("pgscan_direct", got["scanned"]),
        NicCounter("eth0", "total_resets", got["resets"]),
        Nic("eth0", True, "ena", "2", None, "up"),
        unit(got["restarts"], int(second * 10 * (got["restarts"] > 9))),
    ]


def told(**changes) -> Run:
    made = Run("run-1", plan(baseline=BASELINE), 1.0, start={"dying": 70})
    return replace(made, **changes)


def results(first: dict, last: dict):
    window = make_window([(0.0, rows(0.0, **first)), (600.0, rows(600.0, **last))], (KernelLog,))
    found = verify(told(), window)
    return found, {result.what: result.met for result in found.results}


NAMES = (
    "zombies per minute", "restarts of a.service", "core 5 kernel time", "CPU throttling",
    "direct reclaim", "NIC resets",
)  # fmt: skip


def test_a_node_that_calmed_down_passes():
    found, met = results({}, {"dying": 10, "system_ms": 6_000})
    assert met == dict.fromkeys(NAMES, Met.YES)
    assert found.exit == 0
    assert heading(found) == "all 6 criteria met"
    assert (found.dead_before, found.dead_now) == (70, 10)


@pytest.mark.parametrize(
    ("last", "name"),
    [
        ({"dying": 90}, "zombies per minute"),
        ({"restarts": 12}, "restarts of a.service"),
        ({"system_ms": 590_000}, "core 5 kernel time"),
        ({"softirq_ms": 590_000}, "core 5 kernel time"),
        ({"throttled": 60_000_000}, "CPU throttling"),
        ({"scanned": 3_000_000}, "direct reclaim"),
        ({"resets": 1}, "NIC resets"),
    ],
)
def test_one_that_is_not_met_fails_it_and_is_named(last: dict, name: str):
    found, met = results({}, last)
    assert met == {**dict.fromkeys(NAMES, Met.YES), name: Met.NO}
    assert found.exit == 1
    assert name in heading(found)


@pytest.mark.parametrize(
    ("before", "percent", "met"),
    [
        (95.0, 94.0, Met.NO),
        (95.0, 60.0, Met.NO),
        (95.0, 47.0, Met.YES),
        (12.0, 9.0, Met.YES),
        (None, 9.0, Met.YES),
        (None, 40.0, Met.NO),
    ],
)
def test_a_core_that_is_a_little_less_busy_is_as_stuck_as_before(before, percent, met):
    base = {key: value for key, value in BASELINE.items() if key != "core_5_kernel_percent"}
    base |= {} if before is None else {"core_5_kernel_percent": before}
    steps = [(t, rows(t, system_ms=int(t * percent * 10))) for t in range(0, 605, 5)]
    found = verify(told(plan=plan(baseline=base)), make_window(steps, (KernelLog,)))
    core = next(result for result in found.results if result.what == "core 5 kernel time")
    assert core.met is met
    assert core.note or met is Met.YES


def test_a_core_that_was_held_again_fails_however_calm_the_mean_is():
    steps = [(t, rows(t, system_ms=int(1000 * min(max(t - 300, 0), 10)))) for t in range(0, 605, 5)]
    found = verify(told(), make_window(steps, (KernelLog,)))
    core = next(result for result in found.results if result.what == "core 5 kernel time")
    assert (core.met, core.now, core.note) == (Met.NO, "2 %", "held in the kernel for 10.0 s")


@pytest.mark.parametrize(("seconds", "met"), [(10.0, Met.UNKNOWN), (60.0, Met.YES)])
def test_a_window_in_which_the_earlier_growth_would_not_show_is_too_short(seconds, met):
    base = {**BASELINE, "zombies_per_minute": 20.0, "seconds": 60.0}
    last = rows(seconds, dying=63)
    window = make_window([(0.0, rows(0.0)), (seconds, last)], (KernelLog,))
    found = verify(told(plan=plan(baseline=base)), window)
    assert found.results[0].met is met
    assert ("watch longer" in found.results[0].note) is (met is Met.UNKNOWN)


def test_fewer_than_five_more_are_chance_and_that_is_said():
    found, met = results({}, {"dying": 63})
    assert met["zombies per minute"] is Met.YES
    assert "noise" in found.results[0].note


def test_rates_that_were_high_before_may_stay_as_high():
    window = make_window(
        [(0.0, rows(0.0)), (600.0, rows(600.0, scanned=60_000_000))], (KernelLog,)
    )  # fmt: skip
    busy = plan(baseline={**BASELINE, "reclaim_pages_per_second": 100_000.0})
    found = verify(told(plan=busy), window)
    assert next(result for result in found.results if "reclaim" in result.what).met is Met.YES


def test_what_could_not_be_read_is_unknown_and_never_passed():
    found = verify(told(), make_window([(0.0, [rows(0.0)[1]]), (600.0, [rows(600.0)[1]])]))
    states = {result.what: result.met for result in found.results}
    assert states.pop("core 5 kernel time") is Met.YES
    assert set(states.values()) == {Met.UNKNOWN}
    assert found.exit == 3
    assert found.dead_now is None


@pytest.mark.parametrize(
    ("before", "now", "met", "code"),
    [
        (1_532, 1_532, Met.NO, 1),
        (1_532, 1_530, Met.NO, 1),
        (1_532, 40, Met.YES, 0),
        (3, 0, Met.YES, 0),
        (None, 40, Met.UNKNOWN, 3),
    ],
)
def test_a_plan_that_was_to_free_zombies_holds_only_if_there_are_fewer(
    before: int | None, now: int, met: Met, code: int
):
    freeing = step(id="1-free", remedy="reclaim_zombies", parameters={})
    base = {key: value for key, value in BASELINE.items() if key != "dying"}
    run = Run("run-1", plan(baseline=base, steps=(freeing,)), 1.0,
              start={} if before is None else {"dying": before})  # fmt: skip
    window = make_window(
        [(0.0, rows(0.0, dying=now)), (600.0, rows(600.0, dying=now))], (KernelLog,)
    )
    found = verify(run, window)
    assert (found.results[0].what, found.results[0].met) == ("dying memory cgroups", met)
    assert found.exit == code


@pytest.mark.parametrize(
    ("left", "now", "met", "code"),
    [(0, "0", Met.YES, 0), (2, "2", Met.NO, 1), (None, "?", Met.UNKNOWN, 3)],
)
def test_a_plan_that_was_to_remove_empty_cgroups_holds_only_if_they_are_gone(
    left: int | None, now: str, met: Met, code: int
):
    found = [EmptyCgroup(f"/a/{n}.scope", n, 0, 900.0, REMOVE) for n in (1, 2, 3)]
    run = Run("run-1", plan(baseline=BASELINE, steps=(propose("1-remove", found),)), 1.0,
              start={"dying": 60})  # fmt: skip
    window = make_window([(0.0, rows(0.0)), (600.0, rows(600.0))], (KernelLog,))
    verified = verify(run, window, left)
    first = verified.results[0]
    assert (first.what, first.before, first.now) == ("empty cgroups of the plan", "3", now)
    assert (first.met, verified.exit) == (met, code)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("only the subtree of a container is seen; run it on the node", "run it on the node"),
        (None, "only the total number of cgroups"),
    ],
)
def test_why_the_dead_could_not_be_counted_is_said_in_the_censuss_words(reason, said: str):
    row = CgroupCensus("v1", 1, "/m", "subtree", None, 5, None, "directories", reason)
    found = verify(told(), make_window([(0.0, [row]), (600.0, [row])]))
    slope = found.results[0]
    assert (slope.what, slope.met) == ("zombies per minute", Met.UNKNOWN)
    assert said in slope.note


def test_a_single_count_is_no_pace():
    found = verify(told(), make_window([(0.0, rows(0.0)), (600.0, rows(600.0)[1:])]))
    assert found.results[0].met is Met.UNKNOWN
    assert "watch longer" in found.results[0].note


def test_a_unit_that_systemd_forgot_does_not_run():
    other = replace(unit(0, 0), name="b.service")
    window = make_window([(0.0, [other]), (600.0, [other])])
    restarts = next(
        result for result in verify(told(), window).results if "restarts" in result.what
    )
    assert (restarts.met, restarts.now) == (Met.YES, "0")


def test_what_was_freed_is_told_in_the_words_of_the_step_and_what_is_left_too():
    walked = "one read of memory.numa_stat: 700 ms before, 2.0 ms after, 34.9 µs for each zombie"
    outcome = {"freed": 20, "said": "20 freed, 50 left", "told": [walked]}
    record = StepRecord("3-free", {}, outcome)
    window = make_window([(0.0, rows(0.0, dying=50)), (600.0, rows(600.0, dying=50))], (KernelLog,))
    found = verify(told(records=[record]), window)
    text = verify_text(found, 88)
    assert "20 freed, 50 left" in text
    assert walked in " ".join(text.split())
    assert "70 before the apply, 50 now: 20 gone, 50 remain" in text
    assert "purged" not in text
    assert text.startswith("NOT GROWING, 50 remain")
    assert verified_json(found)["zombies"] == {"before": 70, "now": 50}


def test_the_text_says_what_failed_and_what_to_do_within_the_width():
    found, _ = results({}, {"dying": 90, "resets": 2})
    text = verify_text(found, 72)
    assert text.startswith("FAILED")
    assert "sudo sexton fix rollback run-1" in text
    assert all(len(line) <= 72 for line in text.splitlines() if "exit" not in line)


def test_the_pace_is_that_of_the_verdict_and_of_counts_by_one_method_only():
    first = CgroupCensus("v1", 1, "/m", "subtree", None, 5, 900, "other", None)
    readings = [(0.0, [first]), *((10.0 * (at + 1), rows(0, dying=dying)[:1])
                                  for at, dying in enumerate((60, 60, 60, 72)))]  # fmt: skip
    window = make_window(readings)
    moved, measured = growth(window), measures.measure(window)[measures.RATE]
    assert moved is not None
    assert (moved.by, moved.seconds, measured) == (12, 30.0, pytest.approx(24))
    assert rate(moved, None) == pytest.approx(measured / 60)
    assert zombies_json(tally(window))["growth"]["per_hour"] == pytest.approx(measured * 60)
    assert verify(told(), window).results[0].now == "+24.0"


@pytest.mark.alone
@pytest.mark.root
def test_on_a_node_that_can_be_counted_the_slope_is_known_and_rising_zombies_fail_it():
    """Live: v1's /proc/cgroups less the directories, or v2's cgroup.stat, as the kernel has it."""
    census, _ = take(open_host(), read_layout(open_host()))
    if census.dying is None:
        pytest.skip(f"the dead cannot be counted here: {census.reason}")
    with zombies(1, "tmpfs") as maker, ThreadPoolExecutor(1) as beside:
        digging = beside.submit(lambda: [maker.make(100) for _ in range(8)])
        window = _watch(6.0)
        digging.result()
    assert len(counts(window)) >= 3
    slope = verify(told(), window).results[0]
    assert slope.met is Met.NO, slope
    assert slope.now.startswith("+")


def test_an_apply_that_stopped_half_way_holds_nothing_however_calm_the_node_is():
    window = make_window([(0.0, rows(0.0)), (600.0, rows(600.0))], (KernelLog,))
    done, begun = StepRecord("1-stop", {}, {"said": "stopped"}), StepRecord("2-disable", {})
    why = "cpu pressure is 34 %\x1b[2J"
    found = verify(told(records=[done, begun], ended="stopped", ended_why=why), window)
    (steps,) = (result for result in found.results if result.met is Met.NO)
    assert (steps.what, steps.now) == ("steps applied", f"1 of {len(plan().automatic)}")
    assert found.exit == 1
    said = verify_text(found, 100)
    assert "FAILED" in said
    assert "stopped: cpu pressure is 34 %" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("readings", "found"),
    [
        pytest.param([[]], 0.0, id="no quota"),
        pytest.param([[("/a", 0)], [("/a", 5_000)]], 5.0, id="throttled"),
        pytest.param([[("/a", 9_000)]], None, id="read once"),
        pytest.param([[("/a", 9_000)], [("/a", 1_000)]], None, id="made anew"),
        pytest.param([[("/a", 9), ("/b", 0)], [("/a", 1), ("/b", 2_000)]], 2.0, id="one of two"),
        pytest.param([[("/a", 0)], [("/a", 5_000)], *[[]] * 8], 5 / 9, id="seen for a second"),
        pytest.param(
            [[("/a", 9_000)], [("/a", 1_000)], [("/a", 5_000)]], 4.0, id="made anew and throttled"
        ),
        pytest.param([[], [("/a", 5_000)]], 5.0, id="new in the window"),
        pytest.param([[], [], [], [("/a", 5_000)], []], 5 / 4, id="gone at once"),
        pytest.param([[("/a", 0)], [("/a", 4_000)], None, [("/a", 90_000)]], 30.0, id="a gap"),
    ],
)
def test_throttling_that_nobody_could_measure_is_not_zero(readings, found):
    made = [
        Batch(float(at), 1e9 + at, tuple(CgroupThrottle(path, 10, 1, us) for path, us in rows),
              follows=not at or readings[at - 1] is not None)
        for at, rows in enumerate(readings) if rows is not None
    ]  # fmt: skip
    window = Window({CgroupThrottle: made})
    assert measures.measure(window).get(measures.THROTTLED) == pytest.approx(found)


def test_reclaim_is_measured_over_known_seconds():
    scanned = {0: 0, 1: 5_000, 31: 9_000_000, 32: 9_005_000, 33: 10}
    made = [
        Batch(float(at), 1e9 + at, (VmCounter("pgscan_direct", pages),), follows=at != 31)
        for at, pages in scanned.items()
    ]
    assert measures.measure(Window({VmCounter: made}))[measures.RECLAIM] == 5_000
