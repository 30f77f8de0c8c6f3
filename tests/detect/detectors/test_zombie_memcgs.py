"""Counts that matter, counts that do not, and counts that cannot be had."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.detect.detectors.cgroups.zombie_memcgs import detect
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cgroup import (
    CgroupCensus,
    CgroupDir,
    CgroupEvent,
    CgroupEventGap,
    CgroupResidual,
    CgroupStat,
    OfflineMemcg,
    WalkCost,
)
from sexton.model.rows.node import Node
from tests.support.windows import make_window


def census(dying: int | None, live: int | None = 240, **changes: object) -> CgroupCensus:
    values: dict[str, object] = {
        "hierarchy": "v1",
        "version": 1,
        "mount_point": "/sys/fs/cgroup/memory",
        "scope": "node",
        "total": None if dying is None or live is None else dying + live,
        "live": live,
        "dying": dying,
        "method": "/proc/cgroups minus directories",
        "reason": None,
    }
    return CgroupCensus(**(values | changes))  # type: ignore[arg-type]


def look(*rows: Row) -> Finding:
    return detect(make_window([(100.0, rows)]))


def evidence_text(finding: Finding) -> str:
    return " | ".join(f"{evidence.what}: {evidence.value}" for evidence in finding.evidence)


@pytest.mark.parametrize(
    ("dying", "live", "severity"),
    [
        (0, 240, None),
        (49, 3, None),
        (499, 1, None),
        (500, 250, Severity.WARNING),
        (500, 251, None),
        (4_999, 2_500, None),
        (5_000, 90_000, Severity.WARNING),
        (10_000, 1_001, Severity.WARNING),
        (10_000, 1_000, Severity.CRITICAL),
        (9_999, 1, Severity.WARNING),
        (68_440, 240, Severity.CRITICAL),
    ],
)
def test_the_limits_are_where_the_page_says(dying: int, live: int, severity: Severity | None):
    finding = look(census(dying, live))
    if severity is None:
        assert finding.verdict is Verdict.ABSENT
        assert f"{dying:,} dying / {live:,} live" in finding.summary
    else:
        assert (finding.verdict, finding.severity) == (Verdict.PRESENT, severity)


def test_no_live_directory_at_all_is_no_division_by_zero():
    assert look(census(600, 0)).severity is Severity.WARNING


def test_without_the_live_count_only_the_absolute_limit_speaks():
    assert look(census(4_999, None)).verdict is Verdict.ABSENT
    assert look(census(5_000, None)).severity is Severity.WARNING
    assert look(census(50_000, None)).severity is Severity.WARNING
    assert "unknown live" in look(census(50_000, None)).summary


def test_unknown_is_not_zero():
    finding = look(census(None, 1, scope="subtree", reason="this is a cgroup namespace"))
    assert finding.verdict is Verdict.UNKNOWN
    assert "this is a cgroup namespace" in finding.summary
    assert "nsenter -t 1 -C" in finding.missing[0].grant


def test_a_census_without_a_row_is_unknown():
    finding = detect(make_window([(1.0, [])], empty=[CgroupCensus]))
    assert finding.verdict is Verdict.UNKNOWN


def test_an_earlier_count_is_better_than_a_later_failure():
    window = make_window([(1.0, [census(3)]), (6.0, [census(None, reason="count again")])])
    assert detect(window).summary == "3 dying / 240 live memory cgroups"


def test_a_clean_subtree_says_nothing_of_the_node():
    assert look(census(3, 20, scope="subtree")).verdict is Verdict.UNKNOWN


def test_a_laden_subtree_is_reported_as_one():
    finding = look(census(3_000, 20, scope="subtree", reason="only /pod is mounted here"))
    assert finding.is_problem
    assert "in this subtree" in finding.summary
    assert "average since boot" not in evidence_text(finding)
    assert finding.missing[-1].what == "only /pod is mounted here"


def test_an_uptime_of_nothing_gives_no_average():
    """A made recording had 5e-324 s: the average was Infinity, which is no JSON."""
    for uptime_s, there in ((5e-324, False), (7200.0, True)):
        node = Node("n", "6.1", 2, "b", uptime_s, *[None] * 8)
        assert ("average since boot" in evidence_text(look(census(3000), node))) == there


def test_growing_while_few_is_told_and_is_no_problem():
    window = make_window([(0.0, [census(62, 16)]), (15.0, [census(101, 16)])])
    finding = detect(window)
    assert finding.verdict is Verdict.ABSENT
    assert "+39 in 15.0 s" in finding.summary


def test_a_backlog_that_drains_costs_no_exit_code():
    window = make_window([(0.0, [census(40_000)]), (5.0, [census(30_000)])])
    finding = detect(window)
    assert not finding.is_problem
    assert "draining by itself" in finding.summary


def test_a_heap_that_grew_is_not_draining_because_its_last_step_fell():
    counts = (100, 2_200, 2_300, 2_140)
    window = make_window([(5.0 * n, [census(dying, 6)]) for n, dying in enumerate(counts)])
    assert detect(window).is_problem
    assert "draining" not in detect(window).summary


def test_a_heap_that_falls_while_others_die_and_stay_is_not_draining():
    stay = [CgroupEvent("rmdir", n, f"/a/run-{n}", 10**9) for n in range(1, 9)]
    window = make_window([(0.0, [census(40_000)]), (10.0, [census(30_000), *stay])])
    assert detect(window).is_problem


def test_zombies_that_were_freed_in_part_are_still_a_problem():
    window = make_window(
        [(0.0, [census(68_000)]), (5.0, [census(40_000)]), (10.0, [census(40_000)])]
    )
    assert detect(window).severity is Severity.CRITICAL


def test_an_owner_that_is_only_likely_is_called_so():
    stay = [CgroupEvent("rmdir", n, f"/a/run-{n}", 10**9) for n in range(600)]
    rows: list[Row] = [census(5_000), *stay]
    for lost, words in (
        ([CgroupEventGap(9)], "600 of them likely left under /a/run-*"),
        ([], "600 of them left under /a/run-*"),
    ):
        window = make_window([(5.0, [*rows, *lost]), (10.0, [census(5_000)])], [CgroupEvent])
        assert words in detect(window).summary


def walk(estimate_s: float) -> WalkCost:
    return WalkCost("memory.numa_stat", "/a", 41, 0.003, estimate_s, None, "")


def test_four_deaths_give_no_eta_and_five_do():
    def grown(by: int) -> str:
        rows = [(0.0, [census(20_000)]), (50.0, [census(20_000 + by), walk(1.4)])]
        return evidence_text(detect(make_window(rows)))

    assert "at this rate" not in grown(4)
    assert "at this rate" in grown(5)


def test_deaths_that_are_not_yet_released_are_called_so():
    events = [CgroupEvent("rmdir", n, f"/a/run-{n}", n * 10**9) for n in range(1, 9)]
    finding = detect(
        make_window([(0.0, [census(900)]), (10.0, [census(900), *events])], [CgroupEvent])
    )
    assert "5 of 8 removals in 10.0 s, 3 more not yet released" in evidence_text(finding)


def test_owners_come_with_their_parents_first_because_the_cure_works_there():
    dead = [OfflineMemcg("/system.slice/ecs.service")] * 900 + [OfflineMemcg("/a/run-1")]
    rows = [CgroupDir(path, n, 0) for n, path in enumerate(("/", "/system.slice", "/a"), 1)]
    finding = look(census(901), *rows, *dead)
    assert finding.entities["cgroup"] == ("/system.slice", "/system.slice/ecs.service")
    assert finding.entities["unit"] == ("ecs.service",)
    assert finding.missing == ()


def test_a_traced_owner_is_named_beside_a_heap_of_older_ones():
    events = [CgroupEvent("rmdir", 1, "/system.slice/ecs.service", 10**9)]
    rows = [
        census(50_000),
        CgroupStat("/", 9, 50_000, None),
        CgroupStat("/system.slice", 9, 50_000, None),
    ]
    finding = detect(make_window([(0.0, rows), (10.0, [*rows, *events])], [CgroupEvent]))
    assert "/system.slice/ecs.service" in finding.entities["cgroup"]


def dead_in_sight(number: int, dying: int) -> Finding:
    """So many die while they are traced, of so many in all."""
    rows = [census(dying), *(CgroupDir(path, n, 0) for n, path in enumerate(("/", "/docker"), 1))]
    events = [CgroupEvent("rmdir", n, f"/docker/{n:064x}", 10**9) for n in range(1, number + 1)]
    return detect(make_window([(0.0, rows), (10.0, [*rows, *events])], [CgroupEvent]))


def test_those_that_died_before_anybody_looked_are_counted_and_given_to_nobody():
    finding = dead_in_sight(200, 1_500)
    assert "200 of them left under /docker/*" in finding.summary
    assert "(1,300 more, origin unknown)" in finding.summary
    assert "of them, origin unknown: 1,300 of 1,500" in evidence_text(finding)


@pytest.mark.parametrize(("traced", "more"), [(951, False), (950, True)])
def test_a_small_rest_is_in_the_evidence_and_not_in_the_summary(traced: int, more: bool):
    finding = dead_in_sight(traced, 1_000)
    assert ("origin unknown" in finding.summary) is more
    assert f"origin unknown: {1_000 - traced} of 1,000" in evidence_text(finding)


def test_where_all_are_named_or_nobody_is_nothing_is_said_of_a_rest():
    assert "origin unknown" not in evidence_text(dead_in_sight(900, 900))
    assert "origin unknown" not in evidence_text(look(census(2_000)))
    placed = look(census(2_000), CgroupStat("/", 9, 2_000, None), CgroupStat("/a", 9, 2_000, None))
    assert "2,000 of them likely left under /a" in placed.summary
    assert "origin unknown" not in placed.summary


def test_where_only_bytes_are_known_every_directory_is_named_for_bytes_tell_no_number():
    rows = [CgroupResidual("/demo", 8 << 20, "exact"), CgroupResidual("/cache", 300 << 20, "exact")]
    finding = look(census(2_000), *rows)
    assert "under /cache (300.0 MiB) · /demo (8.0 MiB)" in finding.summary
    assert finding.entities["cgroup"] == ("/cache", "/demo")
    bound = look(census(2_000), CgroupResidual("/demo", 8 << 20, "x (upper bound)"))
    assert "/demo (at most 8.0 MiB)" in bound.summary


def test_nobody_named_says_what_would_name_them():
    assert len(look(census(2_000)).missing) == 2
    quiet = detect(make_window([(0.0, [census(2_000)])], [CgroupEvent, OfflineMemcg]))
    assert quiet.missing[0].grant == "sexton zombies --watch"


def test_hostile_names_are_escaped_before_anybody_sees_them():
    finding = look(census(900), *[OfflineMemcg("/\x1b[2J/<script>\udcff.service")] * 900)
    text = repr(finding)
    assert "\x1b" not in text
    assert "\udcff" not in text
    assert "\\x1b[" in finding.summary


@given(
    dying=st.none() | st.integers(0, 200_000),
    live=st.none() | st.integers(0, 200_000),
    later=st.none() | st.integers(0, 200_000),
)
def test_any_numbers_give_a_verdict(dying: int | None, live: int | None, later: int | None):
    finding = detect(make_window([(0.0, [census(dying, live)]), (5.0, [census(later, live)])]))
    if finding.is_problem:
        assert (later if later is not None else dying or 0) >= 500
