"""An audit as `sexton.audit/1` (docs/json.md)."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import Any

from sexton.model.audit import SCHEMA, Audit, EnabledUnit, Reason, Subject
from sexton.prevent.audit.changes import Change, facts


def audit_json(audit: Audit, changed: Sequence[Change] | None = None) -> dict[str, Any]:
    """Plain dicts and lists; `changes` only with `--since`."""
    output: dict[str, Any] = {
        "schema": SCHEMA,
        "place": audit.place,
        "live": audit.live,
        "made_unix": round(audit.made_unix, 3),
        "watched_s": round(audit.watched_s, 3),
        "told": audit.has_units,
        "counts": _counts(audit),
        "workloads": None
        if audit.workloads is None
        else [
            {"kind": workload.kind, "count": workload.count, "example": workload.example}
            for workload in audit.workloads
        ],
        "subjects": [subject_json(subject) for subject in audit.subjects],
        "kubelet": [
            {
                "level": problem.level,
                "message": problem.message,
                "read_from": problem.read_from,
                "line": problem.line or None,
            }
            for problem in audit.kubelet
        ],
        "notes": list(audit.notes),
        "unread": list(audit.unread),
        "unseen": list(audit.unseen),
    }
    if changed is not None:
        output["changes"] = [
            {"unit": change.unit, "kind": change.kind, "what": list(change.what)}
            for change in changed
        ]
    return output


def subject_json(subject: Subject) -> dict[str, Any]:
    """One unit."""
    return {
        "unit": subject.unit,
        "verdict": subject.verdict.value,
        "agent": subject.agent or None,
        "title": subject.title or None,
        "state": subject.state or None,
        "reasons": [_reason(reason) for reason in subject.reasons],
        "against": [_reason(reason) for reason in subject.against],
        "unseen": list(subject.unseen),
        "wrong_if": subject.wrong_if or None,
        "faults": [
            {
                "id": fault.id,
                "detail": fault.detail,
                "fix": fault.fix,
                "read_from": fault.read_from,
                "starts_a_day": fault.starts_a_day,
            }
            for fault in subject.faults
        ],
        "restarts": subject.restarts,
        "deaths": subject.deaths,
        "owner": subject.owner or None,
        "expires": subject.expires or None,
        "policy": subject.policy or None,
        "enabled": None if subject.enabled is None else _enabled(subject.enabled),
        "facts": facts(subject),
    }


def _counts(audit: Audit) -> dict[str, int]:
    counts = {"unneeded": 0, "unknown": 0, "needed": 0, "protected": 0}
    for subject in audit.subjects:
        counts[subject.verdict.value] += 1
    counts["with_faults"] = sum(bool(subject.faults) for subject in audit.subjects)
    return counts


def _reason(reason: Reason) -> dict[str, str]:
    return {"what": reason.what, "value": reason.value, "read_from": reason.read_from}


def _enabled(unit: EnabledUnit) -> dict[str, Any]:
    policy = unit.restart
    return {
        "how": [{"kind": way.kind, "by": way.by, "at": way.at} for way in unit.how],
        "fragment": unit.fragment,
        "drop_ins": list(unit.drop_ins),
        "program": unit.program,
        "program_missing": unit.program_missing,
        "conditions": list(unit.conditions),
        "timer_s": _finite(unit.timer_s),
        "aliases": list(unit.aliases),
        "restart": {
            "restart": policy.restart,
            "delay_s": _finite(policy.delay_s),
            "limit_interval_s": _finite(policy.limit_interval_s),
            "limit_burst": policy.limit_burst,
            "steps": policy.steps,
            "max_delay_s": _finite(policy.max_delay_s),
            "prevent_status": policy.prevent_status or None,
        },
    }


def _finite(value: float | None) -> float | None:
    """JSON has no infinity: `null` stands for it here."""
    return None if value is None or isinf(value) else value
