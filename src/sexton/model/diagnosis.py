"""The whole answer about one node; every surface renders this and holds no logic of its own."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from sexton.model.chain import Chain, Coincidence, Contest
from sexton.model.finding import Finding, Verdict
from sexton.model.frozen import Frozen, frozen
from sexton.model.rows.node import Node
from sexton.model.settings import Settings
from sexton.model.window import SourceState


class Exit(IntEnum):
    """Exit status of the commands; scripts may rely on it. `word` is the verdict in reports."""

    word: str
    meaning: str

    HEALTHY = 0, "HEALTHY", "healthy"
    PROBLEM = 1, "SICK", "a problem was found"
    FAILED = 2, "FAILED", "sexton itself failed"
    CANNOT_TELL = 3, "CANNOT TELL", "cannot tell"

    def __new__(cls, status: int, word: str, meaning: str) -> Exit:
        made = int.__new__(cls, status)
        made._value_, made.word, made.meaning = status, word, meaning
        return made


@frozen
class Step(Frozen):
    """One thing to do: a command to type, what it does, and what it risks. Nothing is run."""

    do: str
    why: str
    risk: str


class Cost(NamedTuple):
    """What the diagnosis itself cost the node."""

    watched_s: float
    cpu_s: float
    peak_bytes: int | None
    touched: str


class Replayed(NamedTuple):
    """The recording that was diagnosed, and notes about its span. `scraped`: it is a Prometheus,
    which no other command reads."""

    recording: str
    notes: tuple[str, ...]
    scraped: bool = False


@frozen
class Diagnosis(Frozen):
    """Findings in order of severity, chains in order of strength.

    `nics` are the physical interfaces with driver and version: resets depend on them as much as on
    the kernel. `replayed` is `None` for a live diagnosis.
    """

    node: Node | None
    start: float
    end: float
    findings: tuple[Finding, ...]
    chains: tuple[Chain, ...]
    unexplained: tuple[str, ...]
    against: tuple[str, ...]
    plan: tuple[Step, ...]
    sources: tuple[SourceState, ...]
    hierarchy: str | None = None
    nics: tuple[str, ...] = ()
    cost: Cost | None = None
    replayed: Replayed | None = None
    contests: tuple[Contest, ...] = ()
    coincidences: tuple[Coincidence, ...] = ()
    #: The best chain as a timeline; one sentence each.
    story: tuple[str, ...] = ()
    #: What the node's owner configured, as it was in force for this diagnosis.
    settings: Settings = Settings()

    @property
    def by_id(self) -> Mapping[str, Finding]:
        return {finding.id: finding for finding in self.findings}

    @property
    def essential(self) -> tuple[Finding, ...]:
        """Findings that must be known before a node is called healthy, by rank."""
        found = [finding for finding in self.findings if finding.essential]
        return tuple(sorted(found, key=lambda finding: finding.essential))

    @property
    def exit(self) -> Exit:
        """1 for a problem, else 3 when an essential question has no answer, else 0."""
        if any(finding.is_problem for finding in self.findings):
            return Exit.PROBLEM
        essential = self.essential
        if not essential or any(finding.verdict is Verdict.UNKNOWN for finding in essential):
            return Exit.CANNOT_TELL
        return Exit.HEALTHY
