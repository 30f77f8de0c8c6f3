"""Tasks that free memory themselves: noted by the counters, a warning where it cost them time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.detect.detectors.memory.direct_reclaim import detect
from sexton.detect.registry import all_detectors
from sexton.explain.diagnosis import ruled_out
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.task import ProcessCgroup
from sexton.model.window import Batch, Window
from tests.support.memory import KSWAPD, RECLAIM, VMSTAT, Machine, sample
from tests.support.windows import EPOCH, make_window


def seconds(number: int, machine: Machine | None = None, **each: float) -> Machine:
    made = machine or Machine()
    for _ in range(number):
        made.second(**each)
    return made


def evidence(finding, what: str) -> float | None:
    (found,) = [item.number for item in finding.evidence if what in item.what]
    return found


@pytest.mark.parametrize(("rate", "verdict"), [(999, "absent"), (1000, "present")])
def test_the_rate_from_which_it_is_worth_a_line(rate: int, verdict: str):
    finding = detect(seconds(4, pgscan_direct=rate, pgscan_file=rate).window())
    assert (finding.verdict, finding.severity) == (verdict, Severity.INFO)
    assert evidence(finding, "pages scanned") == pytest.approx(rate)


def test_a_cgroups_reclaim_is_what_no_other_scanner_did():
    moved = {"pgscan_kswapd": 5000, "pgscan_direct": 700, "pgscan_khugepaged": 40}
    total = sum(moved.values()) + 2260
    finding = detect(seconds(4, pgscan_anon=1000, pgscan_file=total - 1000, **moved).window())
    assert evidence(finding, "pages scanned") == pytest.approx(2960)
    assert "(700 for the machine, 2,260 for cgroups)" in finding.evidence[0].value


def test_kswapd_is_no_task():
    finding = detect(seconds(5, pgscan_kswapd=90_000, pgscan_file=90_000, some=30).window())
    assert finding.verdict is Verdict.ABSENT
    assert finding.summary == "no direct reclaim"


def test_counters_that_lag_behind_their_parts_are_not_negative():
    finding = detect(seconds(3, pgscan_kswapd=90_000, pgscan_file=89_990).window())
    assert evidence(finding, "pages scanned") == 0


@pytest.mark.parametrize(
    ("some", "long", "severity"),
    [(9.9, 8, "info"), (10.0, 8, "warning"), (90.0, 4, "info"), (90.0, 5, "warning")],
)
def test_a_warning_needs_tasks_that_wait_long_enough(some: float, long: int, severity: str):
    machine = seconds(long, pgscan_file=20_000, some=some)
    finding = detect(seconds(3, machine, pgscan_file=20_000).window())
    assert finding.severity == severity


def test_a_stall_at_another_time_is_another_matter():
    machine = seconds(8, pgscan_file=20_000)
    finding = detect(seconds(8, machine, some=60).window())
    assert finding.severity is Severity.INFO
    assert (finding.start, finding.end) == (EPOCH, EPOCH + 8)


def test_the_stretch_that_stalled_is_told_and_not_the_larger_one():
    machine = seconds(6, pgscan_file=900_000)
    machine = seconds(2, machine)
    machine = seconds(6, machine, pgscan_file=2_000, some=50)
    finding = detect(seconds(2, machine).window())
    assert (finding.start, finding.end) == (EPOCH + 8, EPOCH + 14)
    assert "2,000 pages/s" in finding.summary
    assert "50 % of the time" in finding.summary


def test_of_stretches_that_stalled_nobody_the_largest_is_told():
    machine = seconds(2, pgscan_file=2_000)
    machine = seconds(3, seconds(1, machine), pgscan_file=50_000)
    finding = detect(seconds(2, seconds(1, machine), pgscan_file=3_000).window())
    assert (finding.start, finding.end) == (EPOCH + 3, EPOCH + 6)


def test_stacks_name_thread_core_and_cgroup():
    machine = seconds(5, pgscan_file=20_000)
    machine.add(ProcessCgroup(77, "/a/b", False), ProcessCgroup(9, "/c", False), at=0.5)
    machine.add(*(sample(n, 1, RECLAIM, 25) for n in range(5)), sample(2, 0, KSWAPD, 90))
    finding = detect(machine.window())
    assert finding.severity is Severity.WARNING
    assert finding.entities == {"task": ("dd[77]",), "core": ("1",), "cgroup": ("/a/b",)}
    assert not finding.missing


@pytest.mark.parametrize(
    ("caught", "often", "severity"), [(1, 60, "info"), (2, 20, "warning"), (9, 19, "info")]
)
def test_a_thread_must_be_caught_for_two_seconds(caught: int, often: int, severity: str):
    machine = seconds(9, pgscan_file=20_000)
    machine.add(*(sample(n, n % 2, RECLAIM, often) for n in range(caught)))
    assert detect(machine.window()).severity == severity


def test_stacks_alone_show_what_no_counter_counts():
    machine = seconds(8).add(*(sample(n, 3, RECLAIM, 40) for n in range(2, 5)))
    finding = detect(machine.window())
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.WARNING)
    assert (finding.start, finding.end) == (EPOCH + 2, EPOCH + 5)
    assert finding.entities["core"] == ("3",)


ORDERED = ("mem_cgroup_iter", "shrink_node", "try_to_free_mem_cgroup_pages", "memory_reclaim")


@pytest.mark.parametrize(
    "order", ["mem_cgroup_force_empty_write", "memory_reclaim", "user_proactive_reclaim.isra.0",
              "memory_high_write", "mem_cgroup_resize_max"]
)  # fmt: skip
@pytest.mark.parametrize("scanned", [0, 20_000])
def test_reclaim_that_somebody_ordered_is_noted_and_no_warning(order: str, scanned: int):
    machine = seconds(9, pgscan_file=scanned)
    machine.add(*(sample(n, 1, (*ORDERED[:-1], order), 90, (9, "reaper")) for n in range(9)))
    finding = detect(machine.window())
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)
    assert "reaper[9] was freeing memory on request" in finding.summary
    assert "for 9 seconds; no task had to wait for it" in finding.summary
    assert finding.entities == {"task": ("reaper[9]",), "core": ("1",)}


def test_an_order_hides_nobody_who_had_to_reclaim_at_another_time():
    machine = seconds(5, pgscan_file=900_000)
    machine = seconds(5, seconds(2, machine), pgscan_file=20_000)
    orders = [sample(n, 1, ORDERED, 90, (9, "reaper")) for n in range(5)]
    machine.add(*orders, *(sample(n, 0, RECLAIM, 40) for n in range(7, 12)))
    finding = detect(machine.window())
    assert finding.severity is Severity.WARNING
    assert (finding.start, finding.end) == (EPOCH + 7, EPOCH + 12)
    assert finding.entities["task"] == ("dd[77]",)


def test_who_had_to_reclaim_beside_an_order_is_told_of():
    machine = seconds(8, pgscan_file=90_000)
    orders = [sample(n, 1, ORDERED, 30, (9, "reaper")) for n in range(8)]
    machine.add(*orders, *(sample(n, 0, RECLAIM, 60) for n in range(8)))
    finding = detect(machine.window())
    assert finding.severity is Severity.WARNING
    assert finding.entities["task"] == ("dd[77]",)


def test_without_stacks_nobody_can_tell_an_order_from_a_need():
    finding = detect(seconds(9, pgscan_file=20_000).window())
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)
    assert "no task is seen to stall" in finding.summary


def test_a_handful_of_samples_is_no_finding_and_is_shown():
    finding = detect(seconds(8).add(sample(2, 0, RECLAIM, 19)).window())
    assert finding.verdict is Verdict.ABSENT
    assert any("19 of 19" in item.value for item in finding.evidence)


def test_who_was_caught_in_the_stretch_comes_before_those_of_other_times():
    machine = seconds(4)
    machine = seconds(4, machine, pgscan_file=20_000)
    machine.add(sample(1, 0, RECLAIM, 200, (5, "early")), sample(6, 1, RECLAIM, 30))
    finding = detect(machine.window())
    assert finding.entities == {"task": ("dd[77]", "early[5]"), "core": ("1", "0")}
    assert "in part by dd[77]" in finding.summary
    assert "early" not in finding.summary


def test_without_psi_and_stacks_it_is_noted_and_says_what_would_tell():
    finding = detect(seconds(8, pgscan_file=90_000, some=80).window(without=[Pressure]))
    assert finding.severity is Severity.INFO
    assert "not recorded" in finding.missing[0].what
    assert finding.missing[1].grant == "sudo sexton diagnose --stacks"


def test_one_reading_has_no_rate():
    finding = detect(Machine().window())
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.missing[0].grant == "sexton diagnose --seconds 10"


def test_counters_without_direct_reclaim_are_unknown_and_not_zero():
    finding = detect(seconds(4, Machine({"nr_free_pages": 5, "pgfault": 9})).window())
    assert finding.verdict is Verdict.UNKNOWN
    assert "does not count direct reclaim" in finding.summary


def test_a_kernel_without_a_cgroups_count_says_so():
    old = {"pgscan_direct_normal": 5, "pgscan_direct_dma": 0, "pgscan_direct_throttle": 9}
    finding = detect(seconds(4, Machine(old), pgscan_direct_throttle=9000).window())
    assert finding.verdict is Verdict.ABSENT
    assert "cgroups at their limit" in finding.missing[0].what


def test_counters_that_went_back_are_no_burst():
    machine = seconds(2, pgscan_file=100)
    machine.counters["pgscan_file"] = 50
    assert detect(seconds(2, machine).window()).verdict is Verdict.ABSENT


def test_what_was_scanned_between_readings_that_are_not_here_counts_as_a_mean():
    rows = [
        tuple(VmCounter(name, value) for name, value in (VMSTAT | {"pgscan_file": number}).items())
        for number in (90_000, 90_001, 990_000, 990_001)
    ]

    def over(gap_s: int) -> Window:
        times = (0, 1, 1 + gap_s, 2 + gap_s)
        read = [Batch(at, EPOCH + at, row) for at, row in zip(times, rows, strict=True)]
        return Window({VmCounter: [*read[:2], replace(read[2], follows=False), read[3]]})

    assert detect(over(59)).verdict is Verdict.PRESENT
    hidden = detect(over(5900))
    assert hidden.verdict is Verdict.ABSENT
    assert "without a reading" in hidden.missing[-1].what
    assert ruled_out([hidden], over(5900)) == ()


def test_a_hostile_name_is_escaped():
    machine = seconds(4, pgscan_file=20_000)
    machine.add(sample(1, 0, RECLAIM, 50, (9, "\x1b[2J\n")))
    finding = detect(machine.window())
    assert finding.entities["task"] == ("\\x1b[2J\\n[9]",)
    assert "\x1b" not in finding.summary


def test_what_was_never_read_is_unknown_with_a_remedy():
    (mine,) = [detector for detector in all_detectors() if detector.id == "direct_reclaim"]
    finding = mine.run(make_window([(0.0, [])]))
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.missing[0].grant


@given(
    st.lists(
        st.dictionaries(st.sampled_from(sorted(VMSTAT)), st.integers(0, 10**7)),
        min_size=2,
        max_size=8,
    )
)
def test_any_counters_give_a_verdict_with_numbers_that_are_not_negative(readings):
    window = make_window(
        [
            (float(at), [VmCounter(name, value) for name, value in counters.items()])
            for at, counters in enumerate(readings)
        ],
        empty=[VmCounter],
    )
    finding = detect(window)
    assert all(item.number is None or item.number >= 0 for item in finding.evidence)
    if finding.start is not None and finding.end is not None:
        assert finding.start < finding.end
