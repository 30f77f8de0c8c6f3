"""The verdict on a screen: rivals, coincidences, and few lines where nothing is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.explain.diagnosis import diagnose
from sexton.model.chain import Chain, Coincidence, Contest, Link, Rival, Strength
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.surface.reports.telling import untold
from sexton.surface.reports.verdict import verdict_text
from tests.support.incident import incident

SICK = diagnose(incident())
HEALTHY = diagnose(incident(zombies=False, burning=False, resets=False, looping=False))


def link(cause: str, effect: str) -> Link:
    return Link(f"{cause}_{effect}", cause, effect, Strength.PROVEN, "so")


def lines(diagnosis: Diagnosis, label: str, width: int = 110) -> list[str]:
    return [each for each in verdict_text(diagnosis, width).splitlines() if f" {label} " in each]


def test_rivals_are_told_in_a_line_with_what_speaks_against_the_loser():
    rivals = (
        Rival("zombie_memcgs", Strength.PROVEN, True, "so"),
        Rival("direct_reclaim", Strength.POSSIBLE, False, "so", ("too few",)),
    )
    diagnosis = replace(SICK, contests=(Contest("saturated_core", rivals),))
    (line,) = lines(diagnosis, "RIVALS")
    assert line.split(None, 1)[1] == (
        "saturated core: zombie memcgs (proven) rather than direct reclaim (possible: too few)"
    )
    assert lines(SICK, "RIVALS") == []


def test_what_rises_together_is_told_with_what_would_prove_it():
    both = ("direct_reclaim", "quota_throttling")
    found = Coincidence(both, "both were there", "stacks")
    (line,) = lines(replace(SICK, coincidences=(found,)), "TOGETHER")
    assert line.endswith("both were there; what would: stacks")


@pytest.mark.parametrize(("unit", "shown"), [("ecs.service", False), ("other.service", True)])
def test_a_crash_loop_seen_by_its_cgroups_is_not_told_twice(unit, shown):
    churn = Finding(
        "cgroup_churn", Verdict.PRESENT, Severity.WARNING, "9 died", entities={"unit": (unit,)}
    )
    kept = [each for each in SICK.findings if each.id != "cgroup_churn"]
    chain = Chain((link("cgroup_churn", "zombie_memcgs"), *SICK.chains[0].links[1:]))
    rival = Rival("cgroup_churn", Strength.PROVEN, False, "so")
    first = Rival("crash_looping_unit", Strength.LIKELY, True, "so")
    diagnosis = replace(
        SICK,
        findings=(churn, *kept),
        chains=(*SICK.chains, chain),
        contests=(Contest("zombie_memcgs", (first, rival)),),
    )
    text = verdict_text(diagnosis)
    assert (" ALSO " in text, "RIVALS" in text, "9 died" in text) == (shown, shown, shown)


def test_of_a_second_chain_only_what_is_new_is_told():
    first = Chain((link("a", "b"), link("b", "c")))
    other_root = Chain((link("x", "b"), link("b", "c")))
    other_end = Chain((link("a", "b"), link("b", "z")))
    told = [chain.findings for chain in untold((first, other_root, other_end, first))]
    assert told == [("a", "b", "c"), ("x", "b"), ("b", "z")]


def test_a_healthy_node_with_much_to_note_still_fits_fifteen_lines():
    summary = "a thing that is there and costs nobody anything, told at some length in its summary"
    noted = [
        Finding(f"noted_{number}", Verdict.PRESENT, Severity.INFO, summary) for number in range(4)
    ]
    clean = [
        Finding(f"some_clean_check_{number}", Verdict.ABSENT, Severity.INFO, "")
        for number in range(20)
    ]
    text = verdict_text(replace(HEALTHY, findings=(*HEALTHY.findings, *noted, *clean)), 88)
    assert text.startswith("HEALTHY")
    assert len(text.splitlines()) <= 15
    assert "and 2" in next(each for each in text.splitlines() if "also clean" in each)


def test_a_share_is_shown_as_one():
    loss = Evidence("sent again", "8,591 to 41,952 sent (20 %)", "< 1 %", "", "snmp", 20.48)
    finding = Finding("tcp_loss", Verdict.PRESENT, Severity.WARNING, "lost", evidence=(loss,))
    diagnosis = replace(SICK, findings=(finding,), chains=(), unexplained=("tcp_loss",), story=())
    (line,) = [each for each in verdict_text(diagnosis).splitlines() if "sent again" in each]
    assert " 20 % " in line
