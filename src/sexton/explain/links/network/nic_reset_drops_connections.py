"""A device that resets neither sends nor receives, and connections time out.

**Rule.** The loss begins within 30 s after a reset; or it began up to 10 s before and continues
after it. Then the link covers only what was lost from the reset on: the earlier loss belongs to the
starved queue (`starved_napi_drops_connections`). *Proven*: the interface is the only physical one,
so TCP's loss went through it, and TCP counted timeouts or aborted connections after the reset.
*Likely*: in time, but there are several interfaces, or TCP counted only retransmits. No link if
nothing was lost from the reset on, or only long after.

**Evidence against.** Loss that began before the reset; the same loss in the minutes before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.detect import nics
from sexton.detect.detectors.network.nic_resets import reset_times
from sexton.explain.order import READ_S, began_before
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Evidence, Finding
from sexton.model.rows.net import TcpCounters
from sexton.model.text import printable
from sexton.model.window import Window
from sexton.series.steps import known_sum, span_around

BEFORE_S = 10.0
AFTER_S = 30.0
#: Length of the quiet span to compare with; it ends where the wait may have begun.
CALM_S = 120.0
GAVE_UP = ("timeouts", "aborts_on_timeout")
SENT_AGAIN = ("retransmitted_segments",)


@link(
    cause="nic_resets",
    effect="tcp_loss",
    story="connections lost packets",
    proof="what TCP counted after the reset, second by second (sexton record)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """Order in time, and whether the interface is the only uplink."""
    loss = effect.start
    if loss is None:
        return None
    moments = [at for at in reset_times(cause, window) if at - BEFORE_S <= loss <= at + AFTER_S]
    if not moments:
        return None
    at = min(moments, key=lambda moment: abs(moment - loss))
    since = None if loss >= at - READ_S else at
    gave_up = counted(window, (at, at + AFTER_S), GAVE_UP)
    again = counted(window, (at, at + AFTER_S), SENT_AGAIN)
    if since is not None and not gave_up and not again:
        return None  # all of it was lost before the reset
    names = cause.entities.get("nic", ())
    alone = is_only_uplink(names, window)
    who = ", ".join(names) or "an interface"
    what = f"{gave_up:,} TCP timeouts after the reset" if gave_up else "TCP retransmits"
    only = f"{who} is the only uplink" if alone else f"{who} is one of several interfaces"
    early = () if since is None else (began_before((cause, effect), at),)
    return Bond(
        Strength.PROVEN if alone and gave_up else Strength.LIKELY,
        f"{what}; {only}",
        shared=names,
        evidence=_evidence(gave_up),
        against=(*early, *_before(window, at, gave_up)),
        since=since,
    )


def is_only_uplink(names: Sequence[str], window: Window) -> bool:
    """Is one of these the only physical interface of the node?"""
    found = nics.physical(window)
    return found is not None and len(found) == 1 and printable(found[0]) in names


def counted(window: Window, span: tuple[float, float], names: tuple[str, ...]) -> int | None:
    """By how much these TCP counters rose over a span (UNIX); None if they were not read."""
    step = span_around(window, TcpCounters, type, span).get(TcpCounters)
    return None if step is None else known_sum(step.delta(name) for name in names)


def _evidence(gave_up: int | None) -> tuple[Evidence, ...]:
    if gave_up is None:
        return ()
    return (
        Evidence(
            "TCP timeouts and aborted connections after the reset",
            f"{gave_up:,}",
            "about 0",
            f"in {AFTER_S:.0f} s",
            "/proc/net/netstat",
            gave_up,
            "the peer was lost, not this node",
        ),
    )


def _before(window: Window, at: float, gave_up: int | None) -> tuple[str, ...]:
    """Evidence against: at least half as many timeouts per second before the reset."""
    calm = counted(window, (at - CALM_S - BEFORE_S, at - BEFORE_S), GAVE_UP)
    edges = window.edges(TcpCounters)
    if not gave_up or calm is None or edges is None or at - edges[0].wall_s < CALM_S:
        return ()
    if calm / CALM_S < gave_up / AFTER_S / 2:
        return ()
    return (f"{calm:,} timeouts in the {CALM_S:.0f} s before the reset: loss without it too",)
