"""Each restart of a crash-looping unit leaves a dying memory cgroup behind.

**Rule.** The restart ledger must list the unit among those that leave dying cgroups. *Proven*: its
own path died and was not freed (traced, or listed by the kernel as offline). *Likely*: the number
of its restarts matches the number of dying cgroups, and it restarts in the window. *Possible*: only
one of the two. One step weaker if it accounts for less than 5 % of them. The strength covers only
those it accounts for.

**Evidence against.** More dying cgroups are known to lie below a directory other than the unit's
parent; the unit restarted less than half as often as there are dying cgroups, and its period does
not explain them.
"""

from __future__ import annotations

from sexton.detect.detectors.cgroups.zombie_memcgs import SHARE
from sexton.detect.growth import latest_count
from sexton.detect.ledger import Suspect, suspects
from sexton.detect.owners import owners
from sexton.detect.stems import split
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window

FEW = 0.5


@link(
    cause="crash_looping_unit",
    effect="zombie_memcgs",
    story="each restart leaves a dying memory cgroup behind",
    proof="a trace of its cgroup removals (sudo sexton zombies --watch)",
)
def join(cause: Finding, _effect: Finding, window: Window) -> Bond | None:
    """The best suspect of the ledger that crash-loops."""
    units = (*cause.entities.get("unit", ()), *cause.entities.get("container", ()))
    for suspect in suspects(window):
        if suspect.owner in units:
            strength, covers = strength_and_coverage(suspect.strength, suspect.matched, window)
            return Bond(
                strength,
                suspect.sentence,
                shared=(suspect.owner,),
                covers=covers,
                against=(*too_few(suspect, window), *more_below_others(suspect, window)),
            )
    return None


def strength_and_coverage(
    strength: Strength, known: int, window: Window
) -> tuple[Strength, tuple[int, int] | None]:
    """How sure it is that a cause left the dying cgroups, and how many of them that covers.

    Knowing less than `SHARE` of them proves nothing about the others: that is one step weaker, and
    *possible* if most are known to be another unit's. If hardly any are left, it covers all.
    """
    dying = dying_in(window)
    if not dying or (dying - known) * 100 <= SHARE.value * dying:
        return strength, None
    if known * 100 < SHARE.value * dying:
        named = sum(owner.dying or 0 for owner in owners(window))
        foreign = named - known >= FEW * dying
        sure = strength is Strength.PROVEN and not foreign
        strength = Strength.LIKELY if sure else Strength.POSSIBLE
    return strength, (known, dying)


def dying_in(window: Window) -> int | None:
    """The number of dying memory cgroups, None if unknown."""
    census = latest_count(window)
    return None if census is None else census.dying


def too_few(suspect: Suspect, window: Window) -> tuple[str, ...]:
    """Evidence against: its restarts explain less than half of the dying cgroups."""
    dying = dying_in(window)
    if not dying or suspect.ratio is None or suspect.ratio >= FEW or suspect.matched >= FEW * dying:
        return ()
    return (f"{suspect.owner} accounts for {suspect.matched:,} of {dying:,} dying cgroups only",)


def more_below_others(suspect: Suspect, window: Window) -> tuple[str, ...]:
    """Evidence against: more dying cgroups lie elsewhere. None if the unit's path is unknown."""
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
