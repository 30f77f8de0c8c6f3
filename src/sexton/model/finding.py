"""What a detector reports about a window."""

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
    """`INFO` never changes the exit status; from `WARNING` up it is a problem."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


@frozen
class Evidence(Frozen):
    """One measured thing: what it is, its value here, what is normal, and where it was read.

    `value` and `normal` are for people ("68,440", "< 50"); `number` is the value for machines.
    `wrong_if` says what would make this evidence misleading; `outlook` marks a forecast rather than
    a current state.
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
    """Data that a finding would have needed, and the exact command or step that provides it."""

    what: str
    grant: str

    def __post_init__(self) -> None:
        escape(self, "what", "grant")


@frozen
class Rows(Frozen):
    """Rows that support a claim: of one table, read from `start` to `end` (UNIX)."""

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
    """A symptom: present, absent, unknown or not applicable.

    `entities` names what it is about, by kind: "core", "task", "unit", "cgroup", "nic", "queue",
    "irq"; links join findings through them. `summary` is one line without a full stop. `start`
    and `end` are UNIX seconds, `None` if the finding has no time. Every text is escaped at
    creation, so that it can be printed anywhere. `essential` is the detector's rank among those
    that must be known before a node is called healthy, 0 for the others; the registry sets it.
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
        """Whether it makes the exit status 1."""
        grave = self.verdict is Verdict.PRESENT and self.severity.rank >= Severity.WARNING.rank
        return grave and self.silenced is None

    def shares(self, other: Finding, kind: str) -> tuple[str, ...]:
        """The entities of one kind that both are about."""
        mine = self.entities.get(kind, ())
        return tuple(name for name in mine if name in other.entities.get(kind, ()))
