"""The kernel's watchdog reports a core that something holds.

**Rule.** Both must be about the same core. *Proven*: the lockup lies inside the time the core was
held, give or take the two seconds between readings, and that core is the one held longest, whose
time is known. *Likely*: another held core, a report within the watchdog's 20 s of the hold, or the
core at another time with the same task on it. No link by the core alone at another time: what held
it then is unknown.

**Evidence against.** The watchdog names another task than the one that held the core.
"""

from __future__ import annotations

from sexton.explain.held import core_of
from sexton.explain.order import READ_S, together, when
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window

PATIENCE_S = 20.0


@link(
    cause="saturated_core",
    effect="soft_lockups",
    story="the kernel's watchdog reported that core stuck",
    proof="both in the same seconds; record the next occurrence (sexton record)",
)
def join(cause: Finding, effect: Finding, _window: Window) -> Bond | None:
    """The same core, in the same time or under the same task."""
    cores = cause.shares(effect, "core")
    same = _processes(cause) & _processes(effect)
    at_once = together(cause, effect, PATIENCE_S)
    if not cores or not (at_once or same):
        return None
    sure = together(cause, effect, READ_S) and core_of(cause) in cores
    words = when(cause, effect) if at_once else f"under the same task, {when(cause, effect)}"
    return Bond(
        Strength.PROVEN if sure else Strength.LIKELY,
        f"core {', '.join(cores)}, {words}",
        shared=cores,
        against=another_task(cause, effect),
    )


def _processes(finding: Finding) -> set[str]:
    """Task names; the watchdog logs the thread's id, findings have process and thread."""
    return {task.partition("[")[0] for task in finding.entities.get("task", ())}


def another_task(held: Finding, stuck: Finding) -> tuple[str, ...]:
    """Evidence against: the watchdog names a task that did not hold the core."""
    mine, theirs = held.entities.get("task", ()), stuck.entities.get("task", ())
    if not mine or not theirs or _processes(held) & _processes(stuck):
        return ()
    return (f"the watchdog names {theirs[0]}, but {mine[0]} held the core",)
