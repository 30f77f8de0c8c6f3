"""Each restart of a crash-looping unit leaves a dying memory cgroup behind.

**Rule.** The restart ledger must name the unit among those that leave dead cgroups. *Proven*: its
own path was seen to die without release (traced, or listed by the kernel as offline). *Likely*:
the number of its restarts matches the number of dead cgroups and it restarts while we watch.
*Possible*: only one of the two.

**Speaks against it.** Zombies under another parent than the unit's slice; restarts far fewer than
zombies.
"""

from __future__ import annotations

from sexton.detect.ledger import suspects
from sexton.explain.registry import link
from sexton.model.chain import Link
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(cause="crash_looping_unit", effect="zombie_memcgs")
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The best suspect of the ledger that is also crash-looping."""
    units = cause.entities.get("unit", ())
    for suspect in suspects(window):
        if suspect.owner in units:
            return Link(
                "crash_loop_leaves_zombies",
                cause.id,
                effect.id,
                suspect.strength,
                suspect.sentence,
                shared=(suspect.owner,),
            )
    return None
