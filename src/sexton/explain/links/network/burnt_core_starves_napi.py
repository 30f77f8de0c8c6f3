"""The NIC queue that is polled on the burnt core waits.

**Rule.** Both must be about the same core. *Proven*: the wait lies inside the time the core was
held, give or take a driver's 10 s of patience, and that core is the one held longest, whose time
is known; or its own times show it held by the kernel for nine tenths of the wait. *Likely*: the
same core, at another time (the stall is seen live, the kernel log remembers an earlier wait).

**Speaks against it.** The driver also says `napi scheduled: 0` of that interface: then an interrupt
was lost and no core was to blame.
"""

from __future__ import annotations

from sexton.detect.detectors.cpu.saturated_core import KERNEL_SHARE
from sexton.explain.held import core_of, kernel_share
from sexton.explain.moments import near
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.rows.event import KernelEvent
from sexton.model.text import count, printable
from sexton.model.window import Window

PATIENCE_S = 10.0


@link(
    cause="saturated_core",
    effect="starved_napi",
    story="the poll of a NIC queue had to wait for that core",
    proof="both in the same seconds; record the next occurrence (sexton record)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The same core."""
    cores = cause.shares(effect, "core")
    if not cores:
        return None
    queues = ", ".join(effect.entities.get("queue", ())) or "a queue"
    together = near(cause, effect, PATIENCE_S) and core_of(cause) in cores
    together = together or _held(cores, effect, window)
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


def _held(cores: tuple[str, ...], starved: Finding, window: Window) -> bool:
    """Was such a core held while the queue waited? A core may be held again and again."""
    if starved.start is None or starved.end is None or starved.end <= starved.start:
        return False
    span = (starved.start, starved.end)
    shares = (kernel_share(window, core, span) for core in cores)
    return any(share is not None and share >= KERNEL_SHARE.value for share in shares)


def _unasked(starved: Finding, window: Window) -> tuple[str, ...]:
    """Polls that nobody had asked for, on the same interfaces."""
    nics = starved.entities.get("nic", ())
    lost = sum(
        event.fields.get("napi_scheduled") == 0 and printable(str(event.fields.get("nic"))) in nics
        for event in window.all(KernelEvent) or ()
    )
    if not lost:
        return ()
    return (f"{count(lost, 'line')} of the driver: NAPI was not scheduled, an interrupt was lost",)
