"""What the node's owner changed about the detectors: thresholds, detectors off, silences."""

from __future__ import annotations

from typing import NamedTuple

from sexton.model.finding import Finding, Silenced
from sexton.model.frozen import Frozen, frozen


class Changed(NamedTuple):
    """A threshold that is not what its detector declares; `detectors` are all that share it, the
    one that was named first."""

    detectors: tuple[str, ...]
    name: str
    value: float
    default: float
    unit: str


class Silence(NamedTuple):
    """Findings of `detector` are no problem until then (UNIX seconds); of one entity, or of all."""

    detector: str
    entity: str | None
    until: float
    reason: str


@frozen
class Settings(Frozen):
    """The configuration in force; `path` is the file it was read from, "" where there is none.

    `expired` silences have no effect. They are kept because a report names them.
    """

    path: str = ""
    thresholds: tuple[Changed, ...] = ()
    off: tuple[str, ...] = ()
    silences: tuple[Silence, ...] = ()
    expired: tuple[Silence, ...] = ()
    #: Names of log patterns of the node's own, and the directory that they were read from.
    patterns: tuple[str, ...] = ()
    patterns_from: str = ""

    @property
    def changes(self) -> bool:
        """Is anything other than the defaults?"""
        every = (self.thresholds, self.off, self.silences, self.expired, self.patterns)
        return any(every)

    def silenced(self, finding: Finding) -> Silenced | None:
        """The silence that covers a finding.

        A silence of one entity covers a finding only if all entities of that kind are silenced:
        a second crash-looping unit is still a problem.

        >>> from sexton.model.finding import Severity, Verdict
        >>> loop = Finding("loop", Verdict.PRESENT, Severity.WARNING, "x", {"unit": ("a", "b")})
        >>> a, b = Silence("loop", "a", 9.0, "new image"), Silence("loop", "b", 8.0, "")
        >>> Settings(silences=(a,)).silenced(loop) is None
        True
        >>> Settings(silences=(a, b)).silenced(loop)
        Silenced(until=8.0, reason='new image')
        """
        mine = [silence for silence in self.silences if silence.detector == finding.id]
        whole = [silence for silence in mine if silence.entity is None]
        if whole:
            return _joined(whole[:1])
        for names in finding.entities.values():
            covering = [silence for silence in mine if silence.entity in names]
            if names and {silence.entity for silence in covering} == set(names):
                return _joined(covering)
        return None


def _joined(silences: list[Silence]) -> Silenced:
    """Several as one: it ends with the first of them."""
    reasons = dict.fromkeys(silence.reason for silence in silences if silence.reason)
    return Silenced(min(silence.until for silence in silences), "; ".join(reasons))
