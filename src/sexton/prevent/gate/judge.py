"""Runs every rule of a policy against a target, then checks the waivers themselves."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from sexton.detect.registry import settings_in_force
from sexton.model.finding import Missing
from sexton.model.settings import Settings as Configuration
from sexton.model.text import count, printable
from sexton.prevent.gate.model import (
    WAIVERS,
    Checked,
    Gate,
    Outcome,
    Result,
    Settings,
    Violation,
    Waiver,
    WaiverState,
)
from sexton.prevent.gate.policy import Policy
from sexton.prevent.gate.rules import Rule, all_rules
from sexton.prevent.gate.target import NOT_BOOTED, Target

_REBUILD = "build or copy the image again, or repair it (e2fsck -f IMAGE)"
_MOST_DAMAGE = 3
_WAIVERS_TITLE = "No waiver has expired or runs too long"
WaiverStates = tuple[tuple[Waiver, WaiverState], ...]


def judge(target: Target, policy: Policy, today: datetime.date) -> Gate:
    """Check every rule in the policy's order, then the waivers."""
    # First all checks, then the results: a later check may find that the image is damaged.
    checks = [(rule, *_check(rule, target, policy)) for rule in all_rules()]
    results = tuple(
        replace(_result(rule, _with_damage(checked, target), policy, today), spent_s=spent_s)
        for rule, checked, spent_s in checks
    )
    violations = [(result.rule, violation) for result in results for violation in result.violations]
    agents = [agent for agent in policy.agents if any(covers(agent, *one) for one in violations)]
    states = waiver_states(policy, agents, violations, today)
    window = target.window
    return Gate(
        place=printable(target.name),
        kind=target.kind,
        os=printable(target.os),
        booted=target.booted,
        policy=printable(policy.name),
        made_unix=time.time(),
        today=today,
        results=(*results, _waivers(states, results, policy, today, target.booted)),
        waivers=states,
        watched_s=window.seconds if window is not None else 0.0,
        notes=tuple(map(printable, target.notes)),
        config=_config() if target.booted else Configuration(),
    )


def _config() -> Configuration:
    """The settings in force, without silences: a gate has waivers, which have an owner."""
    return replace(settings_in_force(), silences=(), expired=())


def _check(rule: Rule, target: Target, policy: Policy) -> tuple[Checked | None, float]:
    """What the rule found, `None` if it is off; and how long that took."""
    settings = policy.rules[rule.id]
    if not settings["enabled"]:
        return None, 0.0
    began = time.monotonic()
    return rule.check(target, settings), time.monotonic() - began


def _with_damage(checked: Checked | None, target: Target) -> Checked | None:
    """The result with the image's damage added: what was not found may still be there."""
    if checked is None or not target.unread or checked.not_applicable == NOT_BOOTED:
        return checked
    lines = [line for line in target.unread if all(line != lack.what for lack in checked.missing)]
    missing = tuple(Missing(line, _REBUILD) for line in lines[:_MOST_DAMAGE])
    return replace(checked, not_applicable="", missing=(*checked.missing, *missing))


def _result(rule: Rule, checked: Checked | None, policy: Policy, today: datetime.date) -> Result:
    settings = policy.rules[rule.id]
    level: str = settings["level"]
    if checked is None:
        off = "disabled by the policy"
        return Result(rule.id, rule.title, Outcome.OFF, level, False, off)
    waivers = (*policy.waivers, *policy.agents)
    violations = apply_waivers(rule.id, checked.violations, waivers, today)
    outcome, closes = _outcome(checked, settings, violations)
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
    )


def _outcome(
    checked: Checked, settings: Settings, violations: Sequence[Violation]
) -> tuple[Outcome, bool]:
    """The outcome, and whether it fails the gate."""
    if checked.not_applicable:
        return Outcome.NOT_APPLICABLE, False
    active = [violation for violation in violations if violation.waived_by is None]
    can_fail = settings["level"] == "error"
    if can_fail and any(violation.level == "error" for violation in active):
        return Outcome.FAIL, True
    if checked.missing:
        return Outcome.UNKNOWN, can_fail and settings["on_unknown"] == "fail"
    return (Outcome.WARN if active else Outcome.PASS), False


def apply_waivers(
    rule: str, violations: Iterable[Violation], waivers: Sequence[Waiver], today: datetime.date
) -> tuple[Violation, ...]:
    """The violations of a rule, each with the waiver that covers it today, if any."""
    return tuple(
        next(
            (
                replace(violation, waived_by=waiver)
                for waiver in waivers
                if waiver.expires >= today and covers(waiver, rule, violation)
            ),
            violation,
        )
        for violation in violations
    )


