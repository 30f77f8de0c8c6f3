"""The NIC queue that is polled on the burnt core waits.

**Rule.** Both must be about the same core. *Proven*: the wait lies inside the time the core was
held, give or take a driver's 10 s of patience. *Likely*: the same core, at another time (the
stall is seen live, the kernel log remembers an earlier wait).

**Speaks against it.** The driver says `napi scheduled: 0`: then an interrupt was lost and no core
was to blame.
"""

from __future__ import annotations

from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window

PATIENCE_S = 10.0


@link(cause="saturated_core", effect="starved_napi")
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:  # noqa: ARG001
    """The same core."""
    cores = cause.shares(effect, "core")
    if not cores:
        return None
    queues = ", ".join(effect.entities.get("queue", ())) or "a queue"
    together = near(cause, effect, PATIENCE_S)
    when = "in the same seconds" if together else "at another time than the stall seen now"
    return Link(
        "burnt_core_starves_napi",
        cause.id,
        effect.id,
        Strength.PROVEN if together else Strength.LIKELY,
        f"core {', '.join(cores)} serves {queues}; {when}",
        shared=cores,
    )


def near(cause: Finding, effect: Finding, slack_s: float) -> bool:
    """Did the effect begin while the cause lasted, or within `slack_s` of its end?"""
    if cause.start is None or effect.start is None:
        return False
    return cause.start - slack_s <= effect.start <= (cause.end or cause.start) + slack_s
