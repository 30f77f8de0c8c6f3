"""How the number of dying memory cgroups grows, and when it reaches a limit.

Growth is known by three methods, each reported under its own name. Two counts give the *net* growth
in the window; traced deaths without release give the gross growth; dying ÷ uptime gives an average
since boot, which says nothing about today. Only the first two may be extrapolated, and only from at
least five deaths.

The *ID limit*: memcg IDs have 16 bits. Kernels before about 4.8 keep an ID until the memcg is
released, later ones only while swap entries hold it. So the limit may not apply at all, and a node
with more than 65,535 memory cgroups has proven that it does not.

The *cost limit*: a walk over all memcgs that takes 5 s on one core is what resets ENA. It is
reached when the cost of one read per memcg, times their number, is 5 s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from sexton.detect.registry import Threshold
from sexton.detect.stems import split
from sexton.model.finding import Evidence
from sexton.model.rows.cgroup import CgroupCensus, CgroupStat, WalkCost
from sexton.model.text import seconds
from sexton.model.window import Batch, Window
from sexton.series.rates import Amount
from sexton.series.steps import last_rate, rise

if TYPE_CHECKING:
    from sexton.detect.deaths import Deaths  # which needs the count

ENOUGH = Threshold(
    "enough", 5, "deaths in the window", "fewer are chance and no basis for a forecast"
)
DRAIN = Threshold(
    "draining",
    2,
    "% fewer a second",
    "a destroy backlog empties within a minute; nothing else frees zombies that fast",
)
ID_LIMIT = Threshold("id limit", 65_535, "memory cgroups", "memcg IDs have 16 bits")
COST_LIMIT = Threshold(
    "cost limit", 5, "s of one core", "transmit watchdogs (ENA's 5 s) reset a NIC that waits longer"
)
#: Above this a limit is out of sight: memory runs out first, at some hundred KB per zombie.
_IN_SIGHT = 5_000_000
#: Counts closer together than this measure the reading, not the kernel.
_APART_S = 1.0
#: How far apart two fastest-of-three timings of the same small file may be.
_JITTER_S = 20e-6


class Growth(NamedTuple):
    """The first and the last count, `seconds` apart; the last step in percent per second, `None`
    if it was too short to tell."""

    first: int
    last: int
    seconds: float
    last_step_percent_s: float | None

    @property
    def by(self) -> int:
        return rise(self.first, self.last)

    @property
    def rate(self) -> float:
        """Per second."""
        return Amount(self.by, self.seconds).rate

    @property
    def draining(self) -> bool:
        """Fewer than at the start, and still falling fast at the end: a backlog that empties.

        A count that grew in the window and fell a little at its end is not a backlog.
        """
        step = self.last_step_percent_s
        return self.by < 0 and step is not None and step <= -DRAIN.value

    @property
    def drained_in_s(self) -> float | None:
        """Seconds until it is empty at the rate of the last step; `None` if it is not draining."""
        step = self.last_step_percent_s
        return 100.0 / -step if step is not None and self.draining else None


class Count(NamedTuple):
    mono_s: float
    dying: int
    live: int | None


def latest_count(window: Window) -> CgroupCensus | None:
    """The last census that could count the dying; if none could, the last one, which says why."""
    last = next(iter(window.latest(CgroupCensus) or ()), None)
    if last is not None and last.dying is not None:
        return last
    read = reversed(window.batches(CgroupCensus) or ())
    counted = (row for batch in read for row in batch.rows[:1] if row.dying is not None)
    return next(counted, last)


def counts(window: Window, earlier: Iterable[Batch[CgroupCensus]] = ()) -> list[Count]:
    """Every count of the dying by the same method as the last one; `earlier` are readings from
    before the window."""
    last = latest_count(window)
    return [
        Count(batch.mono_s, row.dying, row.live)
        for batch in (*earlier, *(window.batches(CgroupCensus) or ()))
        for row in batch.rows[:1]
        if row.dying is not None and last is not None
        and (row.scope, row.method) == (last.scope, last.method)
    ]  # fmt: skip


def growth(window: Window) -> Growth | None:
    """Between the first and the last count; `None` if there is only one."""
    counted = counts(window)
    if not counted or counted[-1].mono_s <= counted[0].mono_s:
        return None
    first, last = counted[0], counted[-1]
    step = last_rate([(count.mono_s, count.dying) for count in counted], _APART_S)
    return Growth(first.dying, last.dying, last.mono_s - first.mono_s, step)


def rate(moved: Growth | None, traced: Deaths | None) -> float | None:
    """Zombies per second, good enough to extrapolate; `None` if too few died.

    The census comes first, since it also counts what was freed meanwhile.
    """
    if moved is not None:
        return moved.rate if moved.by >= ENOUGH.value else None
    if traced is None or traced.seconds <= 0:
        return None
    number = len(traced.unreleased)
    return Amount(number, traced.seconds).rate if number >= ENOUGH.value else None


def dying_below(window: Window) -> dict[str, int]:
    """Cgroups that died directly below each live directory (v2): its count less its children's."""
    rows = window.latest(CgroupStat) or ()
    if all(row.dying_memory is not None for row in rows):
        own = {row.path: row.dying_memory or 0 for row in rows}
    else:
        own = {row.path: row.dying for row in rows}
    left = dict(own)
    for path, number in own.items():
        parent = path
        while parent != "/":
            parent, _ = split(parent)
            if parent in left:
                left[parent] -= number
                break
    # Directories are read one after the other: a child may have gained some in between.
    return {path: max(number, 0) for path, number in left.items()}