def waiver_states(
    policy: Policy,
    agents: Sequence[Waiver],
    violations: Sequence[tuple[str, Violation]],
    today: datetime.date,
) -> WaiverStates:
    """The state of every waiver of the policy and of `agents`. `violations` are (rule, violation),
    waived or not."""
    states = []
    for waiver in (*policy.waivers, *agents):
        used = any(covers(waiver, rule, violation) for rule, violation in violations)
        days_left = (waiver.expires - today).days
        if days_left < 0:
            state = WaiverState.EXPIRED
        elif waiver not in agents and 0 < policy.waiver_days < days_left:
            state = WaiverState.TOO_LONG
        elif not used:
            state = WaiverState.UNUSED
        else:
            state = WaiverState.SOON if days_left <= policy.warn_days else WaiverState.USED
        states.append((waiver, state))
    return tuple(states)


def covers(waiver: Waiver, rule: str, violation: Violation) -> bool:
    """Whether the waiver matches this violation."""
    return waiver.rule == rule and fnmatchcase(violation.subject, waiver.subject)


def _unchecked(rule: str, results: Sequence[Result], booted: bool) -> str:
    """Why a waiver that matches nothing here may match elsewhere; empty if it cannot."""
    if not booted:
        return "an image that is not booted"
    outcome = next((result.outcome for result in results if result.rule == rule), Outcome.OFF)
    words = {
        Outcome.NOT_APPLICABLE: "not applicable here",
        Outcome.UNKNOWN: "unknown here",
        Outcome.OFF: "disabled by the policy",
    }
    return f"{rule} is {words[outcome]}" if outcome in words else ""


def _waivers(
    states: WaiverStates,
    results: tuple[Result, ...],
    policy: Policy,
    today: datetime.date,
    booted: bool,
) -> Result:
    """The waivers themselves, checked like a rule."""
    active = [(result.rule, violation) for result in results for violation in result.active]
    violations = []
    notes = []
    for waiver, state in states:
        name = f"{waiver.at} ({waiver.rule} for {waiver.subject})"
        unchecked = _unchecked(waiver.rule, results, booted)
        if state is WaiverState.EXPIRED:
            path = waiver.at if waiver in policy.agents else policy.path
            needed = any(covers(waiver, *pair) for pair in active)
            violations.append(_expired(waiver, today, path, _renewal(needed, unchecked)))
        elif state is WaiverState.TOO_LONG:
            violations.append(_too_long(waiver, today, policy))
        elif state is WaiverState.UNUSED:
            advice = f"keep it ({unchecked})" if unchecked else "delete it"
            notes.append(f"{name} matches nothing here: {advice}")
        elif state is WaiverState.SOON:
            left = count((waiver.expires - today).days, "day")
            notes.append(f"{name} expires on {waiver.expires}, in {left}: {waiver.owner}")
    return Result(
        rule=WAIVERS,
        title=_WAIVERS_TITLE,
        outcome=Outcome.FAIL if violations else Outcome.PASS,
        level="error",
        closes=bool(violations),
        summary=_tally(states),
        violations=tuple(violations),
        notes=tuple(map(printable, notes)),
    )


def _renewal(needed: bool, unchecked: str) -> str:
    if needed:
        return "fix the violation, or renew the waiver with its owner"
    if unchecked:
        return "renew or delete it: not checked here"
    return "nothing violates the rule: delete the waiver"


def _expired(waiver: Waiver, today: datetime.date, path: str, remedy: str) -> Violation:
    """An expired waiver fails the gate even if nothing needs it: renew or delete it."""
    ago = count((today - waiver.expires).days, "day")
    message = (
        f"the waiver of {waiver.rule} for {waiver.subject} expired on {waiver.expires}"
        f" ({ago} ago); owner {waiver.owner}, reason: {waiver.reason}"
    )
    return Violation(f"{waiver.rule}:{waiver.subject}", message, path, 0, (waiver.at,), remedy)


def _too_long(waiver: Waiver, today: datetime.date, policy: Policy) -> Violation:
    latest = today + datetime.timedelta(days=policy.waiver_days)
    message = (
        f"the waiver of {waiver.rule} for {waiver.subject} expires on {waiver.expires}, more than"
        f" {count(policy.waiver_days, 'day')} ahead; owner {waiver.owner}, reason: {waiver.reason}"
    )
    what = f"set expires to {latest} or earlier, or raise waiver_days in the policy"
    return Violation(f"{waiver.rule}:{waiver.subject}", message, policy.path, 0, (waiver.at,), what)


def _tally(states: WaiverStates) -> str:
    if not states:
        return "no waivers"
    parts = [count(len(states), "waiver")]
    for wanted, word in ((WaiverState.EXPIRED, "expired"), (WaiverState.TOO_LONG, "too long")):
        number = sum(state is wanted for _, state in states)
        parts += [f"{number} {word}"] if number or wanted is WaiverState.EXPIRED else []
    return ", ".join(parts)
