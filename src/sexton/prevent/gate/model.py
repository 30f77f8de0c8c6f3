"""The gate's records: violations, waivers, rule results and the overall answer."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sexton.model.finding import Missing
from sexton.model.settings import Settings as Configuration
from sexton.model.text import printable

SCHEMA = "sexton.gate/1"
#: The id under which the waivers themselves are checked.
WAIVERS = "waivers"

#: One rule's settings, complete and type-checked: the built-in values with the policy's on top.
Settings = Mapping[str, Any]


class Outcome(StrEnum):
    """*Unknown*: could not be checked; fails the gate unless the policy sets `on_unknown` to pass.
    *Not applicable*: there is nothing to check (no cgroups in an image that was never booted)."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    WARN = "warn"
    PASS = "pass"
    NOT_APPLICABLE = "not_applicable"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Waiver:
    """A policy entry that lets `subject` violate `rule` until `expires`, with an accountable owner.

    `subject` is a shell pattern; `expires` is the last day the waiver is valid (UTC); `at` is its
    place in the policy.
    """

    rule: str
    subject: str
    owner: str
    expires: datetime.date
    reason: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation of a rule. `subject` is what a waiver names: a unit, a field, "node".

    `path` and `line` say where it was read; `facts` are evidence, one line each; `remedy` is what
    to do; `level` is "error" or "warning" (reported, never fails the gate).
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
        """Stable across runs and nodes: rule, subject and path, without measured values."""
        key = "\0".join((rule, self.subject, self.path))
        return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Checked:
    """What a rule's check returns, one of three cases.

    Checked: `summary` says what was read and `violations` what violates the rule. Not checked:
    `missing` says what is missing and how to get it. Nothing to check: `not_applicable` says why.
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
    """A rule with its outcome. `closes` is true if it fails the gate."""

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
    def active(self) -> tuple[Violation, ...]:
        """Violations without a waiver."""
        return tuple(violation for violation in self.violations if violation.waived_by is None)

    @property
    def waived(self) -> tuple[Violation, ...]:
        return tuple(violation for violation in self.violations if violation.waived_by is not None)


class WaiverState(StrEnum):
    """`TOO_LONG`: it ends later than the policy's `waiver_days` allows."""

    USED = "used"
    UNUSED = "unused"
    EXPIRED = "expired"
    SOON = "expires soon"
    TOO_LONG = "too long"


@dataclass(frozen=True, slots=True)
class Gate:
    """The overall answer."""

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
    #: Of this machine: thresholds and detectors that are off. Nothing for an image.
    config: Configuration = field(default_factory=Configuration)

    @property
    def passed(self) -> bool:
        return not any(result.closes for result in self.results)

    @property
    def exit(self) -> int:
        return 0 if self.passed else 1
