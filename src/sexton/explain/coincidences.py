"""Things that rise together without one being shown to make the other.

Direct reclaim, major page faults, CPU throttling and memory pressure come together on many busy
nodes, and are told as cause and effect wherever two graphs have the same shape. Here they are
called what they are: a coincidence, until kernel stacks prove a link between them. (Throttling
is never caused by reclaim: a quota is used up by running, and reclaim makes a task wait.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sexton.detect.registry import detector_of, title_of
from sexton.explain.held import SLACK_S
from sexton.explain.moments import clock, together
from sexton.model.chain import Coincidence, Link, Strength
from sexton.model.finding import Finding, Verdict


def coincide(findings: Iterable[Finding], links: Sequence[Link]) -> tuple[Coincidence, ...]:
    """One for each group that rises together and that stacks do not join."""
    present = [each for each in findings if each.verdict is Verdict.PRESENT and _rises(each)]
    present.sort(key=lambda each: each.id)
    groups: list[list[Finding]] = []
    for finding in present:
        touching = [group for group in groups if _touches(finding, group)]
        merged = [*(each for group in touching for each in group), finding]
        groups = [group for group in groups if group not in touching] + [merged]
    return tuple(_told(group) for group in groups if _unjoined(group, links) > 1)


def _rises(finding: Finding) -> bool:
    detector = detector_of(finding.id)
    if detector is None or not detector.rises_with:
        return False
    return detector.rises_if is None or detector.rises_if(finding)


def _group(finding: Finding) -> str:
    detector = detector_of(finding.id)
    return "" if detector is None else detector.rises_with


def _touches(finding: Finding, group: Iterable[Finding]) -> bool:
    return any(
        _group(finding) == _group(each) and together(finding, each, SLACK_S) for each in group
    )


def _unjoined(group: Sequence[Finding], links: Iterable[Link]) -> int:
    """Parts of a group that no proven link joins to another part of it."""
    part = {each.id: each.id for each in group}
    for link in links:
        if link.strength is Strength.PROVEN and link.cause in part and link.effect in part:
            old, new = part[link.effect], part[link.cause]
            part = {name: new if home == old else home for name, home in part.items()}
    return len(set(part.values()))


def _told(group: Sequence[Finding]) -> Coincidence:
    names = [title_of(each.id) for each in group]
    words = f"{', '.join(names[:-1])} and {names[-1]}"
    start = max(each.start for each in group if each.start is not None)
    return Coincidence(
        tuple(each.id for each in group),
        f"{words} were there together at {clock(start)} UTC; nothing shows that one makes another",
        "kernel stacks of those seconds (--stacks) that show one inside the other",
    )
