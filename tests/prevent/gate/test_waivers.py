"""Excuses with an owner and an end."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from sexton.errors import CommandError
from sexton.model.audit import Need
from sexton.prevent.gate import Gate, Outcome, WaiverState, agents_of, judge
from tests.prevent.gate.making import TODAY, audit_of, gate_of, place, policy, subject

DAY = datetime.timedelta(days=1)


def text(subject_of: str = "ecs.service", expires: datetime.date = TODAY + 100 * DAY) -> str:
    return (
        f'[[waivers]]\nrule = "unneeded_units"\nsubject = "{subject_of}"\n'
        f'owner = "batch@example.com"\nexpires = {expires}\nreason = "nightly jobs"\n'
    )


@pytest.fixture
def two(tmp_path: Path):
    found = audit_of(subject("ecs.service", Need.UNNEEDED), subject("b.service", Need.UNNEEDED))
    return place(tmp_path, found=found)


def states(gate: Gate) -> list[WaiverState]:
    return [state for _, state in gate.waivers]


def waivers_result(gate: Gate):
    return gate.results[-1]


def units(gate: Gate):
    return next(result for result in gate.results if result.rule == "unneeded_units")


def test_a_waiver_excuses_what_it_names_and_nothing_else(two) -> None:
    gate = gate_of(two, text())
    assert [item.subject for item in units(gate).waived] == ["ecs.service"]
    assert [item.subject for item in units(gate).active] == ["b.service"]
    assert (gate.passed, states(gate)) == (False, [WaiverState.USED])


def test_with_all_excused_the_gate_is_open(two) -> None:
    gate = gate_of(two, text("*.service"))
    assert (gate.passed, units(gate).outcome) == (True, Outcome.PASS)


@pytest.mark.parametrize(("left", "open_"), [(1, True), (0, True), (-1, False)])
def test_it_holds_to_the_end_of_its_last_day(two, left: int, open_: bool) -> None:
    assert gate_of(two, text("*", TODAY + left * DAY)).passed is open_


def test_an_expired_waiver_fails_loudly_and_excuses_nothing(two) -> None:
    gate = gate_of(two, text("*", TODAY - 3 * DAY))
    result = waivers_result(gate)
    assert (gate.passed, states(gate), len(units(gate).active)) == (False, [WaiverState.EXPIRED], 2)
    assert (result.outcome, result.closes) == (Outcome.FAIL, True)
    message = result.violations[0].message
    assert "expired on 2026-11-12 (3 days ago)" in message
    assert "batch@example.com" in message
    assert result.violations[0].path == "gate.toml"


def test_an_expired_waiver_fails_even_where_nothing_needs_it(tmp_path: Path) -> None:
    gate = gate_of(place(tmp_path), text("gone.service", TODAY - DAY))
    assert not gate.passed
    assert "delete" in waivers_result(gate).violations[0].remedy


def test_one_that_matches_nothing_is_told_and_costs_nothing(tmp_path: Path) -> None:
    gate = gate_of(place(tmp_path), text("gone.service"))
    assert (gate.passed, states(gate)) == (True, [WaiverState.UNUSED])
    assert "matches nothing here" in waivers_result(gate).notes[0]


def test_one_that_cannot_match_yet_is_kept(tmp_path: Path) -> None:
    """Nothing runs in an image: a waiver of a crash loop is for the node that boots it."""
    waiver = text("kubelet.service").replace("unneeded_units", "crash_loops")
    image = place(tmp_path)
    assert not image.booted
    (note,) = waivers_result(gate_of(image, waiver)).notes
    assert note.endswith("matches nothing here: keep it (an image that is not booted)")
    booted = replace(place(tmp_path, found=audit_of()), booted=True)
    (note,) = waivers_result(gate_of(booted, text("gone.service"))).notes
    assert note.endswith("matches nothing here: delete it")
    off = f"[rules.unneeded_units]\nenabled = false\n{text('gone.service')}"
    (note,) = waivers_result(gate_of(booted, off)).notes
    assert note.endswith("keep it (unneeded_units is disabled by the policy)")
    late = gate_of(image, waiver.replace(str(TODAY + 100 * DAY), str(TODAY - DAY)))
    (violation,) = waivers_result(late).violations
    assert violation.remedy == "renew or delete it: not checked here"


@pytest.mark.parametrize(("left", "state"), [(14, WaiverState.SOON), (15, WaiverState.USED)])
def test_its_end_is_pointed_out_two_weeks_before(two, left: int, state: WaiverState) -> None:
    gate = gate_of(two, text("*", TODAY + left * DAY))
    assert (gate.passed, states(gate)) == (True, [state])
    assert bool(waivers_result(gate).notes) is (state is WaiverState.SOON)


@pytest.mark.parametrize(("days", "open_"), [(366, True), (367, False)])
def test_one_that_ends_too_far_ahead_closes_the_gate_with_one_line(two, days, open_) -> None:
    gate = gate_of(two, text("*", TODAY + days * DAY))
    assert (gate.passed, units(gate).outcome) == (open_, Outcome.PASS)
    found = waivers_result(gate)
    if open_:
        assert (states(gate), found.summary) == ([WaiverState.USED], "1 waiver, 0 expired")
        return
    assert (states(gate), found.closes) == ([WaiverState.TOO_LONG], True)
    assert found.summary == "1 waiver, 0 expired, 1 too long"
    (violation,) = found.violations
    assert "expires on 2027-11-17, more than 366 days ahead; owner batch@example.com" in (
        violation.message
    )
    assert violation.remedy.startswith("set expires to 2027-11-16 or earlier, or raise waiver_days")


@pytest.mark.parametrize("setting", ["waiver_days = 0", "waiver_days = 40000"])
def test_how_far_ahead_is_the_policys_word(two, setting: str) -> None:
    assert gate_of(two, f"{setting}\n{text('*', datetime.date(2099, 12, 31))}").passed


def test_an_agents_end_is_its_owners_word(two) -> None:
    later = AGENTS.replace(b"2027", b"2099").replace(
        b'owner = ""', b'owner = "x"\nexpires = 2099-01-01'
    )
    with_agents = replace(policy(), agents=agents_of(later, "agents.toml"))
    assert judge(two, with_agents, TODAY).passed


def test_a_waiver_of_another_rule_excuses_nothing(two) -> None:
    gate = gate_of(two, text("*").replace("unneeded_units", "crash_loops"))
    assert len(units(gate).active) == 2


def test_what_could_not_be_checked_cannot_be_waived(tmp_path: Path) -> None:
    gate = gate_of(place(tmp_path, found=audit_of(has_units=False)), text("*"))
    assert not gate.passed


AGENTS = b"""
[[agent]]
unit = "ecs.service"
owner = "batch@example.com"
expires = 2027-01-31
why = "nightly jobs"
[[agent]]
unit = "b.service"
owner = ""
"""


def test_the_audits_own_file_excuses_who_has_an_owner_and_an_end(two) -> None:
    with_agents = replace(policy(), agents=agents_of(AGENTS, "agents.toml"))
    gate = judge(two, with_agents, TODAY)
    assert [item.subject for item in units(gate).waived] == ["ecs.service"]
    assert [item.subject for item in units(gate).active] == ["b.service"]
    assert units(gate).waived[0].waived_by.at == "agents.toml"


def test_an_expired_agent_fails_only_where_its_unit_is(two, tmp_path: Path) -> None:
    with_agents = replace(
        policy(), agents=agents_of(AGENTS.replace(b"2027", b"2025"), "agents.toml")
    )
    over = waivers_result(judge(two, with_agents, TODAY))
    assert (over.closes, over.violations[0].path) == (True, "agents.toml")
    assert judge(place(tmp_path), with_agents, TODAY).passed


@pytest.mark.parametrize(
    "junk", [b"\xff", b"a = [", b"agent = 1", b"x = 1", b"a = " + b"[" * 10**5]
)
def test_an_agents_file_that_is_none_is_one_line(junk: bytes) -> None:
    with pytest.raises(CommandError) as error:
        agents_of(junk, "agents.toml")
    assert str(error.value).startswith("agents.toml: ")
    assert "\n" not in str(error.value)
