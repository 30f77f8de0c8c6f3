"""The OOM killer ends a container, and its runtime removes the cgroup and makes another.

**Rule.** The killed processes must have been in cgroups that were removed. *Proven*: a process was
killed in at least half of those that came and went there. *Likely*: in fewer. No link for the
cgroup of a unit: systemd restarts it (`oom_kill_restarts_unit`). The strength covers only the
removals with a kill.

**Evidence against.** Most cgroups removed there had no kill.
"""

from __future__ import annotations

from collections import Counter

from sexton.detect.churn import Family, churn
from sexton.detect.oom import kills
from sexton.detect.stems import join as join_path
from sexton.detect.stems import unit_of
from sexton.explain.links.cgroups.oom_kill_restarts_unit import SOON_S
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.text import count, printable
from sexton.model.window import Window


@link(
    cause="oom_kills",
    effect="cgroup_churn",
    story="the cgroup was removed, and another one made",
    proof="a trace of the cgroup removals there (sudo sexton zombies --watch)",
)
def join(_cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The family of removed cgroups with the most kills."""
    seen = churn(window)
    if seen is None:
        return None
    places = effect.entities.get("cgroup", ())
    killed = _killed(window)
    found = [
        (number, family)
        for family in seen.families
        if printable(family.path) in places
        and unit_of(family.exact or "") is None
        and (number := _with_kill(family, killed))
    ]
    if not found:
        return None
    number, family = max(found, key=lambda pair: pair[0])
    most = 2 * number >= family.deaths
    few = f"no process was killed in {family.deaths - number:,} of {family.deaths:,} removed there"
    return Bond(
        Strength.PROVEN if most else Strength.LIKELY,
        f"processes were killed in {count(number, 'cgroup')} matching {family.shown}",
        shared=(printable(family.path),),
        against=() if most else (few,),
        covers=None if number == family.deaths else (number, family.deaths),
    )


def _killed(window: Window) -> Counter[str]:
    """Kills by the process's cgroup, also just before the window; one of each OOM group."""
    return Counter(
        kill.task_cgroup
        for kill in kills(window)
        if kill.task_cgroup is not None
        and not kill.along
        and kill.wall_s is not None
        and window.start - SOON_S <= kill.wall_s <= window.end
    )


def _with_kill(family: Family, killed: Counter[str]) -> int:
    """How many of the removed cgroups had a kill, in them or below them."""
    removed = {join_path(family.path, name) for name in family.names}
    number = sum(
        times
        for path, times in killed.items()
        if any(path == gone or path.startswith(f"{gone}/") for gone in removed)
    )
    return min(number, family.deaths)
