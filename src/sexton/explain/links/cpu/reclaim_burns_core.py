"""A task frees memory, to continue or on request, and holds its core while it does.

**Rule.** With kernel stacks of the held core in the same seconds: *proven* if half of them or more
are reclaim by a task, *likely* from a fifth on, no link below one in twenty. Without stacks at best
*possible*, and only if both findings name the same task in the same seconds: counters that rise
together are a coincidence, not a cause.

**Evidence against.** Stacks mostly in other functions. If a fifth of the samples walk cgroups, most
of which are dying or were not counted, the link is *possible* at best: then dying cgroups make the
reclaim expensive (`zombie_walk_burns_core`).
"""

from __future__ import annotations

from sexton.explain.held import (
    ORDERED,
    RECLAIM,
    WALK,
    dying_share,
    judge,
    may_walk_dying_cgroups,
    work_of,
)
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="direct_reclaim",
    effect="saturated_core",
    story="freeing memory held a core",
    proof="kernel stacks of the held core (--stacks)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """Reclaim on the held core, unless it walks the dead there."""
    work = work_of(effect, window)
    ordered = work is not None and work.by[ORDERED] > work.by[RECLAIM]
    family = ORDERED if ordered else RECLAIM
    found = judge(cause, effect, window, family)
    if found is None or work is None or not may_walk_dying_cgroups(work, window):
        return found
    walking = f"{100 * work.share(WALK):.0f} % of its samples walk memory cgroups"
    dead = dying_share(window)
    doubt = f"{walking}; how many of those are dying is unknown"
    if dead is not None:
        doubt = (
            f"{walking}, of which {100 * dead:.0f} % are dying: they make this reclaim expensive"
        )
    return found._replace(strength=Strength.POSSIBLE, against=(*found.against, doubt))
