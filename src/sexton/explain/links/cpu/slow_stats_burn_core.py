"""A read of memory statistics takes seconds, and spends them on one core.

**Rule.** That of `zombie_walk_burns_core`, which is the same walk without its measured cost; with
stacks, only if the walk is for statistics and not for reclaim.

**Evidence against.** The same.
"""

from __future__ import annotations

from sexton.explain.held import STATISTICS
from sexton.explain.links.cpu.zombie_walk_burns_core import judge
from sexton.explain.registry import link
from sexton.model.chain import Bond
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="slow_memcg_stats",
    effect="saturated_core",
    story="such a read held a core",
    proof="kernel stacks of the held core (--stacks)",
)
def join(_cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The slow read, and the core it was seen on."""
    return judge(effect, window, STATISTICS)
