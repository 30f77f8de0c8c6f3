"""Rivals side by side: who holds, who gives way, and what is said of both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.explain.chains import find_chains
from sexton.explain.rivals import coincide, contests, surviving, weigh
from sexton.model.chain import Link, Strength
from sexton.model.finding import Severity, Verdict
from tests.explain.making import evidence, finding

PROVEN, LIKELY, POSSIBLE = Strength.PROVEN, Strength.LIKELY, Strength.POSSIBLE


def link(cause, effect, strength=PROVEN, name="", **more):
    return Link(name or f"{cause}_{effect}", cause, effect, strength, f"{cause}: so", **more)


def known(*findings):
    return {item.id: item for item in findings}


def test_of_two_rules_between_the_same_findings_the_stronger_speaks():
    links = [link("a", "b", LIKELY, "churn"), link("a", "b", PROVEN, "timer")]
    assert [item.id for item in weigh(links, {})] == ["timer"]
    assert [item.id for item in weigh(reversed(links), {})] == ["timer"]
    even = [link("a", "b", LIKELY, "churn"), link("a", "b", LIKELY, "timer")]
    assert [item.id for item in weigh(even, {})] == ["timer"]


HELD = finding("saturated_core")
WALK = link("slow_memcg_stats", "saturated_core", LIKELY)
QUIET = [
    replace(finding(name), verdict=Verdict.ABSENT)
    for name in ("direct_reclaim", "page_fault_storm", "softirq_flood")
]


@pytest.mark.parametrize("name", ["direct_reclaim", "page_fault_storm", "softirq_flood"])
def test_a_look_alike_that_is_there_or_not_judged_leaves_it_possible(name):
    (calm,) = weigh([WALK], known(HELD, *QUIET))
    assert (calm.strength, calm.against) == (LIKELY, ())
    cases = {
        "was present in the same seconds": finding(name),
        "could not be judged": replace(finding(name), verdict=Verdict.UNKNOWN),
    }
    for words, other in cases.items():
        (doubted,) = weigh([WALK], known(HELD, *QUIET) | known(other))
        assert doubted.strength is POSSIBLE
        assert words in doubted.against[-1]


def test_a_look_alike_at_another_time_or_only_noted_changes_nothing():
    for other in (
        finding("direct_reclaim", (500.0, 510.0)),
        finding("direct_reclaim", severity=Severity.INFO),
        finding("direct_reclaim", severity=Severity.INFO, task=("kubelet[9]",)),
        replace(finding("direct_reclaim"), verdict=Verdict.NOT_APPLICABLE),
    ):
        assert weigh([WALK], known(HELD, *QUIET) | known(other)) == (WALK,)


def test_a_look_alike_of_the_same_process_need_not_be_a_problem():
    held = finding("saturated_core", task=("kubelet[2113/2140]",))
    other = finding("direct_reclaim", severity=Severity.INFO, task=("kubelet[2113]",))
    (doubted,) = weigh([WALK], known(held, *QUIET) | known(other))
    assert doubted.strength is POSSIBLE


def test_what_stacks_have_shown_is_not_doubted_by_counters():
    shown = replace(WALK, evidence=(evidence("samples", 10.0, source="perf record"),))
    proven = replace(WALK, strength=PROVEN)
    for item in (shown, proven):
        assert weigh([item], known(HELD, finding("direct_reclaim"))) == (item,)


def test_a_possible_cause_loses_its_place_and_not_its_say():
    links = [link("zombies", "core"), link("reclaim", "core", POSSIBLE, against=("too few",))]
    assert [item.cause for item in surviving(links)] == ["zombies"]
    (contest,) = contests(links, find_chains(links))
    assert contest.symptom == "core"
    told_of = [
        (rival.cause, rival.strength, rival.chosen, rival.against) for rival in contest.rivals
    ]
    assert told_of == [("zombies", PROVEN, True, ()), ("reclaim", POSSIBLE, False, ("too few",))]


def test_one_cause_is_no_contest_and_a_detour_is_no_rival():
    detour = [link("a", "b", LIKELY), link("b", "c", LIKELY), link("a", "c", LIKELY)]
    assert contests(detour, find_chains(detour)) == ()
    assert contests(detour[:1], find_chains(detour[:1])) == ()
    (contest,) = contests([*detour, link("x", "c", POSSIBLE)], find_chains(detour))
    assert [(rival.cause, rival.chosen) for rival in contest.rivals] == [("b", True), ("x", False)]


RISING = ("direct_reclaim", "memory_pressure", "quota_throttling")


def test_what_rises_together_is_a_coincidence_until_stacks_join_it():
    findings = [finding(name) for name in RISING]
    (found,) = coincide(findings, [link("memory_pressure", "direct_reclaim", POSSIBLE)])
    assert found.findings == RISING
    assert found.sentence.startswith(
        "direct reclaim, memory pressure and CPU quota throttling rose"
    )
    assert "00:01:40 UTC" in found.sentence
    assert "--stacks" in found.would_prove
    proven = [link("memory_pressure", "direct_reclaim")]
    assert coincide(findings[:2], proven) == ()
    assert len(coincide(findings, proven)) == 1


def test_reclaim_that_was_ordered_coincides_with_nothing():
    ordered = finding("direct_reclaim", evidence=[evidence("kernel samples in reclaim on request")])
    assert coincide([ordered, finding("quota_throttling")], []) == ()


def test_one_alone_or_at_another_time_is_no_coincidence():
    assert coincide([finding("direct_reclaim")], []) == ()
    apart = [finding("direct_reclaim"), finding("quota_throttling", (900.0, 950.0))]
    assert coincide(apart, []) == ()
    absent = replace(finding("quota_throttling"), verdict=Verdict.ABSENT)
    assert coincide([finding("direct_reclaim"), absent], []) == ()
    assert coincide([finding("direct_reclaim"), finding("saturated_core")], []) == ()


@pytest.mark.parametrize(("major", "expected"), [(900.0, 1), (3.0, 0), (0.0, 0)])
def test_only_faults_that_read_from_disk_are_taken_for_pressure(major, expected):
    storm = finding("page_fault_storm", evidence=[evidence("major page faults", major)])
    assert len(coincide([storm, finding("memory_pressure")], [])) == expected


def test_two_groups_at_two_times_are_two_coincidences():
    early = [finding("memory_pressure"), finding("direct_reclaim")]
    storm = finding("page_fault_storm", (500.0, 510.0), [evidence("major page faults", 900.0)])
    late = [storm, finding("quota_throttling", (505.0, 520.0))]
    assert [len(item.findings) for item in coincide([*early, *late], [])] == [2, 2]
