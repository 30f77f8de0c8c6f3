"""Cgroups made and removed under one parent stay behind as zombies: containers, timers, sessions.

**Rule.** The parent that churns must be one that owns zombies. *Proven*: deaths under it were
traced and not released. *Likely*: the same parent, by the kernel's own counts. There is no weaker
form: a busy parent elsewhere on the node says nothing.

**Speaks against it.** Most of what was seen to die there was released: ordinary churn.
"""

from __future__ import annotations

from sexton.detect.churn import churn
from sexton.detect.owners import owners
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="cgroup_churn",
    effect="zombie_memcgs",
    told="what is removed there stays behind as a dead memory cgroup",
    proof="a trace of the deaths there (sudo sexton zombies --watch)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """A parent that both churns and owns zombies."""
    shared = cause.shares(effect, "cgroup")
    if not shared:
        return None
    owner = next((each for each in owners(window) if each.path in shared), None)
    if owner is None:
        return None
    strength = Strength.PROVEN if owner.strength is Strength.PROVEN else Strength.LIKELY
    return Link(
        "churn_leaves_zombies",
        cause.id,
        effect.id,
        strength,
        f"cgroups removed under {owner.path} are the ones that stay ({owner.method})",
        shared=shared,
        against=_released(owner.path, window),
    )


def _released(parent: str, window: Window) -> tuple[str, ...]:
    seen = churn(window)
    here = [family for family in seen.families if family.path == parent] if seen else []
    released = sum(family.released for family in here)
    if released <= sum(family.kept for family in here):
        return ()
    removed = sum(family.deaths for family in here)
    return (f"{released:,} of the {removed:,} cgroups removed under {parent} were released",)
