"""Statistics of cgroups are flushed under one lock, and cores wait for it or work at it.

**Rule.** The held core must be one of those that flush. *Proven*: half of its kernel samples in
those seconds, or more, are of the flush; *likely* from a fifth on; no link below one in twenty. No
form without stacks: nothing else shows a flush.

**Speaks against it.** Stacks that are mostly elsewhere; a single core that flushes, where fighting
over a lock needs two.
"""

from __future__ import annotations

from dataclasses import replace

from sexton.explain.held import RSTAT, core_of, judge, work_of
from sexton.explain.registry import link
from sexton.model.chain import Link
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="rstat_contention",
    effect="saturated_core",
    story="flushing the statistics of cgroups held cores",
    proof="kernel stacks of the held core (--stacks)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The flush on the held core."""
    cores = cause.entities.get("core", ())
    if work_of(effect, window) is None or core_of(effect) not in cores:
        return None
    found = judge("rstat_burns_cores", (cause, effect), window, RSTAT)
    if found is None or len(cores) > 1:
        return found
    against = (*found.against, f"core {cores[0]} flushes alone: no other core contends")
    return replace(found, against=against)
