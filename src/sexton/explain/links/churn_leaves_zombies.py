"""Cgroups made and removed under one parent stay behind as zombies: containers, timers, sessions.

**Rule.** The parent that churns must be one that owns zombies. *Proven*: deaths under it were
traced and not released. *Likely*: the same parent, by the kernel's own counts. One step weaker
where less than 5 % of the dead are known to be from there. A busy parent elsewhere on the node says
nothing. The strength speaks of those that are known to be from there, not of all.

**Speaks against it.** Most of what was seen to die there was released: ordinary churn. Less than
half of the dead are known to be from there: who left the others is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.detect.churn import churn
from sexton.detect.owners import Owner, owners
from sexton.explain.links.crash_loop_leaves_zombies import FEW, of_the_dead
from sexton.explain.registry import link
from sexton.model.cgroup import CgroupCensus
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="cgroup_churn",
    effect="zombie_memcgs",
    story="cgroups removed there stay behind as dying memory cgroups",
    proof="a trace of the deaths there (sudo sexton zombies --watch)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """A parent that both churns and owns zombies."""
    shared = cause.shares(effect, "cgroup")
    if not shared:
        return None
    mine = [item for item in owners(window) if item.path in shared]
    if not mine:
        return None
    # The surest, not the largest: older ones that the kernel only counts make a trace no weaker.
    owner = max(mine, key=lambda item: item.strength.rank)
    sure = Strength.PROVEN if owner.strength is Strength.PROVEN else Strength.LIKELY
    strength, covers = of_the_dead(sure, _number(mine, sure), window)
    return Link(
        "churn_leaves_zombies",
        cause.id,
        effect.id,
        strength,
        f"cgroups removed under {owner.path} are the ones that stay ({owner.method})",
        shared=shared,
        covers=covers,
        against=(*_released(owner.path, window), *_others(mine, window)),
    )


def _number(mine: Sequence[Owner], sure: Strength) -> int:
    """Of how many that is known; where some are proven, of those."""
    least = Strength.PROVEN.rank if sure is Strength.PROVEN else 0
    return sum(owner.dying or 0 for owner in mine if owner.strength.rank >= least)


def _others(mine: Sequence[Owner], window: Window) -> tuple[str, ...]:
    """The dead that nobody saw die there, where they are the most."""
    census = window.latest(CgroupCensus)
    dying = census[0].dying if census else None
    known = sum(owner.dying or 0 for owner in mine)
    if not dying or known >= FEW * dying:
        return ()
    return (f"{known:,} of {dying:,} dying cgroups are known to come from there",)


def _released(parent: str, window: Window) -> tuple[str, ...]:
    seen = churn(window)
    here = [family for family in seen.families if family.path == parent] if seen else []
    released = sum(family.released for family in here)
    if released <= sum(family.kept for family in here):
        return ()
    removed = sum(family.deaths for family in here)
    return (f"{released:,} of the {removed:,} cgroups removed under {parent} were released",)