def limits(
    census: CgroupCensus, walks: Iterable[WalkCost], speed: float | None
) -> tuple[Evidence, ...]:
    """Both limits as evidence; `speed` is zombies per second, `None` if there is no forecast."""
    if census.total is None:
        return ()
    found = [_ids(census.total, speed)]
    slowest = max(
        walks, key=lambda walk: (not is_bound(walk, census.total), cost(walk)), default=None
    )
    if slowest is not None:
        found.append(_cost(census.total, slowest, speed))
    return tuple(found)


def cost(walk: WalkCost) -> float:
    """Seconds that one read at the root takes: measured, else estimated."""
    return walk.estimate_s if walk.root_s is None else walk.root_s


def is_bound(walk: WalkCost, total: int | None) -> bool:
    """Is the estimate only an upper bound?

    It is if only single cgroups were timed, or so few that the jitter of a read, extrapolated to
    all `total`, would make half of the estimate.
    """
    if walk.root_s is not None:
        return False
    if walk.memcgs <= 1:
        return True
    return total is not None and walk.estimate_s < 2 * _JITTER_S * total / (walk.memcgs - 1)


def _ids(total: int, speed: float | None) -> Evidence:
    limit = int(ID_LIMIT.value)
    if total > limit:
        value = f"does not apply: {total:,} exist at the same time"
        wrong_if = "never: the count itself disproves it"
    else:
        value = f"{total:,} of {limit:,}{_when(limit - total, speed)}"
        wrong_if = (
            "dying memcgs release their IDs, as kernels since about 4.8 do unless swap holds them"
        )
    return Evidence(
        "memcg ID limit (worst case)",
        value,
        f"< {limit:,}",
        "memory cgroups",
        "/proc/cgroups, 16-bit IDs",
        float(total),
        wrong_if,
        outlook=True,
    )


def _cost(total: int, walk: WalkCost, speed: float | None) -> Evidence:
    now = cost(walk)
    how = "measured" if walk.root_s is not None else "estimated"
    bound = is_bound(walk, total)
    share = now / max(total, 1)
    limit = int(COST_LIMIT.value / share) if share > 0 else _IN_SIGHT + 1
    if bound:
        value = f"unknown: one read takes at most {seconds(now)}, too few cgroups were timed"
    elif now >= COST_LIMIT.value:
        value = f"reached: {seconds(now)} ({how}) for one read of {walk.file}"
    elif limit > _IN_SIGHT:
        value = f"not expected: {seconds(now)} ({how}) for one read of {walk.file}"
    else:
        value = f"{seconds(now)} ({how}) now, 5 s at {limit:,} cgroups{_when(limit - total, speed)}"
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


def _when(room: int, speed: float | None) -> str:
    return "" if speed is None or speed <= 0 else f", in {seconds(room / speed)} at this rate"
