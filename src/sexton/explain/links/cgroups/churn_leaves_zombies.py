"""Cgroups created and removed under one parent stay as zombies: containers, timers, sessions.

**Rule.** The parent that churns must own zombies. *Proven*: removals under it were traced and not
freed. *Likely*: the same parent, by the kernel's own counts. One step weaker if less than 5 % of
the dying cgroups are known to come from there. A busy parent elsewhere on the node is no evidence.
The strength covers only those known to come from there.

**Evidence against.** Most cgroups removed there were freed: ordinary churn. Less than half of the
dying cgroups are known to come from there: the origin of the others is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from sexton.detect.churn import churn
from sexton.detect.owners import Owner, owners
from sexton.explain.links.cgroups.crash_loop_leaves_zombies import (
    FEW,
    dying_in,
    strength_and_coverage,
)
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window

_SHOWN = 3


@link(
    cause="cgroup_churn",
    effect="zombie_memcgs",
    story="cgroups removed there stay behind as dying memory cgroups",
    proof="a trace of the cgroup removals there (sudo sexton zombies --watch)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """A parent that both churns and owns zombies."""
    shared = cause.shares(effect, "cgroup")
    mine = [item for item in owners(window) if item.path in shared]
    if not mine:
        return None
    # The surest, not the largest: older zombies that are only counted make a trace no weaker.
    proven = [item for item in mine if item.strength is Strength.PROVEN]
    sure = Strength.PROVEN if proven else Strength.LIKELY
    surest = proven or mine
    owner = max(surest, key=lambda item: item.strength.rank)
    strength, covers = strength_and_coverage(sure, sum(item.dying or 0 for item in surest), window)
    return Bond(
        strength,
        f"cgroups removed under {_where(surest)} are the ones that stay ({owner.method})",
        shared=shared,
        covers=covers,
        against=(*_released(surest, window), *_others(mine, proven, window)),
    )


def _where(owners: Sequence[Owner]) -> str:
    """The owners, each with its number of zombies, the largest first."""
    number: Counter[str] = Counter()
    for owner in owners:
        number[owner.path] += owner.dying or 0
    if len(number) == 1:
        return owners[0].path
    named = [f"{path} ({zombies:,})" for path, zombies in number.most_common(_SHOWN)]
    more = [f"{len(number) - _SHOWN} more"] if len(number) > _SHOWN else []
    *first, last = [*named, *more]
    return f"{', '.join(first)} and {last}"


def _others(mine: Sequence[Owner], proven: Sequence[Owner], window: Window) -> tuple[str, ...]:
    """Evidence against: most dying cgroups are not known to come from there."""
    dying = dying_in(window)
    known, sure = (sum(owner.dying or 0 for owner in some) for some in (mine, proven))
    if not dying or known >= FEW * dying:
        return ()
    # The link covers those that are proven.
    parts = f" ({sure:,} proven, {known - sure:,} likely)" if 0 < sure < known else ""
    return (f"only {known:,} of {dying:,} dying cgroups are known to come from there{parts}",)


def _released(owners: Sequence[Owner], window: Window) -> Iterator[str]:
    """Evidence against: parents whose removed cgroups were mostly freed."""
    seen = churn(window)
    for parent in dict.fromkeys(owner.path for owner in owners):
        here = [family for family in seen.families if family.path == parent] if seen else []
        released = sum(family.released for family in here)
        if released > sum(family.kept for family in here):
            removed = sum(family.deaths for family in here)
            yield f"{released:,} of the {removed:,} cgroups removed under {parent} were released"
