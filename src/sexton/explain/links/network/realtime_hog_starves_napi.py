"""The NIC queue that is polled on a core waits while a realtime task holds it.

**Rule.** Both must be about the same core. *Proven*: the wait lies inside the time the core was
held, give or take a driver's 10 s of patience. *Likely*: the same core at another time.

**Speaks against it.** A poll runs right after the interrupt, which not even a realtime task holds
up; it waits only where the kernel has passed it on to `ksoftirqd`.
"""

from __future__ import annotations

from sexton.explain.links.network.burnt_core_starves_napi import PATIENCE_S
from sexton.explain.moments import near
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="realtime_hog",
    effect="starved_napi",
    story="the poll of a NIC queue had to wait for that core",
    proof="both in the same seconds; record the next occurrence (sexton record)",
)
def join(cause: Finding, effect: Finding, _window: Window) -> Link | None:
    """The same core."""
    cores = cause.shares(effect, "core")
    if not cores:
        return None
    at_once = near(cause, effect, PATIENCE_S)
    queues = ", ".join(effect.entities.get("queue", ())) or "a queue"
    when = "in the same seconds" if at_once else "at another time"
    return Link(
        "realtime_hog_starves_napi",
        cause.id,
        effect.id,
        Strength.PROVEN if at_once else Strength.LIKELY,
        f"core {', '.join(cores)} serves {queues}; {when}",
        shared=cores,
    )
