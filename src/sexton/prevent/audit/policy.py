r"""The audit policy: an owner and an expiry for each agent, in a file kept in git.

::

    schema = "sexton.audit-policy/1"

    [[agent]]
    unit = "amazon-cloudwatch-agent.service"    # or a shell pattern: "datadog-agent*"
    owner = "observability@example.com"         # a team: people leave
    expires = 2027-02-15                        # confirm by then that it is still needed
    why = "metrics until the move to Prometheus"

`check_policy` marks each unit that violates the policy; protected units and parts of the
distribution need no owner. `policy_text` writes such a file from an audit and keeps the entries of
an older one.

>>> rules = parse('[[agent]]\nunit = "a*.service"\nowner = "ops"\nexpires = 2030-01-01\n', "p")
>>> rules[0].owner, str(rules[0].expires)
('ops', '2030-01-01')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from sexton.errors import CommandError
from sexton.model.audit import Audit, Need, Subject
from sexton.model.text import printable
from sexton.model.toml import parse_toml
from sexton.prevent.audit.catalogue import BASE

SCHEMA = "sexton.audit-policy/1"
#: A new entry is valid for a quarter.
FRESH = timedelta(days=91)
NOT_LISTED, NO_OWNER, EXPIRED = "not in the policy", "no owner", "expired"
_KEYS = {"unit", "owner", "expires", "why"}


class Entry(NamedTuple):
    """One agent's owner; `expires` is `None` if it never expires."""

    unit: str
    owner: str
    expires: date | None
    why: str


def parse(text: str, path: str) -> tuple[Entry, ...]:
    """The entries of a policy; an invalid entry is an error, never skipped."""
    try:
        values = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: invalid TOML: {error}") from None
    schema = values.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise CommandError(f"{path}: schema is {printable(str(schema))!r}; expected {SCHEMA!r}")
    unknown = sorted(set(values) - {"schema", "agent"})
    if unknown:
        raise CommandError(f"{path}: unknown key {printable(unknown[0])!r}; expected [[agent]]")
    agents = values.get("agent", [])
    if not isinstance(agents, list):
        raise CommandError(f"{path}: agent must be a list of tables: [[agent]]")
    return tuple(_entry(agent, number, path) for number, agent in enumerate(agents, 1))


def _entry(values: Any, number: int, path: str) -> Entry:
    where = f"{path}: agent {number}"
    if not isinstance(values, dict):
        raise CommandError(f"{where} must be a table: [[agent]]")
    if not isinstance(values.get("unit"), str) or not values["unit"]:
        raise CommandError(f"{where} has no unit")
    unknown = sorted(set(values) - _KEYS)
    if unknown:
        raise CommandError(f"{where}: unknown key {printable(unknown[0])!r}")
    expires = values.get("expires")
    if expires is not None and type(expires) is not date:
        raise CommandError(f"{where}: expires must be a date without quotes, such as 2027-02-15")
    owner, why = values.get("owner", ""), values.get("why", "")
    if not isinstance(owner, str) or not isinstance(why, str):
        raise CommandError(f"{where}: owner and why must be strings")
    return Entry(values["unit"], owner.strip(), expires, why.strip())


def check_policy(audit: Audit, entries: Sequence[Entry], today: date) -> Audit:
    """The audit with each unit's owner, expiry and policy violation."""
    return replace(
        audit,
        subjects=tuple(_check_subject(subject, entries, today) for subject in audit.subjects),
        notes=(*audit.notes, *_unmatched(audit, entries)),
    )


def _check_subject(subject: Subject, entries: Sequence[Entry], today: date) -> Subject:
    if not needs_owner(subject):
        return subject
    found = next((entry for entry in entries if fnmatchcase(subject.unit, entry.unit)), None)
    if found is None:
        return replace(subject, policy=NOT_LISTED)
    problem = ""
    if not found.owner:
        problem = NO_OWNER
    elif found.expires is not None and found.expires < today:
        problem = EXPIRED
    until = "" if found.expires is None else found.expires.isoformat()
    return replace(subject, owner=found.owner, expires=until, policy=problem)


def needs_owner(subject: Subject) -> bool:
    """Whether the policy must name an owner."""
    return subject.verdict is not Need.PROTECTED and subject.agent != BASE


def _unmatched(audit: Audit, entries: Sequence[Entry]) -> list[str]:
    unmatched = [
        entry.unit
        for entry in entries
        if not any(fnmatchcase(subject.unit, entry.unit) for subject in audit.subjects)
    ]
    if not unmatched:
        return []
    shown = ", ".join(unmatched[:5]) + (" …" if len(unmatched) > 5 else "")
    return [f"policy entries that match nothing here: {shown}"]


def policy_text(audit: Audit, before: Sequence[Entry], today: date) -> str:
    """A policy with an entry for every agent here, including the entries of an older one."""
    lines = [
        "# Owner and expiry of each agent on these nodes. Keep this file in git.",
        "#   sexton audit --policy FILE        reports what has no owner, has expired or is new",
        "#   sexton audit --write-policy FILE  adds what is new and keeps existing entries",
        f'schema = "{SCHEMA}"',
    ]
    for entry in before:
        lines += ["", "[[agent]]", f"unit = {_quoted(entry.unit)}"]
        lines.append(f"owner = {_quoted(entry.owner)}")
        lines += [f"expires = {entry.expires.isoformat()}"] if entry.expires else []
        lines += [f"why = {_quoted(entry.why)}"] if entry.why else []
    for subject in audit.subjects:
        known = any(fnmatchcase(subject.unit, entry.unit) for entry in before)
        if known or not needs_owner(subject):
            continue
        title = f", {subject.title}" if subject.title else ""
        lines += [
            "",
            f"# {subject.verdict}{title}"[:200],
            "[[agent]]",
            f"unit = {_quoted(subject.unit)}",
            'owner = ""',
            f"expires = {(today + FRESH).isoformat()}",
            'why = ""',
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    r"""A TOML string.

    >>> _quoted('a"b\\c')
    '"a\\"b\\\\c"'
    """
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
