"""Cgroup statistics are flushed under one lock; cores hold it or wait for it.

**Rule.** The held core must be one of those that flush. *Proven*: half of its kernel samples in
those seconds, or more, are in the flush; *likely* from a fifth on; no link below one in twenty. No
link without stacks: nothing else shows a flush.

**Evidence against.** Stacks mostly in other functions; a single core that flushes, since contention
needs two.
"""

from __future__ import annotations

from sexton.explain.held import RSTAT, core_of, judge, work_of
from sexton.explain.registry import link
from sexton.model.chain import Bond
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="rstat_contention",
    effect="saturated_core",
    story="flushing the statistics of cgroups held cores",
    proof="kernel stacks of the held core (--stacks)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The flush on the held core."""
    cores = cause.entities.get("core", ())
    if work_of(effect, window) is None or core_of(effect) not in cores:
        return None
    found = judge(cause, effect, window, RSTAT)
    if found is None or len(cores) > 1:
        return found
    against = (*found.against, f"core {cores[0]} flushes alone: no other core contends")
    return found._replace(against=against)
