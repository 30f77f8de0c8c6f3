"""Several cores that flush cgroup statistics at once: only stacks can show it."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.cgroups.rstat_contention import detect
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.trace import StackCount
from tests.support.memory import FLUSH, SPIN, Machine, sample
from tests.support.windows import EPOCH, make_window

CALM = (5.0, 5.0, 5.0)
HELD = (95.0, 95.0, 5.0)


def machine(number: int, kernel: tuple[float, ...]) -> Machine:
    made = Machine(cores=len(kernel))
    for _ in range(number):
        made.second(kernel=kernel)
    return made


def test_two_cores_held_by_it_are_a_warning():
    made = machine(6, HELD)
    made.add(*(sample(n, cpu, SPIN, 40, (cpu, "agent")) for n in range(6) for cpu in (0, 1)))
    finding = detect(made.window())
    assert finding.severity is Severity.WARNING
    assert finding.entities == {"core": ("0", "1"), "task": ("agent[0]", "agent[1]")}
    (spin,) = [item.number for item in finding.evidence if "waiting for the lock" in item.what]
    assert spin == 100


def test_one_of_them_held_by_something_else_is_no_warning():
    rows = [sample(n, cpu, FLUSH, 40) for n in range(6) for cpu in (0, 1)]
    rows += [sample(n, 1, ("vfs_read",), 41) for n in range(6)]
    made = machine(6, HELD).add(*rows)
    finding = detect(made.window())
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)
    assert finding.entities["core"] == ("0",)


def test_two_that_flush_and_are_not_held_are_noted():
    made = machine(6, CALM)
    made.add(*(sample(n, cpu, FLUSH, 40) for n in range(6) for cpu in (0, 1)))
    finding = detect(made.window())
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([(n, 0, 90) for n in range(9)], "absent"),  # one core alone
        ([(n, n % 2, 90) for n in range(9)], "absent"),  # never in the same second
        ([(1, 0, 90), (1, 1, 90)], "absent"),  # for one second
        ([(n, cpu, 9) for n in range(9) for cpu in (0, 1)], "absent"),  # too little
        ([(n, cpu, 10) for n in (1, 2) for cpu in (0, 1)], "present"),
        ([(n, cpu, 50) for n in (1, 3, 5) for cpu in (0, 1)], "absent"),  # not in a row
    ],
)
def test_it_takes_two_cores_in_the_same_seconds(rows, verdict: str):
    made = machine(9, CALM).add(*(sample(second, cpu, FLUSH, n) for second, cpu, n in rows))
    assert detect(made.window()).verdict == verdict


def test_the_stretch_with_most_samples_is_told():
    made = machine(20, CALM)
    rows = [sample(n, cpu, FLUSH, 12) for n in range(2, 8) for cpu in (0, 1)]
    rows += [sample(n, cpu, FLUSH, 60) for n in range(12, 15) for cpu in (0, 2)]
    finding = detect(made.add(*rows).window())
    assert (finding.start, finding.end) == (EPOCH + 12, EPOCH + 15)
    assert finding.entities["core"] == ("0", "2")


def test_stacks_without_a_flush_in_them_are_an_answer():
    finding = detect(machine(5, HELD).add(sample(1, 0, ("vfs_read",), 90)).window())
    assert finding.verdict is Verdict.ABSENT
    assert finding.evidence[0].value == "0 of 90"


def test_updating_a_counter_is_not_flushing():
    made = machine(5, HELD)
    rows = [
        sample(n, c, ("cgroup_rstat_updated", "try_charge"), 50) for n in range(5) for c in (0, 1)
    ]
    assert detect(made.add(*rows).window()).verdict is Verdict.ABSENT


@pytest.mark.parametrize(
    ("kernel", "verdict"),
    [((99.0, 49.0), "absent"), ((99.0, 50.0), "unknown"), ((60.0, 70.0, 5.0), "unknown")],
)
def test_without_stacks_two_busy_cores_are_unknown_and_fewer_cannot_fight(kernel, verdict: str):
    finding = detect(machine(5, kernel).window())
    assert finding.verdict == verdict
    assert "--stacks" in finding.missing[0].grant


def test_without_stacks_two_cores_busy_one_after_the_other_cannot_fight():
    made = Machine(cores=2)
    for n in range(8):
        made.second(kernel=(99.0, 3.0) if n < 4 else (3.0, 99.0))
    assert detect(made.window()).verdict is Verdict.ABSENT


def test_without_stacks_and_core_times_it_is_unknown():
    finding = detect(make_window([(0.0, [])]))
    assert finding.verdict is Verdict.UNKNOWN
    assert "--stacks" in finding.missing[0].grant


def test_one_reading_of_the_cores_is_unknown():
    assert detect(Machine(cores=4).window()).verdict is Verdict.UNKNOWN


def test_a_machine_with_one_core_has_nobody_to_fight_with():
    made = machine(4, (99.0,)).add(*(sample(n, 0, FLUSH, 90) for n in range(4)))
    assert detect(made.window()).verdict is Verdict.NOT_APPLICABLE


def test_a_core_that_came_and_went_breaks_nothing():
    made = machine(4, HELD)
    made.cores.append([1, 1, 1])
    made.second(kernel=HELD).cores.pop()
    assert detect(made.second(kernel=HELD).window()).verdict is Verdict.UNKNOWN


def test_a_hostile_name_is_escaped():
    made = machine(4, HELD)
    rows = [StackCount(n, c, 9, 9, "\x1b]0;", FLUSH, 50) for n in range(4) for c in (0, 1)]
    finding = detect(made.add(*rows).window())
    assert "\x1b" not in finding.summary
