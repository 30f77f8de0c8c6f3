"""Lockups that the kernel's own watchdogs logged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sexton.detect.detectors.cpu.soft_lockups import detect
from sexton.detect.registry import all_detectors
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.rows.event import KernelEvent
from tests.support.log import events, log
from tests.support.windows import EPOCH, make_window

NOW = 864_000.0
SOFT = "watchdog: BUG: soft lockup - CPU#{cpu} stuck for {s}s! [{comm}:2113]"
RCU = [
    "rcu: INFO: rcu_sched self-detected stall on CPU",
    "rcu: \t4-....: (5249 ticks this GP) idle=1b2/1/0x4000000000000000 softirq=1/1 fqs=1",
]


def soft(cpu: int = 5, s: int = 23, comm: str = "kubelet") -> str:
    return SOFT.format(cpu=cpu, s=s, comm=comm)


def run(found: Sequence[KernelEvent], oldest_s: float = 0.0, lost: int = 0) -> Finding:
    return detect(make_window([(NOW, [log(oldest_s, lost), *found])]))


def test_a_lockup_of_today_is_critical_and_names_core_task_and_time():
    finding = run(events([soft()], NOW - 7200))
    assert finding.severity is Severity.CRITICAL
    assert finding.summary == "1 soft lockup of core 5 for 23.0 s in kubelet[2113], 2 h 0 min ago"
    assert finding.entities == {"core": ("5",), "task": ("kubelet[2113]",)}
    assert finding.start == pytest.approx(EPOCH + NOW - 7200 - 23)
    assert finding.end == pytest.approx(EPOCH + NOW - 7200)


def test_an_older_one_is_only_noted():
    finding = run(events([soft()], NOW - 90_000))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)


def test_an_undated_one_is_a_warning():
    finding = run(events([soft()], None))
    assert finding.severity is Severity.WARNING
    assert "at an unknown time" in finding.summary


def test_a_watchdog_that_repeats_itself_tells_of_one_stall_with_its_longest_time():
    found = [
        event
        for turn, s in enumerate((22, 48, 74))
        for event in events([soft(s=s)], NOW - 600 + 26 * turn)
    ]
    finding = run(found)
    assert len(finding.evidence) == 1
    assert finding.evidence[0].number == 74


def test_two_cores_are_two_lockups_and_the_worst_leads():
    found = [*events([soft(5, 23)], NOW - 600), *events([soft(9, 40, "x")], NOW - 599)]
    finding = run(found)
    assert "2 lockups or stalls in 24 h; the worst a soft lockup of core 9" in finding.summary
    assert set(finding.entities["core"]) == {"5", "9"}


def test_old_ones_do_not_mix_with_those_of_today():
    found = [*events([soft(9)], NOW - 200_000), *events([soft(5)], NOW - 60)]
    assert run(found).entities["core"] == ("5",)


def test_an_rcu_stall_takes_its_core_from_the_line_below():
    finding = run(events(RCU, NOW - 60))
    assert "1 RCU stall of core 4" in finding.summary
    assert finding.entities["core"] == ("4",)


def test_a_hard_lockup_is_called_so():
    finding = run(events(["watchdog: Watchdog detected hard LOCKUP on cpu 27"], NOW - 60))
    assert "1 hard lockup of core 27" in finding.summary


def test_a_hostile_name_is_escaped():
    finding = run(events([soft(comm="a\x1b[2J")], NOW - 60))
    assert "\x1b" not in finding.summary
    assert finding.entities["task"] == ("a\\x1b[2J[2113]",)


@pytest.mark.parametrize(
    ("oldest_s", "lost", "words"),
    [
        (0.0, 0, "since boot"),
        (NOW - 5400, 0, "in the last 1 h 30 min"),
        (0.0, 12, "in the last 10 d 0 h"),
    ],
)
def test_a_quiet_log_says_how_far_back_it_reaches(oldest_s, lost, words):
    finding = run([], oldest_s, lost)
    assert finding.verdict is Verdict.ABSENT
    assert finding.summary == f"0 lockups or RCU stalls {words}"
    assert ("12 records lost" in finding.evidence[0].wrong_if) == (lost == 12)


def test_other_families_are_not_lockups():
    hung = "INFO: task jbd2/vda1-8:245 blocked for more than 120 seconds."
    assert run(events([hung], NOW - 60)).verdict is Verdict.ABSENT


def test_a_log_that_was_not_read_is_unknown():
    (detector,) = [check for check in all_detectors() if check.id == "soft_lockups"]
    assert detector.run(make_window([])).verdict is Verdict.UNKNOWN
