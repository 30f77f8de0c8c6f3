"""The node's memory is used up, and the kernel kills to get some back.

**Rule.** Only kills for the node's own shortage: a cgroup that reaches its limit is killed on a
node with plenty of memory. *Proven*: such a kill lies inside the stretch in which tasks waited for
memory, or within 10 s of its end. No link where the kill came before, or later.

**Speaks against it.** Kills at cgroups' limits in the same time: they did not need the shortage.
"""

from __future__ import annotations

from sexton.detect.oom import kills
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.text import count, printable
from sexton.model.window import Window

LATE_S = 10.0
#: Pressure is read every second.
_READ_S = 2.0


@link(
    cause="memory_pressure",
    effect="oom_kills",
    story="the kernel killed processes to get memory back",
    proof="the kernel log of those seconds",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """Kills for the node in the stretch of pressure."""
    if cause.start is None:
        return None
    first, last = cause.start - _READ_S, (cause.end or cause.start) + LATE_S
    during = [
        kill for kill in kills(window) if kill.wall_s is not None and first <= kill.wall_s <= last
    ]
    mine = [kill for kill in during if kill.scope == "node"]
    if not mine:
        return None
    limited = [kill for kill in during if kill.scope == "cgroup"]
    words = f"{count(len(limited), 'kill')} at cgroups' limits meanwhile"
    return Link(
        "pressure_ends_in_oom_kill",
        cause.id,
        effect.id,
        Strength.PROVEN,
        f"{printable(mine[-1].task)} was killed for the node's shortage while tasks waited",
        shared=tuple(dict.fromkeys(printable(kill.task) for kill in mine)),
        against=(words,) if limited else (),
    )
