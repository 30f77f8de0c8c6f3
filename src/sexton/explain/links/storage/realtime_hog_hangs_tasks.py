"""Tasks wait for something that must run on a core which a realtime task holds.

Whatever waits until every core did something (an RCU grace period, a drain of each core's pages,
a flush of its work) hangs as long as one core runs nothing else: `rmdir` of a cgroup, tracing,
mounts, `khugepaged`.

**Rule.** The task leaves nothing of the core to others (98 % and more, not an isolated core), tasks
hang, and no disk or server is named. *Likely*: they began to wait while the core was held, and were
reported before it was free again. *Possible*: the core was held already when the window began, and
they were reported at most 120 s before. Never *proven*: what they wait for is in their stacks,
which the log's line does not have. No link if they waited before the core was held.

**Evidence against.** None is read: a task may wait for a lock that has nothing to do with that
core.
"""

from __future__ import annotations

from sexton.explain.order import READ_S, near, together
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding, Severity
from sexton.model.window import Window

#: How often the kernel looks for hung tasks, by default (`kernel.hung_task_timeout_secs`).
REPORTED_S = 120.0


@link(
    cause="realtime_hog",
    effect="stuck_io",
    story="tasks that wait for every core hung",
    proof="what they wait for: cat /proc/PID/stack",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """Hung while the core was held, without a disk."""
    core = next(iter(cause.entities.get("core", ())), None)
    full = cause.severity is Severity.CRITICAL  # what RT throttling or a quota leaves is enough
    if core is None or cause.start is None or not full or effect.entities.get("device"):
        return None
    if near(cause, effect, READ_S) and (effect.end or 0.0) <= (cause.end or 0.0) + READ_S:
        return Bond(Strength.LIKELY, f"they began to wait while core {core} was held")
    held_before = cause.start <= window.start + READ_S
    if held_before and together(cause, effect, REPORTED_S):
        return Bond(Strength.POSSIBLE, f"core {core} was held already when the watch began")
    return None
