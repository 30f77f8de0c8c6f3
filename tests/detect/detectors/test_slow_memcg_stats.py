"""Measured, estimated, or no more than bounded."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.cgroups.slow_memcg_stats import detect
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus, WalkCost
from tests.support.windows import make_window


def walk(
    file: str = "memory.stat", memcgs: int = 200, estimate_s: float = 0.0, **root: float
) -> WalkCost:
    return WalkCost(file, "/a", memcgs, 0.001, estimate_s, root.get("root_s"), "")


def census(dying: int, live: int) -> CgroupCensus:
    return CgroupCensus("v1", 1, "/m", "node", dying + live, live, dying, "m", None)


def look(*rows: Row) -> Finding:
    return detect(make_window([(1.0, rows)], empty=[WalkCost]))


@pytest.mark.parametrize(
    ("seconds", "verdict", "severity"),
    [
        (0.00005, Verdict.ABSENT, Severity.INFO),
        (0.09, Verdict.ABSENT, Severity.INFO),
        (0.1, Verdict.PRESENT, Severity.INFO),
        (0.99, Verdict.PRESENT, Severity.INFO),
        (1.0, Verdict.PRESENT, Severity.WARNING),
        (4.99, Verdict.PRESENT, Severity.WARNING),
        (5.0, Verdict.PRESENT, Severity.CRITICAL),
    ],
)
def test_the_limits_hold_for_measured_and_estimated_alike(
    seconds: float, verdict: Verdict, severity: Severity
):
    for row in (walk(root_s=seconds), walk(estimate_s=seconds)):
        finding = look(row)
        assert (finding.verdict, finding.severity) == (verdict, severity)


def test_it_says_whether_it_was_measured_or_left_alone_on_purpose():
    assert "(measured)" in look(walk(root_s=0.2)).summary
    assert "read skipped" in look(walk(estimate_s=2.0)).summary


def test_a_measured_root_beats_its_own_estimate():
    assert look(walk(estimate_s=9.0, root_s=0.001)).verdict is Verdict.ABSENT


def test_the_dead_and_the_living_are_told_apart():
    assert "69,000 of 69,100 are dying" in look(walk(estimate_s=2.0), census(69_000, 100)).summary
    living = look(walk(estimate_s=2.0), census(5, 30_000)).summary
    assert "30,000 of 30,005 are live directories, not zombies" in living


def test_a_bound_alone_neither_accuses_nor_acquits():
    finding = look(walk(memcgs=1, estimate_s=2.1), census(70_000, 20))
    assert finding.verdict is Verdict.UNKNOWN
    assert "at most 2.1 s" in finding.summary


def test_a_small_bound_acquits():
    assert look(walk(memcgs=1, estimate_s=0.02), census(300, 20)).verdict is Verdict.ABSENT


def test_a_sure_slow_file_counts_though_another_is_only_bounded():
    finding = look(
        walk("memory.stat", 1, 9.0), walk("memory.numa_stat", 200, 3.0), census(70_000, 9)
    )
    assert finding.severity is Severity.WARNING
    assert "memory.numa_stat" in finding.summary


def test_a_sure_fast_file_does_not_acquit_the_bounded_one():
    finding = look(walk("memory.stat", root_s=0.0001), walk("memory.numa_stat", 1, 3.0))
    assert finding.verdict is Verdict.UNKNOWN


def test_files_that_nobody_reads_by_the_clock_are_not_judged():
    assert look(walk("lru_gen", estimate_s=60.0)).verdict is Verdict.UNKNOWN
    assert look().verdict is Verdict.UNKNOWN
