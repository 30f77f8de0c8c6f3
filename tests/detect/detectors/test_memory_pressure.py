"""Whether the machine stands still for memory; kswapd at work is no illness."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.detect.detectors.memory.memory_pressure import detect
from sexton.explain.diagnosis import ruled_out
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.window import SourceState, Window
from tests.support.memory import KSWAPD, RECLAIM, Machine, sample
from tests.support.windows import EPOCH, make_window


def seconds(number: int, machine: Machine | None = None, **each: float) -> Machine:
    made = machine or Machine()
    for _ in range(number):
        made.second(**each)
    return made


@pytest.mark.parametrize(
    ("some", "full", "long", "verdict", "severity"),
    [
        (4.9, 0.0, 20, "absent", "info"),
        (5.0, 0.0, 1, "absent", "info"),
        (5.0, 0.0, 2, "present", "info"),
        (9.9, 4.9, 20, "present", "info"),
        (10.0, 0.0, 4, "present", "info"),
        (10.0, 0.0, 5, "present", "warning"),
        (9.9, 5.0, 5, "present", "warning"),
        (60.0, 39.9, 20, "present", "warning"),
        (60.0, 40.0, 8, "present", "warning"),
        (60.0, 40.0, 10, "present", "critical"),
    ],
)
def test_the_limits_and_their_edges(
    some: float, full: float, long: int, verdict: str, severity: str
):
    machine = seconds(long, seconds(2), some=some, full=full)
    finding = detect(seconds(2, machine).window())
    assert (finding.verdict, finding.severity) == (verdict, severity), finding.summary


def over_a_gap(some: float, full: float, scanned: int = 100) -> Window:
    """Half a minute, a gap of 100 s, and half a minute again."""
    machine = seconds(30, pgscan_kswapd=100, pgscan_file=100, some=1, full=0.5)
    machine.second(seconds=100, pgscan_kswapd=scanned, pgscan_file=scanned, some=some, full=full)
    made = seconds(30, machine, pgscan_kswapd=100, pgscan_file=100, some=1, full=0.5).window()
    kinds = (Pressure, VmCounter)
    read = {kind: made.batches(kind) or () for kind in kinds}
    return Window({kind: [replace(batch, follows=batch.mono_s != 130) for batch in read[kind]]
                   for kind in kinds})  # fmt: skip


def test_tasks_that_waited_while_nothing_was_read_waited():
    finding = detect(over_a_gap(90, 80, 9_000))
    assert finding.summary == "some task waited for memory 90 % of 1 min 40 s, all tasks 80 %"
    assert finding.severity is Severity.CRITICAL
    assert finding.start == pytest.approx(EPOCH + 30)


@pytest.mark.parametrize(("some", "hides"), [(0.4, False), (0.6, True)])
def test_a_calm_mean_over_a_gap_is_calm_unless_it_may_hide_a_stretch(some: float, hides: bool):
    """Half a second of 100 is 5 s at the limit of 10 %."""
    window = over_a_gap(some, 0)
    finding = detect(window)
    assert finding.verdict is Verdict.ABSENT
    assert any("in 1 min 40 s without" in lack.what for lack in finding.missing) is hides
    assert bool(ruled_out([finding], window)) is not hides


def test_shares_and_rates_of_the_window_are_of_the_seconds_that_were_read():
    window = over_a_gap(0.1, 0.05, 260)
    finding = detect(window)
    assert [(item.number, item.unit) for item in finding.evidence[:3]] == [
        (pytest.approx(1.0), "% of 1 min 0 s"),
        (pytest.approx(0.5), "% of 1 min 0 s"),
        (pytest.approx(100.0), "pages/s over 1 min 0 s"),
    ]
    assert ruled_out([finding], window) == ("memory pressure (1.0 %)",)


def test_kswapd_at_work_is_shown_and_turns_nothing():
    finding = detect(seconds(9, pgscan_kswapd=200_000, pgscan_file=200_000, some=2.0).window())
    assert finding.verdict is Verdict.ABSENT
    numbers = {item.what: item.number for item in finding.evidence}
    assert numbers["pages scanned by kswapd"] == pytest.approx(200_000)
    assert numbers["free pages"] == 90_000


def test_the_worst_stretch_is_the_one_with_most_time_lost():
    machine = seconds(6, some=80)
    machine = seconds(20, seconds(3, machine), some=30)
    finding = detect(seconds(2, machine).window())
    assert (finding.start, finding.end) == (EPOCH + 9, EPOCH + 29)
    assert "30 % of 20.0 s" in finding.summary


def test_counters_are_those_of_the_worst_stretch():
    machine = seconds(10, pgscan_kswapd=7)
    machine = seconds(8, machine, some=50, workingset_refault_file=40_000)
    finding = detect(seconds(10, machine).window())
    numbers = {item.what: item.number for item in finding.evidence}
    assert numbers["pages read back after eviction"] == pytest.approx(40_000)
    assert "pages scanned by kswapd" not in numbers


@pytest.mark.parametrize(
    ("machines", "full", "severity"),
    [(0, 0, "info"), (1000, 0, "info"), (1200, 0, "warning"), (0, 60, "warning")],
)
def test_what_only_cgroups_at_their_limits_suffer_weighs_less(machines, full, severity):
    machine = seconds(12, some=70, full=full, pgscan_file=10_000 + machines, pgscan_kswapd=machines)
    finding = detect(machine.window())
    assert finding.severity == severity
    assert ("the machine itself has enough memory" in finding.summary) is (machines < 1200)


def test_who_frees_memory_meanwhile_is_named_kswapd_among_them():
    machine = seconds(8, some=50)
    machine.add(sample(3, 1, KSWAPD, 60, (61, "kswapd0")), sample(4, 0, RECLAIM, 30))
    finding = detect(machine.window())
    assert finding.entities == {"task": ("kswapd0[61]", "dd[77]"), "core": ("1", "0")}


def test_a_kill_at_a_limit_is_no_pressure():
    """Kills are `oom_kills`."""
    assert detect(seconds(1, seconds(4), oom_kill=2).window()).verdict is Verdict.ABSENT


def without_psi(machine: Machine) -> Window:
    window = machine.window(without=[Pressure])
    grant = "boot with psi=1 on a kernel built with CONFIG_PSI=y"
    window.states["procfs.pressure"] = SourceState(
        "procfs.pressure", "/proc/pressure/*", "absent", "off", grant
    )
    return window


def test_without_psi_no_reclaim_means_no_waiting():
    finding = detect(without_psi(seconds(5, pgfault=90_000)))
    assert finding.verdict is Verdict.ABSENT
    assert "psi=1" in finding.missing[0].grant


@pytest.mark.parametrize("sign", ["pgscan_kswapd", "workingset_refault_file", "pswpin"])
def test_without_psi_any_reclaim_makes_it_unknown(sign: str):
    finding = detect(without_psi(seconds(5, **{sign: 3.0})))
    assert finding.verdict is Verdict.UNKNOWN
    assert "15 pages" in finding.summary
    assert "psi=1" in finding.missing[0].grant


def test_counters_without_reclaim_in_them_prove_nothing():
    finding = detect(without_psi(seconds(5, Machine({"pgfault": 1}))))
    assert finding.verdict is Verdict.UNKNOWN


def test_nothing_read_at_all_is_unknown_for_both_reasons():
    finding = detect(make_window([(0.0, [])]))
    assert finding.verdict is Verdict.UNKNOWN
    assert len(finding.missing) == 2


def test_one_reading_is_unknown_and_says_how_to_ask_again():
    finding = detect(Machine().window())
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.missing[0].grant == "sexton diagnose --seconds 10"


@pytest.mark.parametrize(("long", "some", "full"), [(8, 50, 0), (12, 70, 60)])
def test_pressure_of_who_knows_whom_is_noted_and_says_what_it_lacks(long, some, full):
    finding = detect(seconds(long, some=some, full=full).window(without=[VmCounter]))
    assert finding.verdict is Verdict.PRESENT
    assert finding.severity is Severity.INFO, "it may have been one cgroup alone"
    assert "is unknown" in finding.summary
    assert finding.missing


@pytest.mark.parametrize(
    ("frames", "often", "severity"),
    [
        (("shrink_node", "do_try_to_free_pages", "try_to_free_pages"), 20, "critical"),
        (KSWAPD, 20, "critical"),
        (KSWAPD, 19, "info"),
        (RECLAIM, 90, "info"),
    ],
)
def test_without_counters_stacks_tell_whether_the_machine_is_short(frames, often, severity):
    machine = seconds(12, some=70, full=60).add(sample(5, 0, frames, often))
    finding = detect(machine.window(without=[VmCounter]))
    assert finding.severity == severity
    assert ("is unknown" in finding.summary) is (severity == "info")


def test_another_resources_pressure_is_not_the_memorys():
    rows = [
        (float(at), [Pressure("io", "some", 0, 0, 0, 900_000 * at), *psi(at)]) for at in range(9)
    ]
    assert detect(make_window(rows)).verdict is Verdict.ABSENT


def psi(at: int) -> list[Pressure]:
    return [Pressure("memory", "some", 0, 0, 0, 10 * at)]  # a kernel that tells of no "full"


def test_a_total_that_went_back_is_no_stall():
    machine = seconds(3, some=50)
    machine.some_us = 10
    finding = detect(seconds(3, machine).window())
    assert finding.severity is Severity.INFO


@given(
    st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.booleans()),
        min_size=1,
        max_size=10,
    )
)
def test_any_totals_give_a_verdict(readings):
    rows = [
        (
            float(at),
            [Pressure("memory", "some", 0, 0, 0, some)]
            + [Pressure("memory", "full", 0, 0, 0, full)] * value,
        )
        for at, (some, full, value) in enumerate(readings)
    ]
    finding = detect(make_window(rows))
    assert finding.summary
    assert all(item.number is None or item.number >= 0 for item in finding.evidence)
