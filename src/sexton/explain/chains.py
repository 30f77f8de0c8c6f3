"""Findings joined into chains by whatever links hold between them.

A chain is a path that cannot be made longer, neither at its ends nor by a detour between two of
its findings. Chains are ranked by how many links they explain, then by their weakest link; a
symptom that no chain holds is unexplained and is listed, never dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sexton.explain.registry import all_rules
from sexton.model.chain import Chain, Link
from sexton.model.finding import Finding, Verdict
from sexton.model.window import Window


def find_links(findings: Iterable[Finding], window: Window) -> tuple[Link, ...]:
    """Every link that holds between the symptoms that are present."""
    present = {each.id: each for each in findings if each.verdict is Verdict.PRESENT}
    links = (
        rule.join(present[rule.cause], present[rule.effect], window)
        for rule in all_rules()
        if rule.cause in present and rule.effect in present
    )
    return tuple(each for each in links if each is not None)


def find_chains(links: Sequence[Link]) -> tuple[Chain, ...]:
    """The longest paths through the links, the best first."""
    effects = {each.effect for each in links}
    roots = [each for each in links if each.cause not in effects]
    chains = [Chain(path) for root in roots for path in _paths((root,), links)]
    whole = [chain for chain in chains if not any(_holds(other, chain) for other in chains)]
    return tuple(sorted(whole, key=_rank))


def _rank(chain: Chain) -> tuple[int, int, bool, str]:
    """Of two that explain as much, as surely, the one that begins with somebody to talk to: a unit
    that restarts makes cgroups come and go, and never the other way round."""
    return -len(chain.links), -chain.strength.rank, chain.root == "cgroup_churn", chain.root


def _holds(longer: Chain, shorter: Chain) -> bool:
    """Does the longer one tell all that the shorter one tells?"""
    return len(longer.links) > len(shorter.links) and set(shorter.findings) <= set(longer.findings)


def unexplained(findings: Iterable[Finding], chains: Iterable[Chain]) -> tuple[str, ...]:
    """Problems that no chain holds."""
    held = {name for chain in chains for name in chain.findings}
    return tuple(each.id for each in findings if each.is_problem and each.id not in held)


def _paths(path: tuple[Link, ...], links: Sequence[Link]) -> Iterator[tuple[Link, ...]]:
    seen = {each.cause for each in path}
    onward = [each for each in links if each.cause == path[-1].effect and each.effect not in seen]
    if not onward:
        yield path
    for each in onward:
        yield from _paths((*path, each), links)
