"""The verdict on a screen: rivals, coincidences, and few lines where nothing is wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import sexton
from sexton.explain.diagnosis import diagnose
from sexton.explorer.files.incident import incident_html
from sexton.explorer.server.documents import explain_document
from sexton.model.chain import Chain, Coincidence, Contest, Link, Rival, Strength
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.reports.text.narrative import new_links
from sexton.reports.text.verdict import verdict_text
from tests.support.incident import incident

_VERDICT = r"""["'](?:HEALTHY|Healthy|SICK|Sick|CANNOT TELL|Cannot tell)\b"""
SICK = diagnose(incident())
HEALTHY = diagnose(incident(zombies=False, burning=False, resets=False, looping=False))


def link(cause: str, effect: str) -> Link:
    return Link(f"{cause}_{effect}", cause, effect, Strength.PROVEN, "so")


def lines(diagnosis: Diagnosis, label: str, width: int = 110) -> list[str]:
    return [line for line in verdict_text(diagnosis, width).splitlines() if f" {label} " in line]


def test_every_surface_has_the_verdicts_word_from_one_place():
    written = {
        path.name
        for path in Path(sexton.__file__).parent.rglob("*.*")
        if path.suffix in (".py", ".js") and re.search(_VERDICT, path.read_text())
    }
    assert written == {"diagnosis.py"}
    for diagnosis in (SICK, HEALTHY):
        assert verdict_text(diagnosis).startswith(diagnosis.exit.word + " ")
        assert explain_document(diagnosis)["word"] == diagnosis.exit.word
        title = diagnosis.exit.word.capitalize()
        assert f"<title>{title}: " in incident_html(diagnosis, None)


def test_rivals_are_in_one_line_with_the_evidence_against_the_weaker():
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


DEATH = Finding(
    "job_deaths", Verdict.PRESENT, Severity.INFO, '"job 17 died" (marked by hand)',
    {"job": ("job 17 died",)}, 1_740_000_002.4, 1_740_000_002.4,
)  # fmt: skip


def marked(diagnosis: Diagnosis, *chains: Chain) -> Diagnosis:
    others = tuple(finding for finding in diagnosis.findings if finding.id != "job_deaths")
    left = () if chains else ("job_deaths",)
    return replace(
        diagnosis, findings=(*others, DEATH), unexplained=left, chains=(*diagnosis.chains, *chains)
    )


def test_a_job_that_died_on_a_healthy_node_comes_first_and_costs_no_exit_code():
    blocks = verdict_text(marked(HEALTHY)).split("\n\n")
    assert blocks[0].startswith("HEALTHY")
    said = " ".join(blocks[1].split())
    assert said.startswith('"job 17 died" (marked by hand), at 21:20:02 UTC. Nothing')
    assert "recorded on this node explains it; check the job's other nodes." in said
    assert blocks[-1].rstrip().endswith("exit 0: healthy (sexton demo shows a sick node)")
    assert "noted" not in "".join(blocks)


def test_a_death_that_nothing_explains_is_listed_on_a_sick_node_and_noted_nowhere():
    text = verdict_text(marked(SICK), 110)
    assert "1 FINDING, CAUSE UNKNOWN" in text
    assert '"job 17 died" (marked by hand).' in " ".join(text.split("CAUSE CHAIN")[0].split())
    assert not lines(marked(SICK), "NOTED")


def test_findings_of_the_chain_are_not_noted_again():
    noted = replace(DEATH, id="direct_reclaim", summary="some pages were scanned", entities={})
    loose = replace(SICK, findings=(*SICK.findings, noted))
    assert lines(loose, "NOTED")[0].endswith("some pages were scanned")
    more = replace(loose, chains=(*SICK.chains, Chain((link("a", "direct_reclaim"),))))
    grave = replace(noted, id="a", severity=Severity.WARNING)
    assert not lines(replace(more, findings=(*more.findings, grave)), "NOTED")


def test_a_chain_that_has_only_notes_to_add_is_not_shown():
    noted = replace(DEATH, id="direct_reclaim", summary="some pages were scanned", entities={})
    chain = Chain((link("zombie_memcgs", "direct_reclaim"),))
    more = replace(SICK, chains=(*SICK.chains, chain), findings=(*SICK.findings, noted))
    text = verdict_text(more, 110)
    assert " ALSO " not in text
    assert "ome pages were scanned" not in " ".join(text.split("CAUSE CHAIN")[0].split())
    assert lines(more, "NOTED")[0].endswith("some pages were scanned")


def test_what_rises_together_is_reported_with_what_would_prove_it():
    both = ("direct_reclaim", "quota_throttling")
    found = Coincidence(both, "both were there", "stacks")
    (line,) = lines(replace(SICK, coincidences=(found,)), "TOGETHER")
    assert line.endswith("both were there; stronger evidence: stacks")


@pytest.mark.parametrize(("unit", "shown"), [("ecs.service", False), ("other.service", True)])
def test_a_crash_loop_seen_by_its_cgroups_is_not_reported_twice(unit, shown):
    churn = Finding(
        "cgroup_churn", Verdict.PRESENT, Severity.WARNING, "9 died", entities={"unit": (unit,)}
    )
    kept = [finding for finding in SICK.findings if finding.id != "cgroup_churn"]
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


@pytest.mark.parametrize("width", [60, 72, 80, 110])
def test_the_heading_of_a_chain_is_never_cut(width):
    assert "CAUSE CHAIN (weakest link: likely) " in verdict_text(SICK, width)


def test_of_a_second_chain_only_what_is_new_is_shown():
    first = Chain((link("a", "b"), link("b", "c")))
    other_root = Chain((link("x", "b"), link("b", "c")))
    other_end = Chain((link("a", "b"), link("b", "z")))
    fresh = [chain.findings for chain in new_links((first, other_root, other_end, first))]
    assert fresh == [("a", "b", "c"), ("x", "b"), ("b", "z")]


def test_a_healthy_node_with_much_to_note_still_fits_fifteen_lines():
    summary = "a thing that is there and costs nobody anything, described in a rather long summary"
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
    clean_line = next(line for line in text.splitlines() if "also clean" in line)
    assert re.search(r" and [23][0-9] more$", clean_line)


def test_a_share_is_shown_as_one():
    loss = Evidence("sent again", "8,591 to 41,952 sent (20 %)", "< 1 %", "", "snmp", 20.48)
    finding = Finding("tcp_loss", Verdict.PRESENT, Severity.WARNING, "lost", evidence=(loss,))
    diagnosis = replace(SICK, findings=(finding,), chains=(), unexplained=("tcp_loss",), story=())
    (line,) = [item for item in verdict_text(diagnosis).splitlines() if "sent again" in item]
    assert " 20 % " in line
