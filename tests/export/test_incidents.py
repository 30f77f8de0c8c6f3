"""Metrics of the recorded incidents say what the verdict says."""

from __future__ import annotations

import re
from math import inf

import pytest

from lab.incident import Incident, incidents
from sexton.detect import resets
from sexton.detect.growth import latest_count
from sexton.detect.rows_read import Witness
from sexton.export import families as f
from sexton.export.current import KEPT, NAMED_RATIO, current
from sexton.export.exposition import Page
from sexton.export.judged import OTHER, judged
from sexton.export.samples import Counts, Samples
from sexton.model.finding import Verdict
from sexton.model.rows.task import Process, Thread
from sexton.model.text import printable
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.series.restarts import restarts


@pytest.fixture(scope="module", params=incidents(), ids=lambda incident: incident.name)
def exported(request) -> tuple[Incident, Samples]:
    incident = request.param
    window = incident.replay.window
    samples = current(window, -inf, 15.0).samples
    samples.update(judged(window, incident.diagnosis))
    return incident, samples


def test_the_verdict_and_every_finding(exported):
    incident, samples = exported
    said = diagnosis_json(incident.diagnosis)
    assert samples.value(f.VERDICT) == int(incident.diagnosis.exit)
    expected = {}
    for finding in said["findings"]:
        if finding["verdict"] == Verdict.PRESENT:
            expected[finding["id"], finding["severity"]] = 1
        elif finding["verdict"] == Verdict.ABSENT:
            expected[finding["id"], ""] = 0
    assert dict(samples.of(f.FINDING)) == expected
    unknown = sum(finding["verdict"] == Verdict.UNKNOWN for finding in said["findings"])
    assert samples.value(f.UNKNOWN) == unknown


def test_what_is_current_is_read_from_few_tables(exported):
    """Others are decoded only where a task is to be named."""
    seen = Witness(exported[0].replay.window)
    with seen.noting() as noted:
        found = current(seen, -inf, 15.0).samples
    more = {Process, Thread} if (found.value(f.WORST_CORE) or 0) >= NAMED_RATIO else set()
    assert set(noted) <= {*KEPT.every, *more}


def test_chains_in_their_order_and_what_they_explain(exported):
    incident, samples = exported
    said = diagnosis_json(incident.diagnosis)["chains"]
    found = [labels for labels, _ in samples.of(f.CHAIN)]
    shown = [(chain["root"], chain["symptom"], chain["strength"]) for chain in said]
    assert found == list(dict.fromkeys(shown))[: f.CHAIN.most]
    effects = {link["effect"] for chain in said for link in chain["links"]}
    for (name,), value in samples.of(f.EXPLAINED):
        assert value == (name in effects)


def test_a_chain_has_the_same_labels_when_its_task_is_started_again(exported):
    """Else an alert with these labels begins anew, and notifies again."""
    incident, samples = exported
    assert len(dict(samples.of(f.CHAIN_INFO))) == min(len(incident.diagnosis.chains), f.CHAIN.most)
    for (root, _, sentence, culprit), _ in samples.of(f.CHAIN_INFO):
        tasks = incident.diagnosis.by_id[root].entities.get("task", ())
        assert culprit not in tasks
        assert not re.search(r"\[\d+\]", sentence)
        assert culprit in sentence


def test_counts_of_cgroups_and_of_who_left_them(exported):
    incident, samples = exported
    census = latest_count(incident.replay.window)
    assert samples.value(f.DYING) == (census.dying if census else None)
    owners = {labels[0]: value for labels, value in samples.of(f.OWNERS)}
    if OTHER in owners:
        assert sum(owners.values()) >= census.dying
        assert owners[OTHER] == max(census.dying - sum(owners.values()) + owners[OTHER], 0)


def test_restarts_and_resets(exported):
    incident, samples = exported
    window = incident.replay.window
    known = restarts(window)
    for (unit,), value in samples.of(f.UNIT_RESTARTS):
        assert value == known[unit].total
    by_nic = {printable(nic): number for nic, number in resets.by_nic(window).items()}
    found = {labels[0]: value for labels, value in samples.of(f.NIC_RESETS)}
    known = resets.in_window(window) is not None
    assert {nic: number for nic, number in found.items() if number} == (by_nic if known else {})


def test_every_core_and_reading_is_one_observation(exported):
    _, samples = exported
    worst = samples.value(f.WORST_CORE)
    if worst is not None:
        assert 0 <= worst <= 1
    for family in (f.SOFTIRQ_WAIT, f.CORE_KERNEL):
        for _, value in samples.of(family):
            assert isinstance(value, Counts)
            assert len(value.buckets) == len(family.buckets) + 1


def test_there_are_not_too_many_series(exported):
    _, samples = exported
    text = Page(samples).body("", False)[0].decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert 20 <= len(lines) <= 400
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines)
