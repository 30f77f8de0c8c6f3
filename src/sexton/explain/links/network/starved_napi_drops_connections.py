"""A queue that is not polled delivers nothing, and connections through it time out.

**Rule.** The loss must begin while the poll waited, as far as readings of TCP's counters show.
*Proven*: the interface is the only physical one, so TCP's loss went through it, and TCP counted
timeouts meanwhile. *Likely*: several interfaces, or TCP counted only retransmits. No link if
TCP's counters did not move meanwhile.

**Evidence against.** None; a reset that followed is the next link.
"""

from __future__ import annotations

from sexton.explain.links.network.nic_reset_drops_connections import (
    GAVE_UP,
    SENT_AGAIN,
    counted,
    is_only_uplink,
)
from sexton.explain.order import READ_S
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.rows.net import TcpCounters
from sexton.model.text import seconds
from sexton.model.window import Window

#: A reading this late still shows what happened in the second before it was due.
LATE_S = 5.0


@link(
    cause="starved_napi",
    effect="tcp_loss",
    story="connections lost packets",
    proof="what TCP counted meanwhile, second by second (sexton record)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """Loss that begins while the queue waited."""
    if cause.start is None or cause.end is None or effect.start is None:
        return None
    first, last = cause.start, cause.end
    if not first - READ_S <= _seen(effect.start, window) or effect.start > last + READ_S:
        return None
    gave_up = counted(window, (first, last), GAVE_UP)
    if not gave_up and not counted(window, (first, last), SENT_AGAIN):
        return None
    names = cause.entities.get("nic", ())
    alone = is_only_uplink(names, window)
    who = ", ".join(cause.entities.get("queue", ()) or names) or "a queue"
    what = f"{gave_up:,} TCP timeouts" if gave_up else "TCP retransmits"
    return Bond(
        Strength.PROVEN if alone and gave_up else Strength.LIKELY,
        f"{what} in the {seconds(last - first)} in which {who} was not polled",
        shared=names,
        since=first if effect.start < first - READ_S else None,
    )


def _seen(start: float, window: Window) -> float:
    """The first reading that showed the loss, which happened at any time since the one before."""
    mono = window.mono(start)
    after = (
        batch.wall_s
        for batch in window.between(TcpCounters, mono, mono + LATE_S)
        if batch.mono_s > mono
    )
    return next(after, start)
