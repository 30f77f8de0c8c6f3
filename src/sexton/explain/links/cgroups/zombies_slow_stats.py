"""A slow read of memory statistics walks mostly dying cgroups.

**Rule.** *Proven*: at least half of all memory cgroups are dying and the read's cost was measured
at the root. *Likely*: the same, with the cost extrapolated from a small subtree. No link if most of
what is walked is alive: then live cgroups make it slow.

**Evidence against.** A subtree with less than a tenth of the cgroups takes half as long to read.
"""

from __future__ import annotations

from sexton.detect.growth import cost, latest_count
from sexton.explain.held import dying_share
from sexton.explain.links.cpu.zombie_walk_burns_core import dearest_walk
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.rows.cgroup import WalkCost
from sexton.model.text import seconds
from sexton.model.window import Window

MOSTLY = 0.5


@link(
    cause="zombie_memcgs",
    effect="slow_memcg_stats",
    story="every read of memory statistics has to walk them",
    proof="a read at the root, timed (skipped: it would hold a core itself)",
)
def join(_cause: Finding, _effect: Finding, window: Window) -> Bond | None:
    """The share of dying cgroups in what is walked."""
    share, walk = dying_share(window), dearest_walk(window)
    if walk is None or share is None or share < MOSTLY:
        return None
    measured = walk.root_s is not None
    how = "measured" if measured else "extrapolated from a small subtree"
    return Bond(
        Strength.PROVEN if measured else Strength.LIKELY,
        f"{100 * share:.1f} % of the cgroups walked are dying; cost {how}",
        against=small_and_slow(walk, window),
    )


def small_and_slow(walk: WalkCost, window: Window) -> tuple[str, ...]:
    """Evidence against: a small part takes as long as the whole, so their number is not why."""
    census = latest_count(window)
    total = (census.total if census else None) or 0
    if walk.memcgs * 10 > total or walk.measured_s * 2 < cost(walk):
        return ()
    few = f"{walk.memcgs:,} of {total:,} memory cgroups"
    return (f"{walk.path}, with {few}, takes {seconds(walk.measured_s)} alone",)
