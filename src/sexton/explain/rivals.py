"""Competing causes weighed against each other, and symptoms that only coincide.

Each link's own rule sees two findings. What takes all of them is decided here:

- **Duplicates.** Two rules may link the same two findings; the stronger one wins, of equals the
  later by name (a timer says more than churn).
- **Look-alikes.** Without stacks, what held a core is *likely* only if every other cause was
  checked and is absent. One that is present in the same seconds (a problem, or about the same
  process), or could not be judged, leaves it *possible*.
- **Chains.** A *possible* cause gives way if a stronger one explains the same symptom. It stays
  among the competing causes, with the evidence for and against it, and out of the chain.
- **Coincidences.** Direct reclaim, major page faults, CPU throttling and memory pressure rise
  together on many busy nodes. They are reported as a coincidence until kernel stacks prove a link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sexton.detect.registry import all_detectors, detector_of, title_of
from sexton.explain.held import SLACK_S
from sexton.explain.order import together, when
from sexton.model.chain import Chain, Coincidence, Contest, Link, Rival, Strength
from sexton.model.finding import Finding, Verdict
from sexton.model.text import clock


def look_alikes(symptom: str) -> tuple[str, ...]:
    """Other causes of a symptom that look the same without kernel stacks; each has its own
    counters, so it can be ruled out."""
    return tuple(detector.id for detector in all_detectors() if detector.mimics == symptom)


def weigh(links: Iterable[Link], findings: Mapping[str, Finding]) -> tuple[Link, ...]:
    """One link between any two findings, as strong as the other findings allow."""
    best: dict[tuple[str, str], Link] = {}
    for link in links:
        ends = (link.cause, link.effect)
        kept = best.get(ends)
        if kept is None or link.strength.rank >= kept.strength.rank:
            best[ends] = link
    return tuple(_doubted(link, findings) for link in best.values())


def _doubted(link: Link, findings: Mapping[str, Finding]) -> Link:
    others = look_alikes(link.effect)
    if link.strength is not Strength.LIKELY or link.cause in others:
        return link
    if by_stacks(link):
        return link  # stacks distinguish the look-alikes
    doubts = []
    for name in others:
        other = findings.get(name)
        words = title_of(name)
        if other is None:
            continue
        if other.verdict is Verdict.UNKNOWN:
            doubts.append(f"{words} could not be judged and looks the same without stacks")
        elif _might_be(other, findings[link.effect]):
            doubts.append(f"{words} was present {when(findings[link.effect], other)}")
    if not doubts:
        return link
    return replace(link, strength=Strength.POSSIBLE, against=(*link.against, *doubts))


def by_stacks(link: Link) -> bool:
    """Does it rest on kernel stacks?"""
    return any("perf" in evidence.source for evidence in link.evidence)


def _might_be(other: Finding, symptom: Finding) -> bool:
    """Present at that time, and either a problem itself or about the same process."""
    if other.verdict is not Verdict.PRESENT or not together(other, symptom, SLACK_S):
        return False
    return other.is_problem or bool(_processes(other) & _processes(symptom))


def _processes(finding: Finding) -> set[str]:
    """Processes and threads, both as their process: ``kubelet[2113``."""
    return {task.partition("/")[0].rstrip("]") for task in finding.entities.get("task", ())}


def surviving(links: Sequence[Link]) -> tuple[Link, ...]:
    """Links that stay in chains."""
    best: dict[str, int] = defaultdict(int)
    for link in links:
        best[link.effect] = max(best[link.effect], link.strength.rank)
    weakest = Strength.POSSIBLE.rank
    return tuple(
        link for link in links if link.strength.rank > weakest or best[link.effect] == weakest
    )


def contests(links: Sequence[Link], chains: Sequence[Chain]) -> tuple[Contest, ...]:
    """Every symptom with more than one cause, the strongest cause first.

    A cause that leads to the symptom through another of its causes is no rival of that one.
    """
    causes: dict[str, list[Link]] = defaultdict(list)
    for link in links:
        causes[link.effect].append(link)
    made = []
    for symptom in sorted(causes):
        chosen = _chosen(symptom, chains)
        rivals = sorted(
            causes[symptom], key=lambda link: (-link.strength.rank, link.id != chosen, link.id)
        )
        kept: list[Link] = []
        for rival in sorted(rivals, key=lambda link: link.id != chosen):
            if not any(_leads(rival.cause, other.cause, links) for other in kept):
                kept.append(rival)
        if len(kept) > 1:
            listed = (
                Rival(link.cause, link.strength, link.id == chosen, link.sentence, link.against)
                for link in rivals
                if link in kept
            )
            made.append(Contest(symptom, tuple(listed)))
    return tuple(made)


def _leads(one: str, other: str, links: Sequence[Link]) -> bool:
    """Does one lead to the other, in either direction?"""
    return other in _after(one, links) or one in _after(other, links)


def _after(cause: str, links: Sequence[Link]) -> set[str]:
    found = {cause}
    while more := {link.effect for link in links if link.cause in found} - found:
        found |= more
    return found - {cause}


def _chosen(symptom: str, chains: Iterable[Chain]) -> str:
    """The link by which the best chain reaches the symptom."""
    for chain in chains:
        for link in chain.links:
            if link.effect == symptom:
                return link.id
    return ""


def coincide(findings: Iterable[Finding], links: Sequence[Link]) -> tuple[Coincidence, ...]:
    """One for each group that rose together and is not joined by proven links."""
    present = (finding for finding in findings if finding.verdict is Verdict.PRESENT)
    groups: list[list[Finding]] = []
    for finding in sorted(filter(_group, present), key=lambda finding: finding.id):
        touching = [group for group in groups if _touches(finding, group)]
        merged = [*(other for group in touching for other in group), finding]
        groups = [group for group in groups if group not in touching] + [merged]
    return tuple(_coincidence(group) for group in groups if _unjoined(group, links) > 1)


def _group(finding: Finding) -> str:
    """The group of symptoms that it rises with, empty if none."""
    detector = detector_of(finding.id)
    if detector is None or (detector.rises_if is not None and not detector.rises_if(finding)):
        return ""
    return detector.rises_with


def _touches(finding: Finding, group: Iterable[Finding]) -> bool:
    return any(
        _group(finding) == _group(other) and together(finding, other, SLACK_S) for other in group
    )


def _unjoined(group: Sequence[Finding], links: Iterable[Link]) -> int:
    """The number of parts of a group that no proven link joins."""
    part = {finding.id: finding.id for finding in group}
    for link in links:
        if link.strength is Strength.PROVEN and link.cause in part and link.effect in part:
            old, new = part[link.effect], part[link.cause]
            part = {name: new if home == old else home for name, home in part.items()}
    return len(set(part.values()))


def _coincidence(group: Sequence[Finding]) -> Coincidence:
    names = [title_of(finding.id) for finding in group]
    words = f"{', '.join(names[:-1])} and {names[-1]}"
    start = max(finding.start for finding in group if finding.start is not None)
    return Coincidence(
        tuple(finding.id for finding in group),
        f"{words} rose together at {clock(start)} UTC; no causal link between them is shown",
        "kernel stacks of those seconds (--stacks) that show one inside the other",
    )
