"""Rivals weighed side by side: which cause of a symptom holds, and what the others have left.

Each link is judged by its own rule, which sees two findings. What only shows when all are seen
together is decided here:

- **Twins.** Two rules may join the same two findings; the stronger one speaks, of equals the later
  by name (a timer tells more than churn).
- **Look-alikes.** What held a core is *likely* without stacks only if every other cause was looked
  for and is not there. One that is there in the same seconds (a problem, or about the same
  process), or could not be judged, leaves it *possible*.
- **Places.** A *possible* cause gives way where a stronger one explains the same symptom. It stays
  in the contest, with what speaks for and against it, and out of the chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sexton.detect.registry import all_detectors, title_of
from sexton.explain.held import SLACK_S
from sexton.explain.moments import together
from sexton.model.chain import Chain, Contest, Link, Rival, Strength
from sexton.model.finding import Finding, Verdict


def look_alikes(symptom: str) -> tuple[str, ...]:
    """Other causes of a symptom that look the same while there are no kernel stacks; each has
    counters of its own, so it can be ruled out."""
    return tuple(each.id for each in all_detectors() if each.mimics == symptom)


def weigh(links: Iterable[Link], findings: Mapping[str, Finding]) -> tuple[Link, ...]:
    """One link between any two findings, as strong as it is with all the others in sight."""
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
        return link  # they have told the look-alikes apart
    doubts = []
    for name in others:
        other = findings.get(name)
        words = title_of(name)
        if other is None:
            continue
        if other.verdict is Verdict.UNKNOWN:
            doubts.append(f"{words} could not be judged, and looks the same without stacks")
        elif _might_be(other, findings[link.effect]):
            doubts.append(f"{words} was there in the same seconds")
    if not doubts:
        return link
    return replace(link, strength=Strength.POSSIBLE, against=(*link.against, *doubts))


def by_stacks(link: Link) -> bool:
    """Was it judged by the kernel's own stacks?"""
    return any("perf" in each.source for each in link.evidence)


def _might_be(other: Finding, symptom: Finding) -> bool:
    """There at that time, and either a problem of its own or about the very same process."""
    if other.verdict is not Verdict.PRESENT or not together(other, symptom, SLACK_S):
        return False
    return other.is_problem or bool(_processes(other) & _processes(symptom))


def _processes(finding: Finding) -> set[str]:
    """Threads of one process are that process: ``kubelet[2113/2140]``, ``kubelet[2113]``."""
    return {task.partition("/")[0].rstrip("]") for task in finding.entities.get("task", ())}


def standing(links: Sequence[Link]) -> tuple[Link, ...]:
    """Those that keep their place in a chain."""
    best: dict[str, int] = defaultdict(int)
    for link in links:
        best[link.effect] = max(best[link.effect], link.strength.rank)
    weakest = Strength.POSSIBLE.rank
    return tuple(
        link for link in links if link.strength.rank > weakest or best[link.effect] == weakest
    )


def contests(links: Sequence[Link], chains: Sequence[Chain]) -> tuple[Contest, ...]:
    """Every symptom with more than one cause, the strongest cause first.

    A cause that comes to the symptom through another one of them is no rival of it.
    """
    causes: dict[str, list[Link]] = defaultdict(list)
    for link in links:
        causes[link.effect].append(link)
    made = []
    for symptom in sorted(causes):
        chosen = _chosen(symptom, chains)
        rivals = sorted(
            causes[symptom], key=lambda each: (-each.strength.rank, each.id != chosen, each.id)
        )
        kept: list[Link] = []
        for each in sorted(rivals, key=lambda each: each.id != chosen):
            if not any(_leads(each.cause, other.cause, links) for other in kept):
                kept.append(each)
        if len(kept) > 1:
            told = tuple(_rival(each, chosen) for each in rivals if each in kept)
            made.append(Contest(symptom, told))
    return tuple(made)


def _leads(one: str, other: str, links: Sequence[Link]) -> bool:
    """Does one lead to the other, in either direction?"""
    return other in _after(one, links) or one in _after(other, links)


def _after(cause: str, links: Sequence[Link]) -> set[str]:
    found = {cause}
    while more := {each.effect for each in links if each.cause in found} - found:
        found |= more
    return found - {cause}


def _chosen(symptom: str, chains: Iterable[Chain]) -> str:
    """The link by which the best chain comes to it."""
    for chain in chains:
        for link in chain.links:
            if link.effect == symptom:
                return link.id
    return ""


def _rival(link: Link, chosen: str) -> Rival:
    return Rival(link.cause, link.strength, link.id == chosen, link.sentence, link.against)
