"""A read of memory statistics that takes seconds takes them on one core.

**Rule.** That of `zombie_walk_burns_core`, which is the same walk seen without its cost; by stacks
only where the walk is one for statistics, and not reclaim's.

**Speaks against it.** What speaks against that one.
"""

from __future__ import annotations

from sexton.explain.held import STATISTICS
from sexton.explain.links.cpu.zombie_walk_burns_core import judge
from sexton.explain.registry import link
from sexton.model.chain import Link
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="slow_memcg_stats",
    effect="saturated_core",
    story="such a read held a core",
    proof="kernel stacks of the held core (--stacks)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The slow read, and the core it was seen on."""
    return judge("slow_stats_burn_core", (cause, effect), window, STATISTICS)
