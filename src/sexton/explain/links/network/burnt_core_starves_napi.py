"""A NIC queue that is polled on a held core waits.

**Rule.** Both must be about the same core. *Proven*: the wait began while the core was held, give
or take the two seconds between readings, and that core is the one held longest, whose time is
known; or the core's CPU times show the kernel in nine tenths of the wait. *Likely*: the same core
at another time (the stall is seen live, the kernel log remembers an earlier wait).

**Evidence against.** The driver also logs `napi scheduled: 0` for that interface: then an interrupt
was lost, and no core was to blame.
"""

from __future__ import annotations

from sexton.detect.detectors.cpu.saturated_core import KERNEL_SHARE
from sexton.explain.held import core_of, kernel_share
from sexton.explain.order import READ_S, near, when
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.rows.event import KernelEvent
from sexton.model.text import count, printable
from sexton.model.window import Window


@link(
    cause="saturated_core",
    effect="starved_napi",
    story="the poll of a NIC queue had to wait for that core",
    proof="both in the same seconds; record the next occurrence (sexton record)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The same core."""
    cores = cause.shares(effect, "core")
    if not cores:
        return None
    queues = ", ".join(effect.entities.get("queue", ())) or "a queue"
    sure = near(cause, effect, READ_S) and core_of(cause) in cores
    words = when(cause, effect)
    if not sure and _was_held(cores, effect, window):
        sure, words = True, "held in the kernel while it waited"
    return Bond(
        Strength.PROVEN if sure else Strength.LIKELY,
        f"core {', '.join(cores)} serves {queues}; {words}",
        shared=cores,
        against=_unrequested_polls(effect, window),
    )


def _was_held(cores: tuple[str, ...], starved: Finding, window: Window) -> bool:
    """Was one of the cores held while the queue waited? A core may be held again and again."""
    if starved.start is None or starved.end is None or starved.end <= starved.start:
        return False
    span = (starved.start, starved.end)
    shares = (kernel_share(window, core, span) for core in cores)
    return any(share is not None and share >= KERNEL_SHARE.value for share in shares)


def _unrequested_polls(starved: Finding, window: Window) -> tuple[str, ...]:
    """Evidence against: polls on these interfaces that no interrupt had requested."""
    nics = starved.entities.get("nic", ())
    lost = sum(
        event.fields.get("napi_scheduled") == 0 and printable(str(event.fields.get("nic"))) in nics
        for event in window.all(KernelEvent) or ()
    )
    if not lost:
        return ()
    return (f"{count(lost, 'line')} of the driver: NAPI was not scheduled, an interrupt was lost",)
