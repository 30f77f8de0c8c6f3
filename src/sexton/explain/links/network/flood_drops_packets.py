"""A flooded core drops packets that it cannot process, and TCP retransmits them.

**Rule.** The loss begins while the flood lasts, or within 10 s of it. *Proven*: a flooded core
dropped packets from its backlog in that time (`softnet_stat`). *Likely*: the flooded interface
dropped some (`/proc/net/dev`). *Possible*: neither was counted. No link if a counter was read and
none moved: then nothing was dropped on receive.

**Evidence against.** Fewer packets dropped than retransmitted: most were lost elsewhere.
"""

from __future__ import annotations

from sexton.explain.links.network.nic_reset_drops_connections import SENT_AGAIN, counted
from sexton.explain.order import near
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Evidence, Finding
from sexton.model.rows.cpu import SoftnetCpu
from sexton.model.rows.net import NetDevice
from sexton.model.text import count
from sexton.model.window import Window
from sexton.series.steps import known_sum, span_around

FOLLOWS_WITHIN_S = 10.0


@link(
    cause="softirq_flood",
    effect="tcp_loss",
    story="packets were dropped before TCP saw them",
    proof="the drops of each core's backlog (/proc/net/softnet_stat)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """Drops on the flooded core or interface, in the seconds of the loss."""
    if cause.start is None or effect.start is None or not near(cause, effect, FOLLOWS_WITHIN_S):
        return None
    span = (min(cause.start, effect.start), effect.end or effect.start)
    backlog = _backlog(cause, window, span)
    device = _device(cause, window, span)
    if not backlog and not device and (backlog is not None or device is not None):
        return None
    strength = Strength.PROVEN if backlog else Strength.LIKELY if device else Strength.POSSIBLE
    number = backlog or device or 0
    text = f"{count(number, 'packet')} dropped on receive" if number else "drops were not read"
    return Bond(
        strength,
        f"{text}, while TCP lost segments",
        shared=cause.entities.get("core", ()) if backlog else cause.entities.get("nic", ()),
        evidence=_evidence(backlog, device),
        against=_elsewhere(number, window, span),
    )


def _backlog(flood: Finding, window: Window, span: tuple[float, float]) -> int | None:
    """Packets dropped by the flooded cores; None if their counter was not read twice."""
    cores = flood.entities.get("core", ())
    steps = span_around(window, SoftnetCpu, lambda row: row.cpu, span).values()
    here = [step for step in steps if not cores or str(step.after.cpu) in cores]
    return known_sum(step.delta("dropped") for step in here)


def _device(flood: Finding, window: Window, span: tuple[float, float]) -> int | None:
    nics = flood.entities.get("nic", ())
    steps = span_around(window, NetDevice, lambda row: row.name, span).values()
    here = [step for step in steps if step.after.name in nics]
    return known_sum(step.delta("rx_dropped") for step in here)


def _evidence(backlog: int | None, device: int | None) -> tuple[Evidence, ...]:
    counted = (
        ("packets dropped from the flooded core's backlog", backlog, "/proc/net/softnet_stat"),
        ("packets the flooded interface dropped", device, "/proc/net/dev"),
    )
    return tuple(
        Evidence(what, f"{number:,}", "0", "packets", source, number, "they were not TCP packets")
        for what, number, source in counted
        if number is not None
    )


def _elsewhere(dropped: int, window: Window, span: tuple[float, float]) -> tuple[str, ...]:
    again = counted(window, span, SENT_AGAIN)
    if not again or dropped >= again:
        return ()
    return (f"{again:,} TCP retransmits, but only {dropped:,} packets dropped here",)
