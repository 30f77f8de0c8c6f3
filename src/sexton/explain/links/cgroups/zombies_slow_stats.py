"""What a slow statistics read walks over is mostly dead cgroups.

**Rule.** *Proven*: at least half of all memory cgroups are dead and the read's cost was measured at
the root. *Likely*: the same, with the cost extrapolated from a small subtree. No link where live
directories are the most of what is walked: then it is the crowd that is slow, not the dead.

**Evidence against.** A subtree with less than a tenth of the cgroups that is half as slow to read.
"""

from __future__ import annotations

from sexton.detect.growth import cost
from sexton.explain.links.cpu.zombie_walk_burns_core import dearest_walk
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.rows.cgroup import CgroupCensus, WalkCost
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
    """The share of the dead in what is walked."""
    census = window.latest(CgroupCensus)
    walk = dearest_walk(window)
    if not census or walk is None or not census[0].total or census[0].dying is None:
        return None
    share = census[0].dying / census[0].total
    if share < MOSTLY:
        return None
    measured = walk.root_s is not None
    how = "measured" if measured else "extrapolated from a small subtree"
    return Bond(
        Strength.PROVEN if measured else Strength.LIKELY,
        f"{100 * share:.1f} % of the cgroups walked are dying; cost {how}",
        against=small_and_slow(walk, census[0].total),
    )


def small_and_slow(walk: WalkCost, total: int) -> tuple[str, ...]:
    """A small part that takes as long as the whole: then it is not the number that is slow."""
    if walk.memcgs * 10 > total or walk.measured_s * 2 < cost(walk):
        return ()
    few = f"{walk.memcgs:,} of {total:,} memory cgroups"
    return (f"{walk.path}, with {few}, takes {seconds(walk.measured_s)} alone",)
