"""The node runs out of free memory, and tasks have to free some themselves.

**Rule.** Both in the same seconds. *Proven*: kernel stacks of that time show tasks that reclaim in
the page allocator, which happens only if the node has no free page left. *Possible* without stacks:
two measures that rise together do not prove each other. No link if the stacks show only reclaim for
a cgroup's own limit (then the limit forces it, and the pressure is its effect), or if the counters
show that next to nothing was scanned for the machine, or if the reclaim was requested.

**Evidence against.** More stacks of reclaim for a cgroup's limit than for the node's shortage.
"""

from __future__ import annotations

from sexton.detect.detectors.memory.direct_reclaim import is_ordered
from sexton.detect.detectors.memory.memory_pressure import is_of_cgroups
from sexton.detect.stacks import caught
from sexton.explain.held import FEWEST, LIMIT, RECLAIM, SHORTAGE, SLACK_S, families
from sexton.explain.order import together, when
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="memory_pressure",
    effect="direct_reclaim",
    story="tasks had to free memory before they could continue",
    proof="kernel stacks, which show which task reclaims and why (--stacks)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """By stacks of the whole node, since any task may reclaim."""
    if not together(cause, effect, SLACK_S) or is_ordered(effect):
        return None
    seen = caught(window, lambda frames: RECLAIM in families(frames))
    if seen is None or seen.samples < FEWEST:
        if is_of_cgroups(cause):
            return None
        text = f"{when(cause, effect)}; kernel stacks would show whether one causes the other"
        return Bond(Strength.POSSIBLE, text)
    short = sum(row.samples for row in seen.rows if SHORTAGE in families(row.frames))
    limited = sum(row.samples for row in seen.rows if LIMIT in families(row.frames))
    if not short:
        return None
    against: tuple[str, ...] = ()
    if limited > short:
        against = (f"{100 * limited / seen.samples:.0f} % of reclaim is for a cgroup's own limit",)
    return Bond(
        Strength.PROVEN if short >= limited else Strength.LIKELY,
        f"{100 * short / seen.samples:.0f} % of reclaim's samples are in the page allocator, which"
        " found no free page",
        shared=cause.shares(effect, "task") or cause.shares(effect, "cgroup"),
        against=against,
    )
