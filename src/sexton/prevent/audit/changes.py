"""Compares an audit with the JSON of an earlier one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sexton.errors import CommandError
from sexton.model.audit import SCHEMA, Audit, Subject
from sexton.model.text import printable


class Change(NamedTuple):
    """A changed unit: `kind` is "new", "gone" or "changed"; `what` lists the differences."""

    unit: str
    kind: str
    what: tuple[str, ...]
    subject: Subject | None

    @property
    def bad(self) -> bool:
        """Whether the exit status is 1: for a unit that is new or changed *and* a finding."""
        return self.subject is not None and self.subject.is_finding


class Before(NamedTuple):
    """An earlier audit: when, where, and the units by name."""

    made_unix: float
    place: str
    subjects: Mapping[str, Mapping[str, Any]]


def parse(text: str, path: str) -> Before:
    """The output of an earlier ``sexton audit --json``."""
    try:
        values = json.loads(text)
        if values["schema"] != SCHEMA:
            schema = printable(str(values["schema"]))
            raise CommandError(f"{path}: schema is {schema}; expected {SCHEMA}")
        subjects = {str(subject["unit"]): subject for subject in values["subjects"]}
        return Before(float(values["made_unix"]), str(values["place"]), subjects)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CommandError(f"{path}: not the output of sexton audit --json") from None


def changes(before: Before, now: Audit) -> tuple[Change, ...]:
    """New, changed and removed units."""
    found = []
    for subject in now.subjects:
        earlier = before.subjects.get(subject.unit)
        if earlier is None:
            found.append(Change(subject.unit, "new", (f"{subject.verdict}",), subject))
            continue
        what = tuple(_differences(earlier, facts(subject)))
        if what:
            found.append(Change(subject.unit, "changed", what, subject))
    here = {subject.unit for subject in now.subjects}
    gone = sorted(printable(unit) for unit in before.subjects if unit not in here)
    found += [Change(unit, "gone", (), None) for unit in gone]
    return tuple(found)


def facts(subject: Subject) -> dict[str, Any]:
    """What is compared: verdict, configuration and policy, not measured values."""
    enabled = subject.enabled
    return {
        "verdict": subject.verdict.value,
        "faults": sorted(fault.id for fault in subject.faults),
        "enabled_by": sorted(way.at for way in enabled.how) if enabled else [],
        "fragment": enabled.fragment if enabled else "",
        "drop_ins": list(enabled.drop_ins) if enabled else [],
        "restart": list(enabled.restart.written) if enabled else [],
        "program": enabled.program if enabled else "",
        "owner": subject.owner,
        "expires": subject.expires,
        "policy": subject.policy,
    }


_WORDS = {
    "verdict": "verdict",
    "faults": "faults",
    "enabled_by": "enabled by",
    "fragment": "unit file",
    "drop_ins": "drop-ins",
    "restart": "restart policy",
    "program": "program",
    "owner": "owner",
    "expires": "expiry",
    "policy": "policy",
}


def _differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    then = earlier.get("facts")
    if not isinstance(then, dict):
        return []
    return [
        f"{_WORDS[key]}: {_shown(then.get(key))} → {_shown(value)}"
        for key, value in now.items()
        if key in then and then[key] != value
    ]


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return printable(", ".join(map(str, value))) or "none"
    return printable(str(value)) or "none"
