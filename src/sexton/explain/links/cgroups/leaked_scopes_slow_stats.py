"""A slow read of memory statistics walks mostly scopes that were never closed.

**Rule.** The leaked directories must be at least half of all memory cgroups that are walked.
*Proven*: the read's cost was measured at the root; *likely*: extrapolated from a small subtree. No
link if dying cgroups outnumber the leaked ones: see `zombies_slow_stats`.

**Evidence against.** A subtree with less than a tenth of the cgroups takes half as long to read.
"""

from __future__ import annotations

from sexton.detect.growth import latest_count
from sexton.explain.links.cgroups.zombies_slow_stats import MOSTLY, small_and_slow
from sexton.explain.links.cpu.zombie_walk_burns_core import dearest_walk
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="leaked_scopes",
    effect="slow_memcg_stats",
    story="every read of memory statistics has to walk them",
    proof="a read at the root, timed (skipped: it would hold a core itself)",
)
def join(cause: Finding, _effect: Finding, window: Window) -> Bond | None:
    """The share of leaked scopes in what is walked."""
    census = latest_count(window)
    walk = dearest_walk(window)
    if census is None or walk is None or not census.total:
        return None
    left = [
        evidence.number
        for evidence in cause.evidence
        if "director" in evidence.unit + evidence.source
    ]
    leaked = max((number for number in left if number is not None), default=0.0)
    total = census.total
    if leaked < MOSTLY * total or (census.dying or 0) > leaked:
        return None
    measured = walk.root_s is not None
    how = "measured" if measured else "extrapolated from a small subtree"
    return Bond(
        Strength.PROVEN if measured else Strength.LIKELY,
        f"{100 * leaked / total:.1f} % of the cgroups walked are leaked scopes; cost {how}",
        shared=cause.entities.get("cgroup", ()),
        against=small_and_slow(walk, window),
    )
