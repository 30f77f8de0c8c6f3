"""The best chain as a timeline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.explain.diagnosis import diagnose
from sexton.explain.registry import all_rules
from sexton.explain.story import short, timeline
from sexton.model.chain import Chain, Link, Strength
from sexton.model.finding import Verdict
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.recorder import Mark
from sexton.reports.text.verdict import verdict_text
from tests.explain.making import EMPTY, evidence, finding, window
from tests.support.incident import incident


def test_every_link_is_one_sentence_with_its_time_and_how_sure_it_is():
    diagnosis = diagnose(incident())
    chain = diagnosis.chains[0]
    beginning, *found = diagnosis.story
    assert beginning.startswith("On ip-10-3-7-21 on 2025-02-19 (21:20:00 to 21:20:10 UTC, 10.0 s):")
    assert "ecs.service restarts every 10.2 s" in beginning
    for link, sentence in zip(chain.links, found, strict=False):
        assert f" ({link.strength}): " in sentence
        assert sentence.endswith(".")
    assert found[4].startswith("At 21:20:07 UTC the driver stopped waiting")
    assert "kernel stacks of the held core" in found[5]
    assert "Whether a job died is unknown" in found[6]
    assert len(found) == 7


def test_it_ends_the_sick_verdict_and_spares_the_healthy_one():
    text = verdict_text(diagnose(incident()), 100)
    assert text.index("DO NOW") < text.index("TIMELINE") < text.index("exit 1")
    healthy = diagnose(incident(zombies=False, burning=False, resets=False, looping=False))
    assert healthy.story == ()
    assert "STORY" not in verdict_text(healthy)


def test_a_proven_chain_that_ends_in_a_job_leaves_nothing_to_be_seen():
    ends = {item.id: item for item in (finding("tcp_loss"), finding("job_deaths"))}
    link = Link("dropped_connections_kill_job", *ends, Strength.PROVEN, "so")
    found = timeline(Chain((link,)), ends, EMPTY)
    assert len(found) == 2
    assert found[1].startswith("At 1970-01-01 00:01:40 UTC a job died as a result") or found[
        1
    ].startswith("At 00:01:40 UTC a job died as a result (proven)")


def test_a_job_that_did_not_die_is_not_mentioned():
    ends = {item.id: item for item in (finding("starved_napi"), finding("nic_resets"))}
    link = Link("starved_napi_resets_nic", *ends, Strength.PROVEN, "so")
    alive = replace(finding("job_deaths"), verdict=Verdict.ABSENT)
    assert len(timeline(Chain((link,)), ends | {"job_deaths": alive}, EMPTY)) == 2
    assert len(timeline(Chain((link,)), ends, EMPTY)) == 3


def test_stacks_that_were_taken_are_not_listed_as_missing():
    ends = {item.id: item for item in (finding("direct_reclaim"), finding("saturated_core"))}
    shown = (evidence("samples", 27.0, source="perf record"),)
    link = Link("reclaim_burns_core", *ends, Strength.LIKELY, "so", evidence=shown)
    assert len(timeline(Chain((link,)), ends, EMPTY)) == 2
    assert len(timeline(Chain((replace(link, evidence=()),)), ends, EMPTY)) == 3


def test_of_several_resets_the_one_that_follows_is_named():
    lines = [
        KernelEvent("p", "nic_reset", "reset", None, at, {"nic": "eth0"}) for at in (50.0, 106.0)
    ]
    seen = window({200: lines})
    starved = finding("starved_napi", (100.0, 105.0), nic=("eth0",))
    reset = finding("nic_resets", (50.0, 106.0), nic=("eth0",))
    loss = finding("tcp_loss", (101.0, 120.0))
    ends = {item.id: item for item in (starved, reset, loss)}
    chain = Chain(
        (
            Link("starved_napi_resets_nic", starved.id, reset.id, Strength.PROVEN, "so"),
            Link(
                "nic_reset_drops_connections", reset.id, loss.id, Strength.PROVEN, "so", since=106.0
            ),
        )
    )
    found = timeline(chain, ends, seen)
    assert found[1].startswith("At 00:01:46 UTC the driver stopped waiting")
    assert found[2] == "From 00:01:46 UTC on connections lost packets (proven): so."


@pytest.mark.parametrize(
    ("begins", "when"),
    [(100.0, "At 00:01:40 UTC the"), (98.5, "In the same seconds the"), (90.0, "The")],
)
def test_no_effect_has_a_time_before_its_cause(begins: float, when: str):
    seen = window({0: [Mark("first")], 300: [Mark("last")]})
    dead = finding("zombie_memcgs", (0.0, 300.0))
    held = finding("saturated_core", (100.0, 109.0), core=("5",))
    starved = finding("starved_napi", (begins, 106.0), core=("5",))
    ends = {item.id: item for item in (dead, held, starved)}
    links = (
        Link("zombie_walk_burns_core", dead.id, held.id, Strength.PROVEN, "so"),
        Link("burnt_core_starves_napi", held.id, starved.id, Strength.PROVEN, "so"),
    )
    found = timeline(Chain(links), ends, seen)
    assert found[1].startswith("At 00:01:40 UTC a walk over them held a core")
    assert found[2].startswith(f"{when} poll of a NIC queue had to wait")


def test_a_loss_that_was_worst_before_the_reset_gets_the_link_and_no_time():
    reset = finding("nic_resets", (112.0, 112.0), nic=("eth0",))
    loss = finding("tcp_loss", (105.0, 108.0))
    ends = {item.id: item for item in (reset, loss)}
    joins = "216 TCP timeouts around the reset"
    link = Link("nic_reset_drops_connections", reset.id, loss.id, Strength.PROVEN, joins)
    found = timeline(Chain((link,)), ends, EMPTY)
    assert found[1] == ("Connections lost packets (proven): 216 TCP timeouts around the reset.")


def test_every_rule_has_a_story():
    for rule in all_rules():
        ends = {item.id: item for item in (finding(rule.cause), finding(rule.effect))}
        for strength in Strength:
            link = Link(rule.id, rule.cause, rule.effect, strength, "so")
            found = timeline(Chain((link,)), ends, EMPTY)
            assert rule.story in found[1]
            assert (rule.proof in " ".join(found)) is (strength is not Strength.PROVEN)


@given(st.text(max_size=300))
def test_any_summary_can_be_shortened(text):
    assert len(short(text)) <= 110
