"""The words of a gate: what a rule found, what was waived, and what it comes to."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from sexton.host.host import Host
from sexton.model.audit import Audit
from sexton.model.finding import Missing
from sexton.model.text import printable
from sexton.model.window import Window

SCHEMA = "sexton.gate/1"
#: The pseudo-rule under which waivers themselves are judged.
WAIVERS = "waivers"


class Outcome(StrEnum):
    """*Unknown* could not be checked and counts as a failure unless the policy says otherwise; *not
    applicable* has nothing to be checked (no cgroups in an image that never ran)."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    WARN = "warn"
    PASS = "pass"
    NOT_APPLICABLE = "not_applicable"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Waiver:
    """One line of the policy: this rule may be broken by this subject until that day, and whose
    word that is. `subject` is a shell pattern; `expires` is the last day it holds (UTC)."""

    rule: str
    subject: str
    owner: str
    expires: datetime.date
    reason: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that breaks a rule. `subject` is what a waiver names: a unit, a field, "node".

    `path` and `line` are where it was read; `facts` the evidence, one line each; `remedy` what to
    do; `level` "error" or "warning": a warning is told and never closes the gate.
    """

    subject: str
    message: str
    path: str
    line: int = 0
    facts: tuple[str, ...] = ()
    remedy: str = ""
    level: str = "error"
    waived_by: Waiver | None = None

    def __post_init__(self) -> None:
        for name in ("subject", "message", "path", "remedy"):
            object.__setattr__(self, name, printable(getattr(self, name)))
        object.__setattr__(self, "facts", tuple(map(printable, self.facts)))

    def fingerprint(self, rule: str) -> str:
        """Stable over runs and nodes: what it is about, not the numbers of the day."""
        told = "\0".join((rule, self.subject, self.path))
        return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Checked:
    """What a rule's check says: one of three.

    Checked: `summary` says what was looked at and `violations` what broke the rule. Not checked:
    `missing` says what was lacking and how to get it. Nothing to check: `not_applicable` says why.
    """

    summary: str = ""
    violations: tuple[Violation, ...] = ()
    missing: tuple[Missing, ...] = ()
    not_applicable: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("summary", "not_applicable"):
            object.__setattr__(self, name, printable(getattr(self, name)))
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))


@dataclass(frozen=True, slots=True)
class Result:
    """A rule with its outcome. `closes` is true where it costs the exit code."""

    rule: str
    title: str
    outcome: Outcome
    level: str
    closes: bool
    summary: str
    violations: tuple[Violation, ...] = ()
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()
    spent_s: float = 0.0

    @property
    def broken(self) -> tuple[Violation, ...]:
        """Those nobody waived."""
        return tuple(each for each in self.violations if each.waived_by is None)

    @property
    def waived(self) -> tuple[Violation, ...]:
        return tuple(each for each in self.violations if each.waived_by is not None)


class WaiverState(StrEnum):
    """Used, matching nothing, over, used and over soon, or good for longer than is allowed."""

    USED = "used"
    UNUSED = "unused"
    EXPIRED = "expired"
    SOON = "expires soon"
    TOO_LONG = "too long"


@dataclass(frozen=True, slots=True)
class Gate:
    """The whole answer."""

    place: str
    kind: str
    os: str
    booted: bool
    policy: str
    made_unix: float
    today: datetime.date
    results: tuple[Result, ...]
    waivers: tuple[tuple[Waiver, WaiverState], ...] = ()
    watched_s: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """May it pass?"""
        return not any(result.closes for result in self.results)

    @property
    def exit(self) -> int:
        return 0 if self.open else 1


@dataclass
class Place:
    """What is judged: a node, watched for a while, or the files of an image.

    `booted` is false where nothing runs in there; then `window` is `None`. `auditing` is asked
    once, however many rules want the audit.
    """

    host: Host
    name: str
    kind: str
    booted: bool
    window: Window | None
    auditing: Callable[[Host, Window | None], Audit]
    os_release: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @cached_property
    def audit(self) -> Audit:
        return self.auditing(self.host, self.window)

    @property
    def os(self) -> str:
        """Which operating system, for a person."""
        return self.os_release.get("PRETTY_NAME") or self.os_release.get("ID", "")


#: One rule's settings, all there and of the right kinds: the built-in ones with the policy's over.
Settings = Mapping[str, Any]


def waived(violation: Violation, waiver: Waiver) -> Violation:
    """The same, excused."""
    return replace(violation, waived_by=waiver)
