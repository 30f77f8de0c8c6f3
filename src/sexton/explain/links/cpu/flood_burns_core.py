"""Packets come faster than one core takes them in, and softirq holds it.

**Rule.** The held core must be one that is flooded. With kernel stacks of the held seconds they
decide: *proven* where half of them or more take in packets, *likely* from a fifth on, no link below
one in twenty. Without stacks its own times do, where both were in the same seconds or the core took
in a flood while it was held: *proven* where most of the held time was softirq, no link where it was
system time, which is a task's; *possible* where nothing tells.

**Speaks against it.** A core that neither dropped a packet nor cut a poll short: busy, not flooded.
"""

from __future__ import annotations

from dataclasses import replace

from sexton.detect.detectors.network.softirq_flood import PACKETS
from sexton.explain.held import NETWORK, SLACK_S, core_of, in_softirq, judge, work_of
from sexton.explain.moments import moved, together
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.rows.cpu import SoftnetCpu
from sexton.model.window import Window
from sexton.series.steps import Step


@link(
    cause="softirq_flood",
    effect="saturated_core",
    story="receiving packets held a core in softirq",
    proof="kernel stacks of the held core (--stacks)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The flood on the held core."""
    core = core_of(effect)
    if core is None or core not in cause.entities.get("core", ()):
        return None
    against = _unhurried(core, effect, window)
    if work_of(effect, window) is not None:
        found = judge("flood_burns_core", (cause, effect), window, NETWORK)
        return None if found is None else replace(found, against=(*found.against, *against))
    softirq = in_softirq(effect)
    meanwhile = together(cause, effect, SLACK_S) or _flooded(core, effect, window)
    if softirq is False or not meanwhile:
        return None
    how = "most of that time was softirq" if softirq else "whether in softirq is unknown"
    return Link(
        "flood_burns_core",
        cause.id,
        effect.id,
        Strength.PROVEN if softirq else Strength.POSSIBLE,
        f"core {core} is the flooded one; {how}",
        shared=(core,),
        against=against,
    )


def _backlog(core: str, held: Finding, window: Window) -> Step[SoftnetCpu] | None:
    if held.start is None or held.end is None:
        return None
    span = (held.start, held.end)
    return moved(window, SoftnetCpu, lambda row: row.cpu, span).get(int(core))


def _flooded(core: str, held: Finding, window: Window) -> bool:
    """Floods come again: the worst one may be another than the one that held the core longest."""
    step = _backlog(core, held, window)
    packets = step.delta("processed") if step is not None else None
    return step is not None and packets is not None and packets / step.seconds >= PACKETS.value


def _unhurried(core: str, held: Finding, window: Window) -> tuple[str, ...]:
    """The backlog of that core, where it was read and did not suffer."""
    step = _backlog(core, held, window)
    if step is None or step.delta("dropped") or step.delta("time_squeeze"):
        return ()
    return (f"core {core} dropped no packet and cut no poll short",)
