"""Behind a flood of packets the poll of another queue waits for its turn of the core.

**Rule.** *Likely*: the same core, and the wait begins while the flood lasts or within 10 s of it.
*Possible*: only the same NIC, in the same time. There is no stronger form: a poll that has too much
to do and one that is not run look alike from outside, and where the core itself was held,
`flood_burns_core` and `burnt_core_starves_napi` tell more.

**Speaks against it.** The driver counted no packet dropped and no poll cut short on those cores.
"""

from __future__ import annotations

from sexton.explain.links.network.burnt_core_starves_napi import PATIENCE_S
from sexton.explain.moments import moved, near
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.rows.cpu import SoftnetCpu
from sexton.model.window import Window


@link(
    cause="softirq_flood",
    effect="starved_napi",
    story="the poll of a NIC queue had to wait behind the flood",
    proof="the wait of each poll, measured in the kernel (--probe)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The same core, else the same interface."""
    if not near(cause, effect, PATIENCE_S):
        return None
    cores, nics = cause.shares(effect, "core"), cause.shares(effect, "nic")
    if not cores and not nics:
        return None
    where = f"core {', '.join(cores)}" if cores else nics[0]
    return Link(
        "flood_starves_napi",
        cause.id,
        effect.id,
        Strength.LIKELY if cores else Strength.POSSIBLE,
        f"{where} is flooded and polls the queue that waited, at the same time",
        shared=cores or nics,
        against=_unhurried(cores, cause, window),
    )


def _unhurried(cores: tuple[str, ...], flood: Finding, window: Window) -> tuple[str, ...]:
    if flood.start is None or not cores:
        return ()
    steps = moved(window, SoftnetCpu, lambda row: row.cpu, (flood.start, flood.end or flood.start))
    here = [step for step in steps.values() if str(step.after.cpu) in cores]
    if not here or any(step.delta("dropped") or step.delta("time_squeeze") for step in here):
        return ()
    return (f"core {', '.join(cores)} dropped no packet and cut no poll short",)
