"""Findings joined into chains by the links between them.

A chain is a path that cannot be made longer, neither at its ends nor by a detour between two of
its findings. Chains are ranked by how much of them is sure, counted back from the symptom, then by
their weakest link and their length; among those about one symptom, chains without a *possible* link
come first. A symptom that is in no chain is listed as unexplained, never dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from sexton.detect.registry import detector_of, is_marked
from sexton.detect.rows_read import witness
from sexton.explain.order import in_order, with_first_causes
from sexton.explain.registry import all_rules
from sexton.explain.rivals import by_stacks, surviving, weigh
from sexton.model.chain import Chain, Link, Strength
from sexton.model.finding import Finding, Verdict
from sexton.model.window import Window


def find_links(findings: Iterable[Finding], window: Window) -> tuple[Link, ...]:
    """Every link between findings that are present, weighed against the others."""
    known = {finding.id: finding for finding in findings}
    present = {name for name, value in known.items() if value.verdict is Verdict.PRESENT}
    seen = witness(window)
    links = (
        rule.run(known[rule.cause], known[rule.effect], seen)
        for rule in all_rules()
        if rule.cause in present and rule.effect in present
    )
    ordered = [
        in_order(link, (known[link.cause], known[link.effect]), seen)
        for link in links
        if link is not None
    ]
    return weigh(with_first_causes(ordered, known), known)


def find_chains(links: Sequence[Link]) -> tuple[Chain, ...]:
    """The longest paths through the surviving links, the best first."""
    links = surviving(links)
    effects = {link.effect for link in links}
    roots = [link for link in links if link.cause not in effects]
    chains = [Chain(path) for root in roots for path in _paths((root,), links)]
    whole = [chain for chain in chains if not any(_includes(other, chain) for other in chains)]
    return tuple(_ranked(whole))


def _ranked(chains: Iterable[Chain]) -> Iterator[Chain]:
    """By `_rank`; among those of one symptom, those without a *possible* link first."""
    ordered = sorted(chains, key=_rank)
    by_symptom: dict[str, list[Chain]] = defaultdict(list)
    for chain in ordered:
        by_symptom[chain.symptom].append(chain)
    for group in by_symptom.values():
        group.sort(key=_is_doubtful)
    turns = {symptom: iter(group) for symptom, group in by_symptom.items()}
    return (next(turns[chain.symptom]) for chain in ordered)


def _rank(chain: Chain) -> tuple[int, bool, int, int, bool, str]:
    """If two explain as much as surely, the one with the more precise root comes first: a unit that
    restarts makes cgroups come and go, and never the other way round."""
    root = detector_of(chain.root)
    return (
        -_sure(chain),
        _is_doubtful(chain),
        -len(chain.links),
        -chain.strength.rank,
        root is not None and bool(root.yields_to),
        chain.root,
    )


def _sure(chain: Chain) -> int:
    """The number of links before the symptom that are better than *possible*."""
    backwards = reversed(chain.links)
    return sum(1 for _ in takewhile(lambda link: link.strength is not Strength.POSSIBLE, backwards))


def _is_doubtful(chain: Chain) -> bool:
    return chain.strength is Strength.POSSIBLE


def _includes(longer: Chain, shorter: Chain) -> bool:
    """Does the longer one explain everything the shorter one does, as surely?"""
    if _is_doubtful(longer) and not _is_doubtful(shorter):
        return False
    return len(longer.links) > len(shorter.links) and set(shorter.findings) <= set(longer.findings)


def unexplained(
    findings: Iterable[Finding], chains: Iterable[Chain], links: Iterable[Link] = ()
) -> tuple[str, ...]:
    """Problems that no chain explains; and a marked death, which is not a problem of the
    node but is what the user wants to know.

    A problem that stacks show in a symptom of a chain, but that lost to a surer cause of it, is not
    listed: it is among the competing causes (`sexton.explain.rivals.contests`).
    """
    held = {name for chain in chains for name in chain.findings}
    held |= {link.cause for link in links if link.effect in held and by_stacks(link)}
    candidates = (finding for finding in findings if finding.is_problem or is_marked(finding))
    return tuple(candidate.id for candidate in candidates if candidate.id not in held)


def _paths(path: tuple[Link, ...], links: Sequence[Link]) -> Iterator[tuple[Link, ...]]:
    seen = {link.cause for link in path}
    onward = [link for link in links if link.cause == path[-1].effect and link.effect not in seen]
    if not onward:
        yield path
    for link in onward:
        yield from _paths((*path, link), links)
