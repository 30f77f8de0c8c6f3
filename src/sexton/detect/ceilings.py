"""The two walls a growing number of memory cgroups runs into, and when.

The *id wall*: memcg IDs have 16 bits. Kernels before about 4.8 keep an id until the memcg is
released, later ones only while swap entries hold it; so the wall may not be there at all, and a
node with more than 65,535 memory cgroups has proven that it is not.

The *CPU-cost wall*: a walk over all memcgs that takes 5 s on one core is what resets ENA. It is
where the cost of one read per memcg, times their number, reaches 5 s.
"""

from __future__ import annotations

from collections.abc import Iterable

from sexton.detect.registry import Threshold
from sexton.model.finding import Evidence
from sexton.model.rows.cgroup import CgroupCensus, WalkCost
from sexton.model.text import seconds

ID_WALL = Threshold("id wall", 65_535, "memory cgroups", "memcg IDs have 16 bits")
COST_WALL = Threshold(
    "cost wall", 5, "s of one core", "transmit watchdogs (ENA's 5 s) reset a NIC that waits longer"
)
#: Above this a wall is out of sight: memory ends first, at some hundred KB a zombie.
_IN_SIGHT = 5_000_000
#: How far two quickest-of-three readings of the same small file may lie apart.
_JITTER_S = 20e-6


def ceilings(
    census: CgroupCensus, walks: Iterable[WalkCost], pace: float | None
) -> tuple[Evidence, ...]:
    """Both walls as evidence; `pace` is zombies a second, `None` where it cannot be carried on."""
    if census.total is None:
        return ()
    walls = [_ids(census.total, pace)]
    dearest = max(
        walks, key=lambda walk: (not is_bound(walk, census.total), cost(walk)), default=None
    )
    if dearest is not None:
        walls.append(_cost(census.total, dearest, pace))
    return tuple(walls)


def cost(walk: WalkCost) -> float:
    """What one read at the root takes: measured where it was, else the estimate."""
    return walk.estimate_s if walk.root_s is None else walk.root_s


def is_bound(walk: WalkCost, total: int | None) -> bool:
    """Is the estimate no more than an upper bound?

    So it is where only single cgroups were timed, or so few of them that the jitter of a read,
    carried on to all `total`, would make half of the estimate.
    """
    if walk.root_s is not None:
        return False
    if walk.memcgs <= 1:
        return True
    return total is not None and walk.estimate_s < 2 * _JITTER_S * total / (walk.memcgs - 1)


def _ids(total: int, pace: float | None) -> Evidence:
    wall = int(ID_WALL.value)
    if total > wall:
        value = f"not here: {total:,} exist at once"
        wrong_if = "never: the count itself disproves it"
    else:
        value = f"{total:,} of {wall:,}{_when(wall - total, pace)}"
        wrong_if = (
            "dying memcgs release their IDs, as kernels since about 4.8 do unless swap holds them"
        )
    return Evidence(
        "memcg ID limit (worst case)",
        value,
        f"< {wall:,}",
        "memory cgroups",
        "/proc/cgroups, 16-bit IDs",
        float(total),
        wrong_if,
        outlook=True,
    )


def _cost(total: int, walk: WalkCost, pace: float | None) -> Evidence:
    now = cost(walk)
    how = "measured" if walk.root_s is not None else "estimated"
    bound = is_bound(walk, total)
    share = now / max(total, 1)
    wall = int(COST_WALL.value / share) if share > 0 else _IN_SIGHT + 1
    if bound:
        value = f"unknown: one read takes at most {seconds(now)}, too few cgroups were timed"
    elif now >= COST_WALL.value:
        value = f"reached: {seconds(now)} ({how}) for one read of {walk.file}"
    elif wall > _IN_SIGHT:
        value = f"not in sight: {seconds(now)} ({how}) for one read of {walk.file}"
    else:
        value = f"{seconds(now)} ({how}) now, 5 s at {wall:,}{_when(wall - total, pace)}"
    return Evidence(
        "time until a statistics read takes 5 s",
        value,
        "< 10 ms",
        "s of one core",
        f"{walk.file}, {walk.memcgs:,} memcgs timed",
        None if bound else now,
        "the cost does not grow with the count, or another file is read",
        outlook=True,
    )


def _when(room: int, pace: float | None) -> str:
    return "" if pace is None or pace <= 0 else f", in {seconds(room / pace)} at this pace"
