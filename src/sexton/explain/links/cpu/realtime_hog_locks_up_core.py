"""The kernel's watchdogs report a core that a realtime task holds.

**Rule.** Both must be about the same core, or the stall names no core. *Proven*: the same core at
the same time, give or take the two seconds between readings. *Likely*: within the watchdog's 20 s,
or the log line of the RCU stall does not name its core. No link at another time.

**Evidence against.** The watchdog names another task than the one that held the core.
"""

from __future__ import annotations

from sexton.explain.links.cpu.burnt_core_locks_up import PATIENCE_S, another_task
from sexton.explain.order import READ_S, together, when
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="realtime_hog",
    effect="soft_lockups",
    story="the kernel's own threads could not run there, and its watchdog reported it",
    proof="both in the same seconds; record the next occurrence (sexton record)",
)
def join(cause: Finding, effect: Finding, _window: Window) -> Bond | None:
    """The same core at the same time."""
    cores = cause.shares(effect, "core")
    unnamed = not effect.entities.get("core")
    if not together(cause, effect, PATIENCE_S) or not (cores or unnamed):
        return None
    where = f"core {', '.join(cores)}" if cores else "the stall names no core;"
    sure = bool(cores) and together(cause, effect, READ_S)
    return Bond(
        Strength.PROVEN if sure else Strength.LIKELY,
        f"{where} {when(cause, effect)}",
        shared=cores,
        against=another_task(cause, effect),
    )
