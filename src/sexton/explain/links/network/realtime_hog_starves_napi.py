"""A NIC queue waits for its poll while a realtime task holds the core.

**Rule.** Both must be about the same core. *Proven*: the wait began while the core was held, give
or take the two seconds between readings. *Likely*: the same core at another time.

**Evidence against.** Not even a realtime task delays a poll right after its interrupt; a poll waits
only once the kernel has handed it to `ksoftirqd`.
"""

from __future__ import annotations

from sexton.explain.order import READ_S, near, when
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="realtime_hog",
    effect="starved_napi",
    story="the poll of a NIC queue had to wait for that core",
    proof="both in the same seconds; record the next occurrence (sexton record)",
)
def join(cause: Finding, effect: Finding, _window: Window) -> Bond | None:
    """The same core."""
    cores = cause.shares(effect, "core")
    if not cores:
        return None
    queues = ", ".join(effect.entities.get("queue", ())) or "a queue"
    return Bond(
        Strength.PROVEN if near(cause, effect, READ_S) else Strength.LIKELY,
        f"core {', '.join(cores)} serves {queues}; {when(cause, effect)}",
        shared=cores,
    )
