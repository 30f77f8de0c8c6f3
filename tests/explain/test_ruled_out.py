"""Other causes that their own counters rule out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.detect.registry import all_detectors, detector_of
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
        CgroupThrottle("/kube\x1bpods", 10 + 9 * moved, 5 + moved, 0),
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
        "CPU quota (most often throttled /kube\\x1bpods, 7 of 63 periods)",
        "packet flood (all cores: backlog dropped 7, squeezed 7 times)",
        "TCP loss (0.99 % retransmits)",
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


def tcp(sent: int, again: int, syn: int) -> TcpCounters:
    fields = dict.fromkeys(TcpCounters.__dataclass_fields__, 0)
    counted = {"out_segments": sent, "retransmitted_segments": again, "syn_retransmits": syn}
    return TcpCounters(**fields | counted)


@pytest.mark.parametrize(
    ("name", "readings", "phrase", "said"),
    [
        pytest.param(
            "tcp_loss",
            [[tcp(0, 0, 0)], [tcp(891, 39, 30)]],
            "TCP loss (1.0 % retransmits)",
            "9 of 900 TCP segments",
            id="connections that were never opened lost nothing",
        ),
        pytest.param(
            "direct_reclaim",
            [
                [VmCounter("pgscan_direct", 0), VmCounter("pgscan_anon", 0)],
                [VmCounter("pgscan_direct", 100), VmCounter("pgscan_anon", 700)],
            ],
            "direct reclaim (700 pages scanned)",
            "700 pages",
            id="tasks scan for cgroups, too",
        ),
        pytest.param(
            "page_fault_storm",
            [[VmCounter("pgfault", 0), VmCounter("pgmajfault", 0)], [VmCounter("pgfault", 9)],
             [VmCounter("pgfault", 8_000), VmCounter("pgmajfault", 600)],
             [VmCounter("pgfault", 9_000), VmCounter("pgmajfault", 900)]],
            "page faults (30 major/s)",
            "30 of them major",
            id="a reading without the counter leaves the other seconds known",
        ),
        pytest.param(
            "quota_throttling",
            [
                [CgroupThrottle("/old", 10, 1, 0)],
                [CgroupThrottle("/old", 20, 1, 0), CgroupThrottle("/new", 20, 9, 0)],
                [CgroupThrottle("/old", 30, 1, 0), CgroupThrottle("/new", 40, 9, 0)],
            ],
            "CPU quota (most often throttled /new, 9 of 20 periods)",
            "most often throttled /new, 9 of 20 periods",
            id="a new cgroup has counted from zero",
        ),
    ],
)  # fmt: skip
def test_a_phrase_gives_the_number_of_its_finding(name, readings, phrase, said):
    times = [(10.0 * at, rows) for at, rows in enumerate(readings) if rows is not None]
    window = make_window(times)
    check = detector_of(name)
    found = check.run(window)
    assert said in found.summary
    assert ruled_out([replace(found, verdict=Verdict.ABSENT)], window) == (phrase,)
