"""An effect does not begin before its cause."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lab.incident import Incident, incidents
from sexton.explain.chains import find_links
from sexton.explain.order import READ_S, in_order, when, with_first_causes
from sexton.model.chain import Link, Strength
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.recorder import Mark
from tests.explain.making import finding, window

SEEN = window({0: [Mark("first")], 300: [Mark("last")]})
LOSS = "nic_reset_drops_connections"


def link(cause: str, effect: str, since: float | None = None) -> Link:
    return Link("x", cause, effect, Strength.PROVEN, "so", since=since)


@pytest.mark.parametrize(
    ("cause", "effect", "since"),
    [
        ((100.0, 110.0), (105.0, 120.0), None),
        ((100.0, 110.0), (98.5, 120.0), None),  # readings do not tell which was first
        ((100.0, 110.0), (90.0, 120.0), 100.0),
        ((100.0, 110.0), (1.0, 120.0), None),  # it was there when the window began
        (None, (90.0, 120.0), None),
        ((100.0, 110.0), None, None),
    ],
)
def test_an_effect_is_split_where_its_cause_begins(cause, effect, since):
    ends = finding("memory_pressure", cause), finding("direct_reclaim", effect)
    found = in_order(link("memory_pressure", "direct_reclaim"), ends, SEEN)
    assert found.since == since
    early = "direct reclaim began 10.0 s before memory pressure"
    assert found.against == ((early,) if since else ())


def test_what_the_rule_has_split_already_stays():
    ends = finding("nic_resets", (100.0, 100.0)), finding("tcp_loss", (90.0, 120.0))
    split = link("nic_resets", "tcp_loss", since=101.0)
    assert in_order(split, ends, SEEN) == split


def test_of_several_resets_the_first_is_the_beginning():
    lines = [
        KernelEvent("p", "nic_reset", "reset", None, at, {"nic": "eth0"}) for at in (50.0, 99.0)
    ]
    seen = window({0: lines, 300: []})
    ends = finding("nic_resets", (99.0, 99.0), nic=("eth0",)), finding("tcp_loss", (60.0, 120.0))
    assert in_order(link("nic_resets", "tcp_loss"), ends, seen).since is None


def test_of_several_waits_the_first_is_the_beginning():
    said = {"nic": "eth0", "queue": 5, "napi_us": 6_000_000}
    lines = [KernelEvent("p", "nic_starved", "late", None, at, said) for at in (56.0, 106.0)]
    seen = window({0: lines, 300: []})
    ends = finding("starved_napi", (100.0, 106.0)), finding("nic_resets", (57.0, 107.0))
    found = in_order(link("starved_napi", "nic_resets"), ends, seen)
    assert (found.since, found.against) == (None, ())


def test_a_cause_is_not_named_as_one_that_came_before_itself():
    known = {
        "nic_resets": finding("nic_resets", (50.0, 100.0)),
        "tcp_loss": finding("tcp_loss", (93.0, 120.0)),
    }
    early = "TCP loss began 7.0 s before NIC resets"
    split = replace(link("nic_resets", "tcp_loss", since=100.0), against=(early,))
    assert with_first_causes([split], known) == [split]


def test_the_cause_that_came_first_is_named():
    known = {
        one.id: one
        for one in (
            finding("starved_napi", (90.0, 100.0)),
            finding("nic_resets", (100.0, 100.0)),
            finding("tcp_loss", (90.0, 120.0)),
        )
    }
    ends = known["nic_resets"], known["tcp_loss"]
    late = in_order(link("nic_resets", "tcp_loss"), ends, SEEN)
    links = [late, link("starved_napi", "tcp_loss")]
    (told, _) = with_first_causes(links, known)
    assert told.against == ("TCP loss began 10.0 s before NIC resets, with starved NAPI",)
    assert with_first_causes([late], known) == [late]


@pytest.mark.parametrize("name", ["whole_chain-5.10-v1", "whole_chain-6.1-v2"])
def test_loss_before_a_reset_belongs_to_the_starved_queue(name: str):
    (incident,) = [one for one in incidents() if one.name == name]
    known, seen = incident.diagnosis.by_id, incident.replay.window
    (loss,) = [one for one in find_links(known.values(), seen) if one.id == LOSS]
    assert loss.since == pytest.approx(known["nic_resets"].start)
    assert loss.against[0].endswith("before NIC resets, with starved NAPI")


@pytest.mark.parametrize(
    ("cause", "effect", "words"),
    [
        ((100.0, 110.0), (110.0, 120.0), "in the same seconds"),
        ((100.0, 110.0), (90.0, 100.0), "in the same seconds"),
        ((100.0, 110.0), (112.7, 120.0), "2.7 s after it ended"),
        ((100.0, 110.0), (40.0, 48.6), "51.4 s before it began"),
        ((100.0, 110.0), None, "at an unknown time"),
    ],
)
def test_the_same_seconds_are_those_of_both(cause, effect, words: str):
    ends = finding("saturated_core", cause), finding("starved_napi", effect)
    assert when(*ends) == words


def test_what_was_over_before_its_cause_began_is_not_proven_by_it():
    ends = finding("realtime_hog", (100.0, 110.0)), finding("starved_napi", (40.0, 90.0))
    found = in_order(link("realtime_hog", "starved_napi"), ends, SEEN)
    assert (found.strength, found.since) == (Strength.LIKELY, None)
    assert found.against == ("starved NAPI was over 10.0 s before realtime hog began",)


each_incident = pytest.mark.parametrize("incident", incidents(), ids=lambda incident: incident.name)


@each_incident
def test_in_no_recorded_incident_an_effect_begins_before_its_cause(incident: Incident):
    """By the spans that a reader sees; or the link says that the effect was there before."""
    known, seen = incident.diagnosis.by_id, incident.replay.window
    for one in find_links(known.values(), seen):
        cause, effect = known[one.cause], known[one.effect]
        if cause.start is None or effect.start is None or effect.start <= seen.start + READ_S:
            continue
        said = any("before" in words for words in one.against)
        assert (one.since or effect.start) >= cause.start - READ_S or said, one.id
        assert one.since is None or one.since <= (effect.end or effect.start) + READ_S, one.id


@each_incident
def test_in_every_recorded_incident_the_same_seconds_are_the_same(incident: Incident):
    known, seen = incident.diagnosis.by_id, incident.replay.window
    for one in find_links(known.values(), seen):
        cause, effect = known[one.cause], known[one.effect]
        if "in the same seconds" in one.sentence:
            assert cause.start is not None
            assert effect.start is not None
            assert cause.start <= (effect.end or effect.start), one.id
            assert effect.start <= (cause.end or cause.start), one.id


@each_incident
def test_in_every_recorded_incident_the_timeline_goes_forward(incident: Incident):
    story = incident.diagnosis.story
    times = [found[1] for line in story if (found := re.match(r"(?:At|From) (\S+) UTC", line))]
    assert times == sorted(times), story


def test_the_hold_the_wait_and_the_reset_are_those_of_one_walk():
    """Of 72 s by scene.json, in 54 of which the recorder got no core to read with."""
    (incident,) = [one for one in incidents() if one.name == "starved_nic-6.1-v2"]
    known = incident.diagnosis.by_id
    held, waited, reset = (known[name] for name in ("saturated_core", "starved_napi", "nic_resets"))
    assert (held.start or 0) <= (waited.start or 0) <= (reset.start or 0)
    assert (reset.end or 0) <= (waited.end or 0) <= (held.end or 0)
    walked = incident.scene["moments"][3]["at"], incident.scene["moments"][4]["at"]
    assert held.start == pytest.approx(walked[0], abs=5)
    assert held.end == pytest.approx(walked[1], abs=5)
    assert "no reading in 54.1 s of it" in held.summary
    assert held.entities["task"] == ("lab-walker[2100]",)
