"""A flood of packets occupies a core, and the poll of another queue waits for it.

**Rule.** *Likely*: the same core, and the wait begins while the flood lasts or within 10 s of it.
*Possible*: only the same NIC, at the same time. There is no stronger form: a poll that has too much
to do and one that does not run look alike from outside. If the core itself was held,
`flood_burns_core` and `burnt_core_starves_napi` apply.

**Evidence against.** The driver counted no packet dropped and no poll cut short on those cores.
"""

from __future__ import annotations

from sexton.explain.links.cpu.flood_burns_core import not_overloaded
from sexton.explain.order import near, when
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window

#: As long as a driver waits for a poll, and longer than a flood is read late.
PATIENCE_S = 10.0


@link(
    cause="softirq_flood",
    effect="starved_napi",
    story="the poll of a NIC queue had to wait behind the flood",
    proof="the wait of each poll, measured in the kernel (--probe)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The same core, else the same interface."""
    if not near(cause, effect, PATIENCE_S):
        return None
    cores, nics = cause.shares(effect, "core"), cause.shares(effect, "nic")
    if not cores and not nics:
        return None
    where = f"core {', '.join(cores)}" if cores else nics[0]
    return Bond(
        Strength.LIKELY if cores else Strength.POSSIBLE,
        f"{where} was flooded and polls the queue that waited, {when(cause, effect)}",
        shared=cores or nics,
        against=not_overloaded(cores, cause, window),
    )
