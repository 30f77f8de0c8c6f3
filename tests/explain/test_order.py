"""An effect does not begin before its cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.incident import incidents
from sexton.explain.chains import find_links
from sexton.explain.order import READ_S, in_order, with_first_causes
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
        ((100.0, 110.0), (90.0, 95.0), None),  # at another time: the rule has judged that
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
def test_in_the_recorded_incidents_nothing_begins_before_its_cause(name: str):
    (incident,) = [one for one in incidents() if one.name == name]
    known, seen = incident.diagnosis.by_id, incident.replay.window
    (loss,) = [one for one in find_links(known.values(), seen) if one.id == LOSS]
    assert loss.since == pytest.approx(known["nic_resets"].start)
    assert loss.against[0].endswith("before NIC resets, with starved NAPI")
    for one in find_links(known.values(), seen):
        cause, effect = known[one.cause].start, known[one.effect].start
        if cause is not None and effect is not None and effect > seen.start + READ_S:
            assert (one.since or effect) >= cause - READ_S, one.id
