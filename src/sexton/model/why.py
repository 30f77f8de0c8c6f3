"""The answer to "why?": the queried entity, and the findings and chains that concern it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sexton.model.chain import Chain, Coincidence, Contest
from sexton.model.diagnosis import Diagnosis, Exit
from sexton.model.finding import Finding, Missing, Verdict
from sexton.model.text import escape

if TYPE_CHECKING:
    from sexton.model.aligned import Aligned


@dataclass(frozen=True, slots=True)
class Subject:
    """What the question is about.

    `kind` is "moment", "symptom" (a finding's id), "function" (of the kernel, by its stacks) or one
    of the kinds of a finding's entities: "core", "task", "unit", "cgroup", "nic", "queue", "irq",
    "mount", "device" (a disk), "job". A moment has its UNIX time and its length: "03:12" is a
    minute.
    """

    kind: str
    name: str
    wall_s: float | None = None
    lasts_s: float = 0.0

    def __post_init__(self) -> None:
        escape(self, "name")

    @property
    def words(self) -> str:
        """Its name for a sentence.

        >>> Subject("core", "5").words, Subject("nic", "eth0").words, Subject("irq", "61").words
        ('core 5', 'eth0', 'interrupt 61')
        """
        before = {"core": "core ", "irq": "interrupt ", "queue": "queue ", "pod": "pod "}
        name = self.name.replace("_", " ") if self.kind == "symptom" else self.name
        return before.get(self.kind, "") + name


class Moment(NamedTuple):
    """A time on the monotonic clock of its boot and on the wall clock."""

    mono_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Occasions:
    """Times of the queried event: `one` and `many` name it ("reset of eth0", "resets of eth0").

    `note` says how they were chosen if that is not obvious; `partial`: there were more, at unknown
    times.
    """

    one: str
    many: str
    moments: tuple[Moment, ...] = ()
    note: str = ""
    partial: bool = False

    @property
    def words(self) -> str:
        """
        >>> Occasions("reset", "resets").words
        'no reset'
        """
        if not self.moments:
            return f"no {self.one}"
        number = len(self.moments)
        return f"{number:,} {self.one if number == 1 else self.many}"


@dataclass(frozen=True, slots=True)
class Why:
    """A diagnosis from the view of one entity.

    `findings` are the ids of present findings that concern it: in the order of the chains, then the
    most severe first. `chains` hold one of them each, cut where they continue through other
    entities of its kind. `detectors` cover it; if one of the `decisive` ones is unknown there is no
    answer. `also` is what else the words could have meant. `aligned` is `None` if nothing could be
    compared: `not_aligned` says why, and `remedy` is the command that would allow it. `next` are
    commands that show more.
    """

    about: Subject
    diagnosis: Diagnosis
    findings: tuple[str, ...]
    detectors: tuple[str, ...]
    decisive: tuple[str, ...]
    chains: tuple[Chain, ...]
    story: tuple[str, ...]
    contests: tuple[Contest, ...]
    coincidences: tuple[Coincidence, ...]
    occasions: Occasions
    missing: tuple[Missing, ...]
    also: tuple[Subject, ...] = ()
    aligned: Aligned | None = None
    not_aligned: str = ""
    remedy: str = ""
    next: tuple[str, ...] = ()

    @property
    def by_id(self) -> Mapping[str, Finding]:
        return self.diagnosis.by_id

    @property
    def exit(self) -> Exit:
        """1 if a problem concerns it, directly or through a chain; else 3 if a decisive finding is
        unknown, else 0."""
        known = self.by_id
        linked = (name for chain in self.chains for name in chain.findings)
        if any(known[name].is_problem for name in (*self.findings, *linked)):
            return Exit.PROBLEM
        if any(is_open(known.get(name)) for name in self.decisive):
            return Exit.CANNOT_TELL
        return Exit.HEALTHY


def is_open(finding: Finding | None) -> bool:
    """Whether it could not be judged."""
    return finding is None or finding.verdict is Verdict.UNKNOWN
