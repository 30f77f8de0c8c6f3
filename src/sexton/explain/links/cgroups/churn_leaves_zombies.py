"""Cgroups made and removed under one parent stay behind as zombies: containers, timers, sessions.

**Rule.** The parent that churns must be one that owns zombies. *Proven*: deaths under it were
traced and not released. *Likely*: the same parent, by the kernel's own counts. One step weaker
where less than 5 % of the dead are known to be from there. A busy parent elsewhere on the node says
nothing. The strength speaks of those that are known to be from there, not of all.

**Speaks against it.** Most of what was seen to die there was released: ordinary churn. Less than
half of the dead are known to be from there: who left the others is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sexton.detect.churn import churn
from sexton.detect.owners import Owner, owners
from sexton.explain.links.cgroups.crash_loop_leaves_zombies import FEW, of_the_dead
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.window import Window

_SHOWN = 3


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
    best = max(item.strength.rank for item in mine)
    sure = Strength.PROVEN if best == Strength.PROVEN.rank else Strength.LIKELY
    surest = _surest(mine, sure)
    owner = max(surest, key=lambda item: item.strength.rank)
    strength, covers = of_the_dead(sure, sum(item.dying or 0 for item in surest), window)
    return Link(
        "churn_leaves_zombies",
        cause.id,
        effect.id,
        strength,
        f"cgroups removed under {_where(surest)} are the ones that stay ({owner.method})",
        shared=shared,
        covers=covers,
        against=(*_released(surest, window), *_others(mine, window)),
    )


def _surest(mine: Sequence[Owner], sure: Strength) -> list[Owner]:
    """Of whom it is known; where some are proven, those."""
    least = Strength.PROVEN.rank if sure is Strength.PROVEN else 0
    return [owner for owner in mine if owner.strength.rank >= least]


def _where(owners: Sequence[Owner]) -> str:
    """All who leave some, each with its number, the one with most first."""
    number: dict[str, int] = {}
    for owner in owners:
        number[owner.path] = number.get(owner.path, 0) + (owner.dying or 0)
    if len(number) == 1:
        return owners[0].path
    ranked = sorted(number, key=lambda path: -number[path])
    named = [f"{path} ({number[path]:,})" for path in ranked[:_SHOWN]]
    more = [f"{len(ranked) - _SHOWN} more"] if len(ranked) > _SHOWN else []
    *first, last = [*named, *more]
    return f"{', '.join(first)} and {last}"


def _others(mine: Sequence[Owner], window: Window) -> tuple[str, ...]:
    """The dead that nobody saw die there, where they are the most."""
    census = window.latest(CgroupCensus)
    dying = census[0].dying if census else None
    known = sum(owner.dying or 0 for owner in mine)
    if not dying or known >= FEW * dying:
        return ()
    return (f"{known:,} of {dying:,} dying cgroups are known to come from there",)


def _released(owners: Sequence[Owner], window: Window) -> Iterator[str]:
    """Of which of them most were released."""
    seen = churn(window)
    for parent in dict.fromkeys(owner.path for owner in owners):
        here = [family for family in seen.families if family.path == parent] if seen else []
        released = sum(family.released for family in here)
        if released > sum(family.kept for family in here):
            removed = sum(family.deaths for family in here)
            yield f"{released:,} of the {removed:,} cgroups removed under {parent} were released"
