"""The incident's node gets its chain; its twins do not."""

from __future__ import annotations

import json

import pytest

from sexton.explain.diagnosis import diagnose
from sexton.model.diagnosis import Exit
from sexton.model.finding import Verdict
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.reports.text.verdict import verdict_text
from tests.support.incident import incident


def test_the_whole_chain_is_found_in_order():
    diagnosis = diagnose(incident())
    assert diagnosis.exit is Exit.PROBLEM
    assert diagnosis.chains[0].findings == (
        "crash_looping_unit",
        "zombie_memcgs",
        "slow_memcg_stats",
        "saturated_core",
        "starved_napi",
        "nic_resets",
    )
    by_id = diagnosis.by_id
    assert by_id["crash_looping_unit"].entities["unit"] == ("ecs.service",)
    assert by_id["saturated_core"].entities["core"] == ("5",)
    assert by_id["saturated_core"].entities["task"] == ("kubelet[2113/2140]",)
    assert "eth0:5" in by_id["starved_napi"].entities["queue"]
    strengths = {link.id: link.strength.value for link in diagnosis.chains[0].links}
    assert strengths == {
        "crash_loop_leaves_zombies": "likely",
        "zombies_slow_stats": "likely",
        "slow_stats_burn_core": "likely",
        "burnt_core_starves_napi": "proven",
        "starved_napi_resets_nic": "proven",
    }


@pytest.mark.parametrize(
    ("without", "absent"),
    [
        ("zombies", "zombie_memcgs"),
        ("burning", "saturated_core"),
        ("resets", "nic_resets"),
        ("looping", "crash_looping_unit"),
    ],
)
def test_a_twin_without_one_link_is_not_diagnosed_with_it(without, absent):
    diagnosis = diagnose(incident(**{without: False}))
    assert diagnosis.by_id[absent].verdict is Verdict.ABSENT
    assert all(absent not in chain.findings for chain in diagnosis.chains)


def test_the_twin_without_any_link_is_healthy():
    diagnosis = diagnose(incident(zombies=False, burning=False, resets=False, looping=False))
    assert diagnosis.exit is Exit.HEALTHY
    text = verdict_text(diagnosis)
    assert text.startswith("HEALTHY")
    assert len(text.splitlines()) <= 15


def test_the_text_names_what_a_tired_person_needs():
    text = verdict_text(diagnose(incident()), 100)
    assert text.startswith("SICK  ip-10-3-7-21")
    for word in (
        "ecs.service",
        "68,44",
        "core 5",
        "kubelet",
        "eth0",
        "CAUSE CHAIN",
        "DO NOW",
        "mask",
    ):
        assert word in text, word
    commands = ("systemctl", "timeout", "perf")
    prose = [line for line in text.splitlines()[1:] if not line.strip().startswith(commands)]
    assert max(map(len, prose)) <= 100


def test_the_json_is_the_contract():
    document = json.loads(json.dumps(diagnosis_json(diagnose(incident()))))
    assert document["schema"] == "sexton.diagnosis/1"
    assert set(document) >= {
        "node", "window", "findings", "chains", "unexplained", "plan", "sources",
    }  # fmt: skip
    chain = document["chains"][0]
    assert (chain["root"], chain["symptom"]) == ("crash_looping_unit", "nic_resets")
    for finding in document["findings"]:
        assert set(finding) >= {
            "id", "verdict", "severity", "summary", "entities", "start", "end", "evidence",
        }  # fmt: skip
        for evidence in finding["evidence"]:
            assert set(evidence) >= {"what", "value", "normal", "unit", "source"}


def test_every_claim_names_the_rows_it_stands_on():
    document = diagnosis_json(diagnose(incident()))
    judged = [
        finding for finding in document["findings"] if finding["verdict"] in ("present", "absent")
    ]
    claims = [*judged, *(link for chain in document["chains"] for link in chain["links"])]
    assert len(claims) > 15
    for claim in claims:
        assert claim["rows"], claim["id"]
        for rows in claim["rows"]:
            assert rows["start"] <= rows["end"]
    core = next(finding for finding in judged if finding["id"] == "saturated_core")
    times = next(row for row in core["rows"] if row["table"] == "core_times")
    assert times["rows"] == 11 * 96


def test_the_story_the_rivals_and_the_coincidences_are_in_the_json():
    document = diagnosis_json(diagnose(incident()))
    assert document["story"][0].startswith("On ip-10-3-7-21")
    assert (document["contests"], document["coincidences"]) == ([], [])
