"""A place against a policy."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from typing import Any

from sexton.model.text import count, printable
from sexton.prevent.gate.model import WAIVERS, Checked, Gate, Outcome, Place, Result, WaiverState
from sexton.prevent.gate.policy import Policy
from sexton.prevent.gate.rules import Rule, all_rules
from sexton.prevent.gate.waivers import Judged, excuse, expired, meant, states, too_long

_WAIVERS_TITLE = "Every waiver still holds"


def judge(place: Place, policy: Policy, today: datetime.date) -> Gate:
    """Every rule of the policy, in its order, then the waivers themselves."""
    results = tuple(_run(rule, place, policy, today) for rule in all_rules())
    broken = [(result.rule, each) for result in results for each in result.violations]
    agents = [each for each in policy.agents if any(meant(each, *one) for one in broken)]
    judged = states(policy, agents, broken, today)
    window = place.window
    return Gate(
        place=printable(place.name),
        kind=place.kind,
        os=printable(place.os),
        booted=place.booted,
        policy=printable(policy.name),
        made_unix=time.time(),
        today=today,
        results=(*results, _waivers(judged, results, policy, today)),
        waivers=judged,
        watched_s=window.seconds if window is not None else 0.0,
        notes=tuple(map(printable, place.notes)),
    )


def _run(rule: Rule, place: Place, policy: Policy, today: datetime.date) -> Result:
    settings = policy.rules[rule.id]
    level: str = settings["level"]
    if not settings["enabled"]:
        off = "switched off by the policy"
        return Result(rule.id, rule.title, Outcome.OFF, level, False, off)
    began = time.monotonic()
    checked = rule.check(place, settings)
    violations = excuse(rule.id, checked.violations, (*policy.waivers, *policy.agents), today)
    errors = [each for each in violations if each.level == "error" and each.waived_by is None]
    broken = [each for each in violations if each.waived_by is None]
    outcome, closes = _outcome(checked, settings, bool(errors), bool(broken))
    return Result(
        rule=rule.id,
        title=rule.title,
        outcome=outcome,
        level=level,
        closes=closes,
        summary=checked.not_applicable or checked.summary,
        violations=violations,
        missing=checked.missing,
        notes=checked.notes,
        spent_s=time.monotonic() - began,
    )


def _outcome(
    checked: Checked, settings: Mapping[str, Any], errors: bool, broken: bool
) -> tuple[Outcome, bool]:
    if checked.not_applicable:
        return Outcome.NOT_APPLICABLE, False
    serious = settings["level"] == "error"
    if errors and serious:
        return Outcome.FAIL, True
    if checked.missing:
        return Outcome.UNKNOWN, serious and settings["on_unknown"] == "fail"
    return (Outcome.WARN if broken else Outcome.PASS), False


def _waivers(
    judged: Judged, results: tuple[Result, ...], policy: Policy, today: datetime.date
) -> Result:
    over = [waiver for waiver, state in judged if state is WaiverState.EXPIRED]
    long = [waiver for waiver, state in judged if state is WaiverState.TOO_LONG]
    broken = [(result.rule, each) for result in results for each in result.broken]
    violations = tuple(
        expired(
            waiver,
            today,
            waiver.at if waiver in policy.agents else policy.path,
            any(meant(waiver, *each) for each in broken),
        )
        for waiver in over
    ) + tuple(too_long(waiver, today, policy) for waiver in long)
    notes = [
        f"{waiver.at} ({waiver.rule} for {waiver.subject}) matches nothing here: delete it"
        for waiver, state in judged
        if state is WaiverState.UNUSED
    ]
    notes += [
        f"{waiver.at} ({waiver.rule} for {waiver.subject}) ends on {waiver.expires},"
        f" in {count((waiver.expires - today).days, 'day')}: {waiver.owner}"
        for waiver, state in judged
        if state is WaiverState.SOON
    ]
    return Result(
        rule=WAIVERS,
        title=_WAIVERS_TITLE,
        outcome=Outcome.FAIL if violations else Outcome.PASS,
        level="error",
        closes=bool(violations),
        summary=_tally(judged),
        violations=violations,
        notes=tuple(map(printable, notes)),
    )


def _tally(judged: Judged) -> str:
    if not judged:
        return "no waivers"
    told = [count(len(judged), "waiver")]
    for wanted, word in ((WaiverState.EXPIRED, "expired"), (WaiverState.TOO_LONG, "too long")):
        number = sum(state is wanted for _, state in judged)
        told += [f"{number} {word}"] if number or wanted is WaiverState.EXPIRED else []
    return ", ".join(told)
