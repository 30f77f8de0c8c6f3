"""While the device is reset nothing is sent or received, and connections time out.

**Rule.** The loss begins within 30 s after a reset, or up to 10 s before it: the queue that led to
the reset had been waiting that long. *Proven*: the reset's interface is the only real one, so that
what TCP lost went through it, and TCP counted time-outs or gave connections up around the reset.
*Likely*: in time, but there are several interfaces, or TCP counted retransmissions alone. No link
where the loss had begun before, or long after.

**Speaks against it.** The same loss in the minutes before the first reset.
"""

from __future__ import annotations

from sexton.detect import nics
from sexton.explain.moments import moved, resets
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Evidence, Finding
from sexton.model.net import TcpCounters
from sexton.model.text import printable
from sexton.model.window import Window

BEFORE_S = 10.0
AFTER_S = 30.0
#: A quiet stretch to compare with ends where the wait may have begun.
CALM_S = 120.0
_GAVE_UP = ("timeouts", "aborts_on_timeout")


@link(
    cause="nic_resets",
    effect="tcp_loss",
    story="connections lost packets",
    proof="what TCP counted around the reset, second by second (sexton record)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """Order in time, and the only way out of the node."""
    loss = effect.start
    if loss is None:
        return None
    moments = [at for at in resets(cause, window) if at - BEFORE_S <= loss <= at + AFTER_S]
    if not moments:
        return None
    at = min(moments, key=lambda moment: abs(moment - loss))
    gave_up = _counted(window, (at - BEFORE_S, at + AFTER_S), _GAVE_UP)
    names = cause.entities.get("nic", ())
    ways = nics.physical(window)
    alone = ways is not None and len(ways) == 1 and printable(ways[0]) in names
    who = ", ".join(names) or "an interface"
    what = f"{gave_up:,} TCP timeouts around the reset" if gave_up else "TCP sent again"
    only = f"{who} is the only uplink" if alone else f"{who} is one of several interfaces"
    return Link(
        "nic_reset_drops_connections",
        cause.id,
        effect.id,
        Strength.PROVEN if alone and gave_up else Strength.LIKELY,
        f"{what}; {only}",
        shared=names,
        evidence=_evidence(gave_up),
        against=_before(window, at, gave_up),
    )


def _counted(window: Window, span: tuple[float, float], names: tuple[str, ...]) -> int | None:
    step = moved(window, TcpCounters, type, span).get(TcpCounters)
    deltas = [step.delta(name) for name in names] if step is not None else []
    known = [delta for delta in deltas if delta is not None]
    return sum(known) if known else None


def _evidence(gave_up: int | None) -> tuple[Evidence, ...]:
    if gave_up is None:
        return ()
    return (
        Evidence(
            "TCP timeouts and aborted connections around the reset",
            f"{gave_up:,}",
            "about 0",
            "in 40 s",
            "/proc/net/netstat",
            gave_up,
            "the peer was lost, not this node",
        ),
    )


def _before(window: Window, at: float, gave_up: int | None) -> tuple[str, ...]:
    """As many time-outs a second in the calm before it."""
    calm = _counted(window, (at - CALM_S - BEFORE_S, at - BEFORE_S), _GAVE_UP)
    edges = window.edges(TcpCounters)
    if not gave_up or calm is None or edges is None or at - edges[0].wall_s < CALM_S:
        return ()
    if calm / CALM_S < gave_up / (BEFORE_S + AFTER_S) / 2:
        return ()
    return (f"{calm:,} timeouts in the {CALM_S:.0f} s before the reset: loss without it too",)
