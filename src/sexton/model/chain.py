"""Findings joined into causes."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from sexton.model.finding import Evidence, Rows
from sexton.model.frozen import Frozen, frozen
from sexton.model.text import escape


class Strength(StrEnum):
    """How sure a link is, by the rule written in its module."""

    PROVEN = "proven"
    LIKELY = "likely"
    POSSIBLE = "possible"

    @property
    def rank(self) -> int:
        """Higher is surer."""
        return {"possible": 0, "likely": 1, "proven": 2}[self.value]


class Bond(NamedTuple):
    """What joins a cause to an effect; `shared` is the entity they have in common.

    `covers` is how many of the effect's things the strength covers, and how many there are:
    of 12,098 dying cgroups 2,048 may be proven to come from the cause. `None`: all of them.
    `since` is the time (UNIX) from which the cause explains the effect, if the effect began before.
    """

    strength: Strength
    sentence: str
    shared: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    against: tuple[str, ...] = ()
    covers: tuple[int, int] | None = None
    since: float | None = None


@frozen
class Link(Frozen):
    """A `Bond` under the id of its rule; `cause` and `effect` are finding ids."""

    id: str
    cause: str
    effect: str
    strength: Strength
    sentence: str
    shared: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    against: tuple[str, ...] = ()
    covers: tuple[int, int] | None = None
    since: float | None = None
    rows: tuple[Rows, ...] = ()

    @property
    def sure(self) -> str:
        """The strength in words, with the part of the effect that it covers.

        >>> link = Link("x", "a", "b", Strength.PROVEN, "", covers=(2048, 12098))
        >>> link.sure
        'proven for 2,048 of 12,098'
        """
        if self.covers is None or self.covers[0] >= self.covers[1]:
            return self.strength.value
        part = f"for {self.covers[0]:,} of {self.covers[1]:,}"
        known = "" if self.strength is Strength.PROVEN else ", known"
        return f"{self.strength}{known} {part}"

    @property
    def is_partial(self) -> bool:
        """Whether it covers less than half of the effect."""
        return self.covers is not None and 2 * self.covers[0] < self.covers[1]

    def __post_init__(self) -> None:
        escape(self, "sentence", "shared", "against")


@frozen
class Rival(Frozen):
    """One cause among several that a symptom may have, with the evidence for and against it.

    `chosen` is the one that the best chain takes.
    """

    cause: str
    strength: Strength
    chosen: bool
    sentence: str
    against: tuple[str, ...] = ()


@frozen
class Contest(Frozen):
    """A symptom with more than one possible cause, the strongest first."""

    symptom: str
    rivals: tuple[Rival, ...]


@frozen
class Coincidence(Frozen):
    """Findings that rise together without proof that one causes the other."""

    findings: tuple[str, ...]
    sentence: str
    would_prove: str


@frozen
class Chain(Frozen):
    """Links end to end. It is as strong as its weakest link."""

    links: tuple[Link, ...]

    @property
    def root(self) -> str:
        return self.links[0].cause

    @property
    def symptom(self) -> str:
        return self.links[-1].effect

    @property
    def findings(self) -> tuple[str, ...]:
        """Finding ids from the root to the symptom."""
        return (self.root, *(link.effect for link in self.links))

    @property
    def strength(self) -> Strength:
        return min((link.strength for link in self.links), key=lambda strength: strength.rank)
