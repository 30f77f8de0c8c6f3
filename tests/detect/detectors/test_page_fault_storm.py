"""Faults that come too fast: noted by their rate, a warning where a core or a task pays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.detect.detectors.memory.page_fault_storm import detect
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.task import Process, ProcessCgroup, Thread
from tests.support.memory import FAULT, RECLAIM, Machine, sample
from tests.support.windows import EPOCH, make_window

OTHER = ("zap_pte_range", "unmap_vmas")


def seconds(number: int, machine: Machine | None = None, **each) -> Machine:
    made = machine or Machine(cores=2)
    for _ in range(number):
        made.second(**each)
    return made


def process(pid: int, minor: int, major: int = 0, **rest) -> Process:
    document = {"comm": "allocd", "start_ms": 5} | rest
    return Process(
        pid, 1, document["comm"], "R", document["start_ms"], 0, 0, 0, 1, False, minor, major
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "long", "verdict"),
    [
        (199_999, 9, "absent"),
        (200_000, 2, "present"),
        (200_000, 1, "absent"),
        (900_000, 1, "absent"),
    ],
)
def test_the_rate_is_measured_against_the_cores(rate: int, long: int, verdict: str):
    machine = seconds(long, seconds(2), pgfault=rate)
    finding = detect(seconds(2, machine).window())
    assert (finding.verdict, finding.severity) == (verdict, Severity.INFO), finding.summary


@pytest.mark.parametrize(("rate", "verdict"), [(499, "absent"), (500, "present")])
def test_major_faults_have_a_limit_of_their_own(rate: int, verdict: str):
    finding = detect(seconds(6, pgmajfault=rate, pgfault=rate).window())
    assert (finding.verdict, finding.severity) == (verdict, Severity.INFO)


def storm(kernel: float, often: int, other: int = 0, frames=FAULT) -> Machine:
    """A storm of eight seconds on core 1, which is so far in the kernel."""
    machine = seconds(8, pgfault=900_000, kernel=(3.0, kernel))
    rows = [sample(n, 1, frames, often) for n in range(8)]
    rows += [sample(n, 1, OTHER, other) for n in range(8) if other]
    return machine.add(*rows)


def test_a_core_held_by_faults_is_a_warning():
    finding = detect(storm(95.0, 80, 15).window())
    assert finding.severity is Severity.WARNING
    assert finding.entities == {"core": ("1",), "task": ("dd[77]",)}
    assert "held core 1 in the kernel for 8.0 s" in finding.summary
    assert finding.evidence[0].what == "core 1 held by page faults"
    assert finding.evidence[0].value == "8.0 s, 84 % of its samples"


def test_one_core_of_a_large_machine_held_by_faults_is_a_warning_though_the_average_is_low():
    machine = Machine(cores=96)
    shares = [1.0] * 5 + [97.0] + [1.0] * 90
    for n in range(12):
        machine.second(pgfault=600_000 if n > 3 else 900, kernel=shares if n > 3 else (0.0,) * 96)
    machine.add(*(sample(n, 5, FAULT, 70) for n in range(4, 12)))
    finding = detect(machine.window())
    assert finding.severity is Severity.WARNING
    assert finding.entities == {"core": ("5",), "task": ("dd[77]",)}
    assert (finding.start, finding.end) == (EPOCH + 4, EPOCH + 12)
    assert finding.summary.startswith("600,000 page faults a second for 8.0 s by dd[77]")


def test_a_core_held_by_faults_is_a_storm_at_any_rate_counted_or_not():
    """Under software emulation a fault takes a hundred times as long."""
    machine = seconds(8, pgfault=9_000, kernel=(3.0, 96.0))
    machine.add(*(sample(n, 1, FAULT, 80) for n in range(8)))
    slow = detect(machine.window())
    assert slow.severity is Severity.WARNING
    assert slow.summary.startswith("9,000 page faults a second for 8.0 s by dd[77]")
    blind = detect(machine.window(without=[VmCounter]))
    assert (blind.severity, blind.entities) == (slow.severity, slow.entities)
    assert blind.summary.startswith("page faults for 8.0 s by dd[77]; they held core 1")


def thread(system_ms: int) -> Thread:
    return Thread(7, 7, "allocd", "R", 5, 0, system_ms, 1)


def held(faults: int, share: float = 97.0) -> Machine:
    """A process holds core 1 for eight seconds and takes so many faults a second, all seen."""
    machine = seconds(8, pgfault=faults, kernel=(3.0, share))
    for at in range(9):
        machine.add(thread(int(10 * share) * at), process(7, faults * at), at=float(at))
    return machine


@pytest.mark.parametrize(
    ("faults", "share", "verdict"),
    [(10_000, 97.0, "present"), (9_999, 97.0, "absent"), (10_000, 60.0, "absent")],
)
def test_without_stacks_faults_of_who_held_a_core_are_noted_and_blamed_for_nothing(
    faults, share, verdict
):
    finding = detect(held(faults, share).window())
    assert (finding.verdict, finding.severity) == (verdict, Severity.INFO)
    if verdict == "present":
        assert (
            "which held core 1; only stacks can show whether its faults held it" in finding.summary
        )
        assert finding.entities == {"core": ("1",), "task": ("allocd[7]",)}
        assert (finding.start, finding.end) == (EPOCH, EPOCH + 8)


def test_where_stacks_were_taken_they_decide_and_no_rate_of_the_holder():
    machine = held(20_000).add(*(sample(n, 1, OTHER, 80) for n in range(8)))
    assert detect(machine.window()).verdict is Verdict.ABSENT


def test_cores_held_by_the_same_storm_are_all_named():
    machine = seconds(8, Machine(cores=3), pgfault=900_000, kernel=(97.0, 96.0, 95.0))
    rows = [
        sample(n, cpu, FAULT, 60 + cpu, (70 + cpu, "allocd")) for n in range(8) for cpu in (0, 2)
    ]
    finding = detect(machine.add(*rows).window())
    assert finding.entities["core"] == ("0", "2")
    assert finding.entities["task"] == ("allocd[72]", "allocd[70]")


def test_a_core_that_was_not_held_is_named_and_no_warning():
    finding = detect(storm(89.0, 80).window())
    assert finding.severity is Severity.INFO
    assert finding.entities["core"] == ("1",)


def test_a_core_held_by_something_else_is_not_blamed_on_faults():
    finding = detect(storm(98.0, 40, 41).window())
    assert finding.severity is Severity.INFO
    assert "core" not in finding.entities


def test_reclaim_inside_a_fault_is_not_a_fault_storm():
    finding = detect(storm(98.0, 90, frames=(*RECLAIM, *FAULT)).window())
    assert finding.severity is Severity.INFO
    assert "core" not in finding.entities


def test_a_core_held_for_a_moment_is_no_warning():
    machine = seconds(1, pgfault=900_000, kernel=(3.0, 99.0))
    machine = seconds(7, machine, pgfault=900_000, kernel=(3.0, 50.0))
    machine.add(*(sample(n, 1, FAULT, 50) for n in range(8)))
    assert detect(machine.window()).severity is Severity.INFO


@pytest.mark.parametrize(
    ("some", "long", "severity"), [(30, 5, "warning"), (30, 4, "info"), (9, 9, "info")]
)
def test_major_faults_are_a_warning_only_under_memory_pressure(some, long, severity):
    machine = seconds(long, pgmajfault=2000, some=some)
    finding = detect(seconds(9 - long, machine, pgmajfault=2000).window())
    assert finding.severity == severity


def test_minor_faults_under_pressure_are_another_matter():
    finding = detect(seconds(9, pgfault=900_000, some=50).window())
    assert finding.severity is Severity.INFO


def test_major_faults_under_pressure_go_before_a_larger_storm():
    machine = seconds(9, pgmajfault=700, some=50)
    finding = detect(seconds(9, machine, pgfault=3_000_000).window())
    assert finding.severity is Severity.WARNING
    assert (finding.start, finding.end) == (EPOCH, EPOCH + 9)
    assert "700 major page faults" in finding.summary


def watched(machine: Machine, *readings: tuple[float, list[Process]]) -> Machine:
    for at, rows in readings:
        machine.add(*rows, at=at)
    return machine


def test_who_took_the_faults_is_named_by_its_own_counters():
    machine = seconds(8, pgfault=900_000)
    watched(
        machine,
        (0.0, [process(7, 100), process(8, 100, comm="calm")]),
        (4.0, [process(7, 2_000_000), process(8, 500, comm="calm")]),
        (8.0, [process(7, 4_000_100), process(8, 900, comm="calm")]),
    )
    machine.add(ProcessCgroup(7, "/a", False), at=0.0)
    finding = detect(machine.window())
    assert finding.entities == {"task": ("allocd[7]",), "cgroup": ("/a",)}
    (share,) = [item for item in finding.evidence if "allocd" in item.what]
    assert share.number == pytest.approx(500_000)


def test_major_faults_are_blamed_by_major_faults():
    machine = seconds(8, pgmajfault=900)
    watched(
        machine,
        (0.0, [process(7, 0, 0), process(8, 0, 0, comm="db")]),
        (8.0, [process(7, 9_000_000, 3), process(8, 10, 7000, comm="db")]),
    )
    assert detect(machine.window()).entities["task"] == ("db[8]",)


def test_a_process_born_meanwhile_took_all_it_has_and_one_missed_before_did_not():
    machine = seconds(8, pgfault=900_000)
    watched(
        machine,
        (0.0, [process(7, 0)]),
        (8.0, [process(7, 10), process(8, 5_000_000, start_ms=3000),
               process(9, 90_000_000, start_ms=-60_000, comm="old")]),
    )  # fmt: skip
    assert detect(machine.window()).entities["task"] == ("allocd[8]",)


def test_a_reused_pid_is_another_process():
    machine = seconds(8, pgfault=900_000)
    watched(
        machine,
        (0.0, [process(7, 90_000_000, start_ms=-60_000, comm="old")]),
        (8.0, [process(7, 4_000_000, start_ms=2000, comm="new")]),
    )
    assert detect(machine.window()).entities["task"] == ("new[7]",)


def test_processes_without_fault_counters_are_not_taken_for_innocent():
    machine = seconds(8, pgfault=900_000)
    row = Process(7, 1, "old recording", "R", 5, 0, 0, 0, 1, False)
    watched(machine, (0.0, [row]), (8.0, [row]))
    assert "task" not in detect(machine.window()).entities


def test_without_the_number_of_cores_only_major_faults_are_judged():
    calm = detect(seconds(8, pgfault=90_000_000).window(without=[CoreTimes]))
    assert calm.verdict is Verdict.ABSENT
    assert "not recorded" in calm.missing[0].what
    major = detect(seconds(8, pgmajfault=9_000).window(without=[CoreTimes]))
    assert major.verdict is Verdict.PRESENT


def test_counters_that_went_back_are_no_storm():
    machine = seconds(2)
    machine.counters["pgfault"] = 3
    assert detect(seconds(2, machine).window()).verdict is Verdict.ABSENT


def test_one_reading_is_unknown():
    assert detect(Machine(cores=2).window()).verdict is Verdict.UNKNOWN


def test_without_pressure_and_stacks_a_storm_is_noted_and_says_what_would_tell():
    finding = detect(seconds(8, pgfault=900_000).window(without=[Pressure]))
    assert finding.severity is Severity.INFO
    assert finding.missing[0].grant == "sudo sexton diagnose --stacks"


def test_a_hostile_name_is_escaped():
    machine = watched(
        seconds(8, pgfault=900_000),
        (0.0, [process(7, 0, comm="\x1b[2J")]),
        (8.0, [process(7, 7_000_000, comm="\x1b[2J")]),
    )
    finding = detect(machine.window())
    assert finding.entities["task"] == ("\\x1b[2J[7]",)
    assert "\x1b" not in finding.summary


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)), min_size=2, max_size=9))
def test_any_counters_give_a_verdict(readings):
    window = make_window(
        [
            (float(at), [VmCounter("pgfault", faults), VmCounter("pgmajfault", major)])
            for at, (faults, major) in enumerate(readings)
        ]
    )
    finding = detect(window)
    assert all(item.number is None or item.number >= 0 for item in finding.evidence)
