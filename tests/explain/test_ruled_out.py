"""Other causes that their own counters rule out."""

from __future__ import annotations

from dataclasses import replace

from sexton.detect.registry import all_detectors
from sexton.explain.diagnosis import ruled_out
from sexton.model.finding import Verdict
from sexton.model.rows.cgroup import CgroupThrottle
from sexton.model.rows.cpu import SoftnetCpu
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.net import TcpCounters
from tests.explain.making import finding
from tests.support.windows import make_window


def rows(moved: int) -> list:
    tcp = dict.fromkeys(
        ("established_resets", "attempt_fails", "timeouts", "aborts_on_timeout"), 0
    ) | dict.fromkeys(("lost_retransmits", "listen_drops", "in_segments"), 0)
    return [
        VmCounter("pgscan_direct", 100 + moved),
        VmCounter("pgmajfault", 50 + 10 * moved),
        CgroupThrottle("/kube\x1bpods", 10, 5 + moved, 0),
        SoftnetCpu(0, 1, 3 + moved, 4 + moved, None, None, None),
        Pressure("memory", "some", 0.0, 0.0, 0.0, 1000 + 10_000 * moved),
        TcpCounters(out_segments=1000 + 100 * moved, retransmitted_segments=10 + moved, **tcp),
    ]


def absent(window, present=(), verdict=Verdict.ABSENT):
    """What is ruled out where no detector but those found anything."""
    names = [detector.id for detector in all_detectors()]
    findings = [
        replace(finding(name), verdict=Verdict.PRESENT if name in present else verdict)
        for name in names
    ]
    return ruled_out(findings, window)


def test_a_cause_whose_counters_did_not_move_is_ruled_out():
    said = absent(make_window([(0.0, rows(0)), (10.0, rows(0))]))
    assert said == (
        "direct reclaim",
        "memory pressure (0.0 %)",
        "page faults (0 major/s)",
        "CPU quota",
        "packet flood",
    )


def test_a_cause_whose_counters_moved_a_little_is_listed_with_the_numbers():
    said = absent(make_window([(0.0, rows(0)), (10.0, rows(7))]))
    assert said == (
        "direct reclaim (7 pages scanned)",
        "memory pressure (0.7 %)",
        "page faults (7 major/s)",
        "CPU quota (/kube\\x1bpods throttled 7 times)",
        "packet flood (backlog dropped 7, squeezed 7 times)",
        "TCP loss (1.0 % retransmits)",
    )


def test_counters_that_were_not_read_twice_rule_out_nothing():
    assert absent(make_window([(0.0, rows(0))])) == ()
    assert absent(make_window([])) == ()


def test_a_counter_that_went_backwards_rules_out_nothing():
    said = absent(make_window([(0.0, rows(9)), (10.0, rows(0))]))
    assert not any(
        "reclaim" in moment or "pressure" in moment or "faults" in moment for moment in said
    )


def test_what_was_found_or_could_not_be_judged_is_not_ruled_out():
    window = make_window([(0.0, rows(0)), (10.0, rows(7))])
    said = absent(window, {"softirq_flood", "tcp_loss"})
    assert not any("flood" in moment or "TCP" in moment for moment in said)
    assert len(said) == len(absent(window)) - 2
    assert absent(window, verdict=Verdict.UNKNOWN) == ()
