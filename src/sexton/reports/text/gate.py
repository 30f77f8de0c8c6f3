"""The gate's result as text (failed rules first, then warnings, then what passed) and as
`sexton.gate/1` (docs/gate.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sexton.model.text import count, printable, seconds, shorten
from sexton.prevent.gate.model import SCHEMA, Gate, Outcome, Result, Violation, Waiver
from sexton.reports.text.blocks import block, clamp, headline, picked
from sexton.reports.text.settings import in_one_line

_WORDS = {
    Outcome.FAIL: "FAIL",
    Outcome.UNKNOWN: "UNKNOWN",
    Outcome.WARN: "WARN",
    Outcome.PASS: "PASS",
    Outcome.NOT_APPLICABLE: "N/A",
    Outcome.OFF: "OFF",
}
_LABEL = 8
_INDENT = " " * (_LABEL + 3)
_MOST_VIOLATIONS = 10
_MOST_FACTS = 3
_MOST_NOTES = 5


def gate_text(gate: Gate, width: int = 88, colour: bool = False) -> str:
    """The whole report; `width` is kept between 60 and 110 columns."""
    width = clamp(width)
    word, shade = ("PASSED", "32") if gate.passed else ("FAILED", "31")
    state = "booted" if gate.booted else "not booted"
    facts = " · ".join(part for part in (gate.kind, gate.os, state) if part)
    lines = headline(word, f"{shorten(gate.place, 40)}   {facts}", width, shade if colour else "")
    lines += ["", *block(_lead(gate), width, " "), ""]
    for result in sorted(gate.results, key=_weight):
        lines += _result(result, width)
    lines += _not_checked(gate, width)
    for note in gate.notes:
        lines += block(note, width, _INDENT, first=f" {'NOTE':<{_LABEL}}  ")
    if gate.config.changes:
        config = in_one_line(gate.config)
        lines += block(config, width, _INDENT, first=f" {'CONFIG':<{_LABEL}}  ")
    lines += ["", *_footer(gate, width)]
    return "\n".join(lines) + "\n"


def _lead(gate: Gate) -> str:
    failing = [result for result in gate.results if result.closes]
    failed = [result.rule for result in failing if result.outcome is Outcome.FAIL]
    unknown = [result.rule for result in failing if result.outcome is Outcome.UNKNOWN]
    parts = []
    if failed:
        parts.append(f"{count(len(failed), 'rule')} failed: {', '.join(failed)}.")
    if unknown:
        parts.append(
            f"Could not be checked: {', '.join(unknown)}. An unchecked rule fails the gate, unless"
            ' the policy sets on_unknown = "pass".'
        )
    waived = sum(len(result.waived) for result in gate.results)
    passed = sum(result.outcome in (Outcome.PASS, Outcome.WARN) for result in gate.results)
    if not parts:
        parts.append(f"{count(passed, 'rule')} passed.")
    if waived:
        parts.append(f"{count(waived, 'violation')} waived.")
    idle = sum(result.outcome is Outcome.NOT_APPLICABLE for result in gate.results)
    if idle:
        parts.append(f"{idle} {'does' if idle == 1 else 'do'} not apply here.")
    warned = sum(result.outcome is Outcome.WARN for result in gate.results)
    if warned:
        parts.append(f"{count(warned, 'rule')} with warnings, which do not fail the gate.")
    return " ".join(parts)


def _weight(result: Result) -> tuple[bool, int]:
    return (not result.closes, list(Outcome).index(result.outcome))


def _result(result: Result, width: int) -> Iterator[str]:
    if result.outcome in (Outcome.NOT_APPLICABLE, Outcome.OFF):
        return
    head = f" {_WORDS[result.outcome]:<{_LABEL}}  "
    yield from block(f"{result.rule}  {result.summary}", width, _INDENT, first=head)
    shown = result.active[:_MOST_VIOLATIONS]
    for number, violation in enumerate(shown):
        yield from _violation(violation, width)
        later = {later_one.remedy for later_one in shown[number + 1 :]}
        if violation.remedy and violation.remedy not in later:  # do not repeat it
            yield f"{_INDENT}    {shorten(violation.remedy, 300)}"
    hidden = len(result.active) - _MOST_VIOLATIONS
    if hidden > 0:
        yield f"{_INDENT}  and {hidden:,} more: --format json lists all"
    for violation in result.waived[:_MOST_VIOLATIONS]:
        waiver = violation.waived_by
        assert waiver is not None
        text = (
            f"waived  {violation.subject}: {waiver.owner}, until {waiver.expires}"
            f" ({shorten(waiver.reason, 120)})"
        )
        yield from block(text, width, _INDENT + "    ", first=_INDENT + "  ")
    for lack in result.missing:
        yield from block(lack.what, width, _INDENT + "    ", first=_INDENT + "? ")
        if lack.grant:
            yield f"{_INDENT}    {shorten(lack.grant, 300)}"
    for note in result.notes[:_MOST_NOTES]:
        yield from block(note, width, _INDENT + "    ", first=_INDENT + "· ")


def _violation(violation: Violation, width: int) -> Iterator[str]:
    mark = "x" if violation.level == "error" else "!"
    place = f"{violation.path}:{violation.line}" if violation.line else violation.path
    place = shorten(place, width - len(_INDENT) - 4)
    message = violation.message
    facts: tuple[str, ...] = (place, *violation.facts[:_MOST_FACTS])
    if violation.line and not violation.facts:  # many problems of one file: one line each
        message, facts = f"{message} ({place})", ()
    yield from block(message, width, _INDENT + "  ", first=f"{_INDENT}{mark} ")
    for fact in facts:
        if fact:
            yield from block(fact, width, _INDENT + "    ", first=_INDENT + "  └ ")


def _not_checked(gate: Gate, width: int) -> Iterator[str]:
    """Rules that do not apply or are off; those with the same reason in one line."""
    for outcome in (Outcome.NOT_APPLICABLE, Outcome.OFF):
        reasons: dict[str, list[str]] = {}
        for result in gate.results:
            if result.outcome is outcome:
                reasons.setdefault(result.summary, []).append(result.rule)
        for reason, rules in reasons.items():
            head = f" {_WORDS[outcome]:<{_LABEL}}  "
            yield from block(f"{', '.join(rules)}: {reason}", width, _INDENT, first=head)


def _footer(gate: Gate, width: int) -> Iterator[str]:
    spent = sum(result.spent_s for result in gate.results)
    policy = "the built-in policy" if gate.policy == "built-in" else shorten(gate.policy, 40)
    watched = f"watched for {seconds(gate.watched_s)} · " if gate.watched_s else ""
    checked = sum(
        result.outcome not in (Outcome.NOT_APPLICABLE, Outcome.OFF) for result in gate.results
    )
    yield from block(
        f"{checked} of {len(gate.results)} rules checked against {policy} · {watched}"
        f"{seconds(spent)} checking · read-only",
        width,
        " ",
    )
    end = "gate passed" if gate.passed else "gate failed"
    yield f" exit {gate.exit}: {end}"


def gate_json(gate: Gate) -> dict[str, Any]:
    """Plain dicts and lists, ready for `json.dumps`."""
    return {
        "schema": SCHEMA,
        **picked(gate, "exit", "passed", "place", "kind"),
        "os": gate.os or None,
        "booted": gate.booted,
        "policy": gate.policy,
        "today": gate.today.isoformat(),
        "made": gate.made_unix,
        "watched_s": round(gate.watched_s, 3),
        "rules": [_result_json(result) for result in gate.results],
        "waivers": [
            {**_waiver_json(waiver), "state": state.value} for waiver, state in gate.waivers
        ],
        "notes": list(gate.notes),
        "config": gate.config.document if gate.config.changes else None,
    }


def _result_json(result: Result) -> dict[str, Any]:
    return {
        "id": result.rule,
        "title": result.title,
        "outcome": result.outcome.value,
        **picked(result, "closes", "level", "summary"),
        "violations": [_violation_json(violation, result.rule) for violation in result.violations],
        "missing": [picked(need, "what", "grant") for need in result.missing],
        "notes": list(result.notes),
        "spent_s": round(result.spent_s, 6),
    }


def _violation_json(violation: Violation, rule: str) -> dict[str, Any]:
    waiver = violation.waived_by
    return {
        **picked(violation, "subject", "message", "level", "path"),
        "line": violation.line or None,
        "facts": list(violation.facts),
        "remedy": violation.remedy or None,
        "fingerprint": violation.fingerprint(rule),
        "waived_by": None if waiver is None else _waiver_json(waiver),
    }


def _waiver_json(waiver: Waiver) -> dict[str, Any]:
    return {
        "rule": waiver.rule,
        "subject": printable(waiver.subject),
        "owner": printable(waiver.owner),
        "expires": waiver.expires.isoformat(),
        "reason": printable(waiver.reason),
        "at": waiver.at,
    }
