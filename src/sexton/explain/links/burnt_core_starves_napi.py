"""The NIC queue that is polled on the burnt core waits.

**Rule.** Both must be about the same core. *Proven*: the wait lies inside the time the core was
held, give or take a driver's 10 s of patience. *Likely*: the same core, at another time (the
stall is seen live, the kernel log remembers an earlier wait).

**Speaks against it.** The driver also says `napi scheduled: 0` of that interface: then an interrupt
was lost and no core was to blame.
"""

from __future__ import annotations

from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.event import KernelEvent
from sexton.model.finding import Finding
from sexton.model.text import count, printable
from sexton.model.window import Window

PATIENCE_S = 10.0


@link(cause="saturated_core", effect="starved_napi")
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
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
        against=_unasked(effect, window),
    )


def _unasked(starved: Finding, window: Window) -> tuple[str, ...]:
    """Polls that nobody had asked for, on the same interfaces."""
    nics = starved.entities.get("nic", ())
    lost = sum(
        event.fields.get("napi_scheduled") == 0 and printable(str(event.fields.get("nic"))) in nics
        for event in window.all(KernelEvent) or ()
    )
    if not lost:
        return ()
    return (f"{count(lost, 'line')} of the driver: NAPI was not even scheduled, an interrupt lost",)


def near(cause: Finding, effect: Finding, slack_s: float) -> bool:
    """Did the effect begin while the cause lasted, or within `slack_s` of its end?"""
    if cause.start is None or effect.start is None:
        return False
    return cause.start - slack_s <= effect.start <= (cause.end or cause.start) + slack_s
