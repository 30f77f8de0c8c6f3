"""What a detector says of a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import NamedTuple

from sexton.model.frozen import Frozen, frozen
from sexton.model.text import escape, printable


class Verdict(StrEnum):
    """*Unknown* is an answer; *not applicable* is another (no NIC, no service manager)."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"


class Severity(StrEnum):
    """`INFO` is worth a line and never an exit code; from `WARNING` up a problem was found."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


@frozen
class Evidence(Frozen):
    """One measured thing: what it is, its value here, what is normal, and where it was read.

    `value` and `normal` are as a person reads them ("68,440", "< 50"); `number` is the value for
    machines. `wrong_if` says what would make this evidence misleading; `outlook` marks a
    forecast rather than a current state.
    """

    what: str
    value: str
    normal: str
    unit: str
    source: str
    number: float | None = None
    wrong_if: str = ""
    outlook: bool = False

    def __post_init__(self) -> None:
        escape(self, "what", "value", "normal", "unit", "source", "wrong_if")


@frozen
class Missing(Frozen):
    """Something a finding would have needed, and the exact command or step that would show it."""

    what: str
    grant: str

    def __post_init__(self) -> None:
        escape(self, "what", "grant")


@frozen
class Rows(Frozen):
    """Rows that a claim stands on: so many of one table, read from `start` to `end` (UNIX)."""

    table: str
    rows: int
    start: float
    end: float


class Silenced(NamedTuple):
    """Until when (UNIX seconds) a finding is not a problem, and why."""

    until: float
    reason: str


@frozen
class Finding(Frozen):
    """A symptom: there, not there, not to be known from here, or not applicable.

    `entities` names what it is about, by kind: "core", "task", "unit", "cgroup", "nic", "queue",
    "irq"; links join findings through them. `summary` is one line without a full stop. `start`
    and `end` are UNIX seconds, `None` where the finding has no moment. Every text is escaped on
    the way in, so that every surface may print it. `essential` is the detector's rank among those
    without which a node is not called healthy, 0 for the others; the registry sets it.
    """

    id: str
    verdict: Verdict
    severity: Severity
    summary: str
    entities: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    start: float | None = None
    end: float | None = None
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()
    rows: tuple[Rows, ...] = ()
    essential: int = 0
    #: Set if the node's owner silenced it; then it is not a problem.
    silenced: Silenced | None = None

    def __post_init__(self) -> None:
        escape(self, "summary")
        object.__setattr__(
            self,
            "entities",
            {kind: tuple(map(printable, names)) for kind, names in self.entities.items() if names},
        )

    @property
    def is_problem(self) -> bool:
        """Does it cost the exit code?"""
        grave = self.verdict is Verdict.PRESENT and self.severity.rank >= Severity.WARNING.rank
        return grave and self.silenced is None

    def shares(self, other: Finding, kind: str) -> tuple[str, ...]:
        """The entities of one kind that both are about."""
        mine = self.entities.get(kind, ())
        return tuple(name for name in mine if name in other.entities.get(kind, ()))
