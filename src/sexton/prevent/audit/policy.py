r"""Who answers for each agent, and until when: a file that people keep in git.

::

    schema = "sexton.audit-policy/1"

    [[agent]]
    unit = "amazon-cloudwatch-agent.service"    # a shell pattern does for many: "datadog-agent*"
    owner = "observability@example.com"         # a team: people leave
    expires = 2027-02-15                        # then somebody must say again that it is needed
    why = "metrics until the move to Prometheus"

`checked` marks in each subject what the policy has against it; protected units and parts of the
distribution need no owner. `written` makes such a file of an audit, and keeps what an older one
said.

>>> rules = parse('[[agent]]\nunit = "a*.service"\nowner = "ops"\nexpires = 2030-01-01\n', "p")
>>> rules[0].owner, str(rules[0].expires)
('ops', '2030-01-01')
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from sexton.errors import CommandError
from sexton.model.audit import Audit, Need, Subject
from sexton.model.text import printable
from sexton.prevent.audit.catalogue import BASE

SCHEMA = "sexton.audit-policy/1"
#: A new entry holds for a quarter: that is how often people mean to look.
FRESH = timedelta(days=91)
NOT_LISTED, NO_OWNER, EXPIRED = "not in the policy", "no owner", "expired"
_KEYS = {"unit", "owner", "expires", "why"}


class Entry(NamedTuple):
    """One agent's owner; `expires` `None`: for good."""

    unit: str
    owner: str
    expires: date | None
    why: str


def parse(text: str, path: str) -> tuple[Entry, ...]:
    """The entries of a policy; what makes no sense is refused by name, never passed over."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CommandError(f"{path}: {error}") from None
    schema = told.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise CommandError(f"{path}: schema {printable(str(schema))!r}, not {SCHEMA!r}")
    unknown = sorted(set(told) - {"schema", "agent"})
    if unknown:
        raise CommandError(f"{path}: {printable(unknown[0])!r} is not known; [[agent]] is")
    agents = told.get("agent", [])
    if not isinstance(agents, list):
        raise CommandError(f"{path}: agent must be a list of tables: [[agent]]")
    return tuple(_entry(each, number, path) for number, each in enumerate(agents, 1))


def _entry(told: Any, number: int, path: str) -> Entry:
    where = f"{path}: agent {number}"
    if not isinstance(told, dict) or not isinstance(told.get("unit"), str) or not told["unit"]:
        raise CommandError(f"{where} needs a unit")
    unknown = sorted(set(told) - _KEYS)
    if unknown:
        raise CommandError(f"{where}: {printable(unknown[0])!r} is not known")
    expires = told.get("expires")
    if expires is not None and type(expires) is not date:
        raise CommandError(f"{where}: expires must be a date without quotes, such as 2027-02-15")
    owner, why = told.get("owner", ""), told.get("why", "")
    if not isinstance(owner, str) or not isinstance(why, str):
        raise CommandError(f"{where}: owner and why are texts")
    return Entry(told["unit"], owner.strip(), expires, why.strip())


def checked(audit: Audit, entries: Sequence[Entry], today: date) -> Audit:
    """The audit with each subject's owner, and what the policy has against it."""
    return replace(
        audit,
        subjects=tuple(_checked(each, entries, today) for each in audit.subjects),
        notes=(*audit.notes, *_idle(audit, entries)),
    )


def _checked(subject: Subject, entries: Sequence[Entry], today: date) -> Subject:
    if not answers_for(subject):
        return subject
    found = next((each for each in entries if fnmatchcase(subject.unit, each.unit)), None)
    if found is None:
        return replace(subject, policy=NOT_LISTED)
    problem = ""
    if not found.owner:
        problem = NO_OWNER
    elif found.expires is not None and found.expires < today:
        problem = EXPIRED
    until = "" if found.expires is None else found.expires.isoformat()
    return replace(subject, owner=found.owner, expires=until, policy=problem)


def answers_for(subject: Subject) -> bool:
    """Does somebody have to own this?"""
    return subject.verdict is not Need.PROTECTED and subject.agent != BASE


def _idle(audit: Audit, entries: Sequence[Entry]) -> list[str]:
    idle = [
        each.unit
        for each in entries
        if not any(fnmatchcase(subject.unit, each.unit) for subject in audit.subjects)
    ]
    if not idle:
        return []
    shown = ", ".join(idle[:5]) + (" …" if len(idle) > 5 else "")
    return [f"the policy speaks of what is not here: {shown}"]


def written(audit: Audit, before: Sequence[Entry], today: date) -> str:
    """A policy of all that runs here, with the owners an older one knew."""
    lines = [
        "# Who answers for each agent on these nodes, and until when. Keep it in git:",
        "#   sexton audit --policy THIS      says what has no owner, has expired, or is new",
        "#   sexton audit --write-policy THIS adds what is new and keeps what is written here",
        f'schema = "{SCHEMA}"',
    ]
    covered = set()
    for each in before:
        until = f"expires = {each.expires.isoformat()}" if each.expires else ""
        lines += ["", "[[agent]]", f"unit = {_quoted(each.unit)}", f"owner = {_quoted(each.owner)}"]
        lines += [until] if until else []
        lines += [f"why = {_quoted(each.why)}"] if each.why else []
    for subject in audit.subjects:
        known = any(fnmatchcase(subject.unit, each.unit) for each in before)
        if known or subject.unit in covered or not answers_for(subject):
            continue
        covered.add(subject.unit)
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
