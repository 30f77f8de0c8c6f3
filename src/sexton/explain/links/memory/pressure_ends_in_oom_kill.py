"""The node's memory is used up, and the OOM killer frees some.

**Rule.** Only kills for the node's own shortage: at a cgroup's limit there are kills on a node with
plenty of memory, too. *Proven*: such a kill came while tasks waited for memory, or within 10 s of
the end. No link if the kill came before, or later.

**Evidence against.** Kills at cgroups' limits at the same time: they did not need the shortage.
"""

from __future__ import annotations

from sexton.detect.oom import kills
from sexton.explain.order import READ_S
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.text import count, printable
from sexton.model.window import Window

LATE_S = 10.0


@link(
    cause="memory_pressure",
    effect="oom_kills",
    story="the kernel killed processes to get memory back",
    proof="the kernel log of those seconds",
)
def join(cause: Finding, _effect: Finding, window: Window) -> Bond | None:
    """Kills for the node's shortage while there was pressure."""
    if cause.start is None:
        return None
    first, last = cause.start - READ_S, (cause.end or cause.start) + LATE_S
    during = [
        kill for kill in kills(window) if kill.wall_s is not None and first <= kill.wall_s <= last
    ]
    mine = [kill for kill in during if kill.scope == "node"]
    if not mine:
        return None
    limited = [kill for kill in during if kill.scope == "cgroup"]
    words = f"{count(len(limited), 'kill')} at cgroups' limits meanwhile"
    return Bond(
        Strength.PROVEN,
        f"{printable(mine[-1].task)} was killed for the node's shortage while tasks waited",
        shared=tuple(dict.fromkeys(printable(kill.task) for kill in mine)),
        against=(words,) if limited else (),
    )
