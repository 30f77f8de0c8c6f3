"""Every recorded incident as Prometheus would have scraped it, against what the recording says."""

from __future__ import annotations

from functools import cache

import pytest

from lab.incident import Incident, incidents
from sexton.explain.diagnosis import diagnose
from sexton.model.diagnosis import Diagnosis, Exit
from sexton.model.finding import Verdict
from sexton.replay.prometheus.window import window
from tests.support.scrapes import NAME, MadePrometheus

EVERY = incidents()
#: The node stood still for 15 s: its recorder read nothing, but its counters went on, and tell of
#: the shortage that the kill ended.
STOOD_STILL = {"memory_pressure", "direct_reclaim", "saturated_core"}
LET_GO = {"oom_node-6.1-v2": STOOD_STILL}

each_incident = pytest.mark.parametrize("incident", EVERY, ids=lambda incident: incident.name)
#: Seconds between scrapes, and whether all collectors that help are on.
each_job = pytest.mark.parametrize(
    ("every_s", "flags"), [(15, False), (1, True), pytest.param(30, True, marks=pytest.mark.whole)]
)


@cache
def scraped(incident: Incident, every_s: float, flags: bool) -> Diagnosis:
    recorded = incident.replay.window
    made = MadePrometheus(recorded, every_s, flags)
    return diagnose(window(made, NAME, recorded.start - 1, recorded.end + 1).window)


@each_job
@each_incident
def test_averages_never_contradict_the_recording(incident: Incident, every_s: float, flags: bool):
    diagnosis, recorded = scraped(incident, every_s, flags), incident.diagnosis
    known = incident.expected.known | LET_GO.get(incident.name, set())
    wrong = [
        f"{finding.id}: {finding.summary}; recorded: {before.summary}"
        for finding in diagnosis.findings
        if (before := recorded.by_id[finding.id]) is not None
        and (
            (finding.is_problem and not before.is_problem and finding.id not in known)
            or (finding.verdict is Verdict.ABSENT and before.is_problem)
        )
    ]
    assert wrong == []
    causes = {(link.cause, link.effect) for chain in recorded.chains for link in chain.links}
    found = {(link.cause, link.effect) for chain in diagnosis.chains for link in chain.links}
    assert {link for link in found - causes if not set(link) <= known} == set()
    # Never healthy, and an unknown says what would tell.
    assert diagnosis.exit is not Exit.HEALTHY
    if incident.expected.root is None and incident.diagnosis.exit is not Exit.PROBLEM:
        assert diagnosis.exit is Exit.CANNOT_TELL
    for finding in diagnosis.findings:
        if finding.verdict is Verdict.UNKNOWN:
            assert any(need.grant for need in finding.missing), finding.id


def test_what_averages_can_show_is_found():
    """The scenes whose cause lasts longer than a scrape interval, and the right one is named."""
    causes = {}
    for incident in EVERY:
        diagnosis = scraped(incident, 15, True)
        if diagnosis.chains:
            causes[incident.name] = diagnosis.chains[0].root
        elif diagnosis.exit is Exit.PROBLEM:
            causes[incident.name] = next(one.id for one in diagnosis.findings if one.is_problem)
    assert causes["cfs_quota-6.18-v1"] == "quota_throttling"
    assert causes["cpu_starved-6.1-v2"] == "cpu_pressure"
    assert causes["packet_flood-6.18-v1"] == "softirq_flood"
    assert causes["whole_chain-6.1-v2"] == "crash_looping_unit"
    assert causes["oom_loop-6.12-v2"] in ("crash_looping_unit", "oom_kills")
    assert not any(name.startswith(("idle", "busy", "full_cores")) for name in causes)


def test_fields_that_the_exporter_leaves_out_are_asked_for():
    """By default node_exporter gives few fields of vmstat; that is not a kernel without them."""
    (incident,) = (one for one in EVERY if one.name == "direct_reclaim-6.1-v2")
    finding = scraped(incident, 15, False).by_id["direct_reclaim"]
    assert finding.verdict is Verdict.UNKNOWN
    assert any("--collector.vmstat.fields" in need.grant for need in finding.missing)
