"""The gate's result as JSON, `sexton.gate/1` (docs/gate.md)."""

from __future__ import annotations

from typing import Any

from sexton.model.text import printable
from sexton.prevent.gate.model import SCHEMA, Gate, Result, Violation, Waiver


def gate_json(gate: Gate) -> dict[str, Any]:
    """Plain dicts and lists, ready for `json.dumps`."""
    return {
        "schema": SCHEMA,
        "exit": gate.exit,
        "passed": gate.passed,
        "place": gate.place,
        "kind": gate.kind,
        "os": gate.os or None,
        "booted": gate.booted,
        "policy": gate.policy,
        "today": gate.today.isoformat(),
        "made": gate.made_unix,
        "watched_s": round(gate.watched_s, 3),
        "rules": [_result(result) for result in gate.results],
        "waivers": [{**_waiver(waiver), "state": state.value} for waiver, state in gate.waivers],
        "notes": list(gate.notes),
    }


def _result(result: Result) -> dict[str, Any]:
    return {
        "id": result.rule,
        "title": result.title,
        "outcome": result.outcome.value,
        "closes": result.closes,
        "level": result.level,
        "summary": result.summary,
        "violations": [_violation(violation, result.rule) for violation in result.violations],
        "missing": [{"what": need.what, "grant": need.grant} for need in result.missing],
        "notes": list(result.notes),
        "spent_s": round(result.spent_s, 6),
    }


def _violation(violation: Violation, rule: str) -> dict[str, Any]:
    waiver = violation.waived_by
    return {
        "subject": violation.subject,
        "message": violation.message,
        "level": violation.level,
        "path": violation.path,
        "line": violation.line or None,
        "facts": list(violation.facts),
        "remedy": violation.remedy or None,
        "fingerprint": violation.fingerprint(rule),
        "waived_by": None if waiver is None else _waiver(waiver),
    }


def _waiver(waiver: Waiver) -> dict[str, Any]:
    return {
        "rule": waiver.rule,
        "subject": printable(waiver.subject),
        "owner": printable(waiver.owner),
        "expires": waiver.expires.isoformat(),
        "reason": printable(waiver.reason),
        "at": waiver.at,
    }
