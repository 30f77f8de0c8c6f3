"""Each restart of a crash-looping unit leaves a dying memory cgroup behind.

**Rule.** The restart ledger must name the unit among those that leave dead cgroups. *Proven*: its
own path was seen to die without release (traced, or listed by the kernel as offline). *Likely*:
the number of its restarts matches the number of dead cgroups and it restarts while we watch.
*Possible*: only one of the two. One step weaker where it accounts for less than 5 % of the dead.
The strength speaks of those it accounts for, not of all.

**Speaks against it.** More of the dead are known to lie below another directory than the unit's
parent; its restarts are less than half as many as the dead, and its period does not explain them.
"""

from __future__ import annotations

from sexton.detect.detectors.cgroups.zombie_memcgs import SHARE
from sexton.detect.ledger import Suspect, suspects
from sexton.detect.owners import owners
from sexton.detect.stems import split
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.window import Window

FEW = 0.5


@link(
    cause="crash_looping_unit",
    effect="zombie_memcgs",
    story="each restart leaves a dying memory cgroup behind",
    proof="a trace of its deaths (sudo sexton zombies --watch)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The best suspect of the ledger that is also crash-looping."""
    units = cause.entities.get("unit", ())
    for suspect in suspects(window):
        if suspect.owner in units:
            strength, covers = of_the_dead(suspect.strength, suspect.matched, window)
            return Link(
                "crash_loop_leaves_zombies",
                cause.id,
                effect.id,
                strength,
                suspect.sentence,
                shared=(suspect.owner,),
                covers=covers,
                against=(*too_few(suspect, window), *more_below_others(suspect, window)),
            )
    return None


def of_the_dead(
    strength: Strength, known: int, window: Window
) -> tuple[Strength, tuple[int, int] | None]:
    """How sure it is that they left the dead, and of how many that is known.

    What was seen of less than `SHARE` proves nothing of the others: that is one step weaker, and
    *possible* where most of the dead are known to be somebody else's. Where the others are so few,
    it is said of all.
    """
    census = window.latest(CgroupCensus)
    dying = census[0].dying if census else None
    if not dying or (dying - known) * 100 <= SHARE.value * dying:
        return strength, None
    if known * 100 < SHARE.value * dying:
        named = sum(owner.dying or 0 for owner in owners(window))
        foreign = named - known >= FEW * dying
        sure = strength is Strength.PROVEN and not foreign
        strength = Strength.LIKELY if sure else Strength.POSSIBLE
    return strength, (known, dying)


def too_few(suspect: Suspect, window: Window) -> tuple[str, ...]:
    """Its restarts explain less than half of the dead."""
    census = window.latest(CgroupCensus)
    dying = census[0].dying if census else None
    if not dying or suspect.ratio is None or suspect.ratio >= FEW or suspect.matched >= FEW * dying:
        return ()
    return (f"{suspect.owner} accounts for {suspect.matched:,} of {dying:,} dying cgroups only",)


def more_below_others(suspect: Suspect, window: Window) -> tuple[str, ...]:
    """Somebody else's dead, where they are more; a unit without a known place is not judged."""
    if not suspect.path:
        return ()
    parent = split(suspect.path)[0].rstrip("/")
    others = [
        (owner.dying or 0, owner.path)
        for owner in owners(window)
        if owner.unit != suspect.owner and not f"{owner.path}/".startswith(f"{parent}/")
    ]
    most, where = max(others, default=(0, ""))
    return (f"{most:,} dying cgroups are below {where}",) if most > suspect.matched else ()
