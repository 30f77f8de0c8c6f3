"""Births, deaths and releases of cgroups, joined by id.

A death is an `rmdir` event; a `release` event ends it. A cgroup that was removed five seconds ago
and not released is a zombie; one removed a moment ago is only *not yet released*, since an ordinary
release waits for RCU and a worker thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf
from operator import attrgetter, itemgetter
from typing import NamedTuple

from sexton.detect.growth import Count, Growth, counts, growth, latest_count
from sexton.detect.registry import Threshold
from sexton.detect.rows_read import remembered
from sexton.detect.stems import path_stem
from sexton.model.row import fields_of
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, CgroupEventGap
from sexton.model.window import Batch, Window

GRACE = Threshold(
    "grace", 5, "s after the rmdir", "a release waits for RCU and a worker, which takes under 1 s"
)
#: So much of what was traced must be in the count: both are read a moment apart.
CONFIRMED = 0.9


class Death(NamedTuple):
    """One removed cgroup; times are monotonic seconds.

    From `unsure_s` on nobody knows whether it was released: the counts show that some were, while
    events were lost, but not whose.
    """

    cgroup_id: int
    path: str
    died_s: float
    released_s: float | None = None
    unsure_s: float | None = None


@dataclass(frozen=True)
class Deaths:
    """What was traced between `start_s` and `end_s`; `lost` events were dropped by the buffer.

    `missed` releases are known only from the census, which counts fewer dying cgroups. The release
    of a cgroup that died after `doubt_until_s` cannot have been missed. `bounded`: the census was
    read before and after every loss.
    """

    all: tuple[Death, ...]
    made: tuple[str, ...]
    start_s: float
    end_s: float
    lost: int
    missed: int = 0
    doubt_until_s: float = -inf
    bounded: bool = False

    @property
    def seconds(self) -> float:
        """How long deaths were watched."""
        return self.end_s - self.start_s

    @cached_property
    def released(self) -> tuple[Death, ...]:
        return tuple(death for death in self.all if death.released_s is not None)

    @cached_property
    def unreleased(self) -> tuple[Death, ...]:
        """Zombies: dead for longer than the grace and not released."""
        grace = GRACE.value
        return tuple(death for death in self._left if self.end_s - death.died_s >= grace)

    @cached_property
    def pending(self) -> tuple[Death, ...]:
        """Dead too recently to be called zombies."""
        grace = GRACE.value
        return tuple(death for death in self._left if self.end_s - death.died_s < grace)

    @cached_property
    def unsure(self) -> tuple[Death, ...]:
        """Neither known to be zombies nor to be released."""
        return tuple(death for death in self.all if death.unsure_s is not None)

    @cached_property
    def doubted(self) -> tuple[Death, ...]:
        """Zombies whose release may have been missed."""
        until_s = self.doubt_until_s
        return tuple(death for death in self.unreleased if death.died_s <= until_s)

    @property
    def whole(self) -> bool:
        """Whether no event is known to be missing."""
        return not (self.lost or self.missed)

    def sure(self, moved: Growth | None) -> bool:
        """Whether no release of a zombie was missed: they died later, or the count confirms it."""
        return not self.doubted or self.confirmed(moved)

    def confirmed(self, moved: Growth | None) -> bool:
        """Whether no event is missing, or the count grew by about as many as were left, however
        many events the trace buffer dropped."""
        number = len(self.unreleased) + len(self.unsure) + self.missed
        grew = moved is not None and number > 0 and moved.by >= CONFIRMED * number
        return self.whole or grew

    def doubtful(self, moved: Growth | None) -> int:
        """How many of the unreleased may have been released: as many as events were lost, less the
        releases that the census told of. Between two counts each further release was made up for
        by a removal that was lost as well."""
        if self.sure(moved):
            return 0
        more = max(self.lost - self.missed, 0)
        return min((more + 1) // 2 if self.bounded else more, len(self.doubted))

    @property
    def _left(self) -> list[Death]:
        known = (death for death in self.all if death.unsure_s is None)
        return [death for death in known if death.released_s is None]


@remembered
def deaths(window: Window) -> Deaths | None:
    """Every death in the window; `None` if nothing was traced.

    Where releases may have been missed, no more stay unreleased than the census counts.
    """
    batches = window.batches(CgroupEvent)
    if batches is None:
        return None
    events = _in_order(batches)
    gaps = gaps_between(batches, _lost(window.batches(CgroupEventGap)))
    joined = _joined(events, gaps, _counts(window) if gaps else ())
    end_s = max(batches[-1].mono_s, events[-1].mono_ns / 1e9 if events else 0.0)
    start_s = min(batches[0].mono_s, events[0].mono_ns / 1e9 if events else batches[0].mono_s)
    lost = sum(gap.lost for gap in window.all(CgroupEventGap) or ())
    return Deaths(
        tuple(joined.found),
        tuple(joined.made),
        start_s,
        end_s,
        lost,
        joined.missed,
        joined.doubt_until_s,
        joined.bounded,
    )


class AlreadyDying(NamedTuple):
    """Zombies from before the window; `sure` if no release of one can have been missed."""

    deaths: tuple[Death, ...]
    sure: bool


@remembered
def already_dying(window: Window) -> AlreadyDying:
    """Cgroups removed before the window and not released by its end, if a recording traced it.

    Without them a short span of a recording could not attribute the zombies it counts.
    """
    earlier = window.earlier(CgroupEvent)
    if not earlier:
        return AlreadyDying((), True)
    traced = deaths(window)
    begins = window.start_mono if traced is None else traced.start_s
    batches = [*earlier, *(window.batches(CgroupEvent) or ())]
    before = window.earlier(CgroupEventGap)
    gaps = gaps_between(batches, _lost([*before, *(window.batches(CgroupEventGap) or ())]))
    joined = _joined(_in_order(batches), gaps, _counts(window, is_long=bool(gaps)))
    stayed = [
        death
        for death in joined.found
        if death.released_s is None and death.unsure_s is None and death.died_s < begins
    ]
    lost = sum(row.lost for batch in before for row in batch.rows)
    whole = not (lost or joined.missed) and all(batch.follows for batch in earlier[1:])
    return AlreadyDying(tuple(stayed), whole and (not traced or traced.confirmed(growth(window))))


def _counts(window: Window, *, is_long: bool = False) -> list[Count]:
    """Every count of all that are dying on the node; with those before the window if `is_long`."""
    census = latest_count(window)
    if census is None or census.scope != "node" or census.dying is None:
        return []
    return counts(window, window.earlier(CgroupCensus) if is_long else ())


def _lost(batches: Iterable[Batch[CgroupEventGap]] | None) -> dict[float, int]:
    return {batch.mono_s: sum(row.lost for row in batch.rows) for batch in batches or ()}


def _in_order(batches: Iterable[Batch[CgroupEvent]]) -> list[CgroupEvent]:
    """Events by time, each once: two readings of one buffer may overlap."""
    values = attrgetter(*fields_of(CgroupEvent))  # their hash takes a third of a row's
    unique = {values(event): event for batch in batches for event in batch.rows}
    return sorted(unique.values(), key=attrgetter("mono_ns"))


class Gap(NamedTuple):
    """Events were lost between these two moments: `lost` of them, `None` if nobody counted them."""

    start_s: float
    end_s: float
    lost: int | None


class Open:
    """Cgroups that were removed and not released yet, by events in time order.

    Where events were lost, the counts before and after tell how many releases were among them. They
    are first those of cgroups that were removed in that time or shortly before, since an ordinary
    release takes a second; then those of older zombies. Whose they were is known only as far as
    no choice is left: if 500 of 504 were released, 498 of one owner and 6 of another, nobody knows
    whose 4 are left. Those deaths are `unsure`.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, Death] = {}
        self.unsure: dict[int, Death] = {}
        self.missed = 0
        self._is_bounded = True
        self._marks: deque[Gap | Count] = deque()
        self._gap: Gap | None = None
        #: The last count before events were lost, and how many of those it counts were released.
        self._count: Count | None = None
        self._freed = 0

    def add(self, kind: str, cgroup_id: int, path: str, moment: float) -> Death | None:
        """The death that this event ended. An id is reused only after a release, even if that event
        was lost."""
        # If none is open, it died before the trace began.
        ended = self.by_id.pop(cgroup_id, None) or self.unsure.pop(cgroup_id, None)
        if kind == "rmdir":
            self.by_id[cgroup_id] = Death(cgroup_id, path, moment)
        if ended is None:
            return None
        self._freed += self._count is not None and ended.died_s <= self._count.mono_s
        return ended._replace(released_s=moment, unsure_s=None)

    def expect(self, gaps: Iterable[Gap], counted: Iterable[Count]) -> None:
        """What was lost and counted in the time of the events that will be added next."""
        self._marks = deque(sorted([*self._marks, *gaps, *counted], key=itemgetter(0)))

    def reach(self, moment: float, *, is_last: bool = False) -> list[Death]:
        """Deaths that were ended unseen, by the counts up to this moment."""
        ended: list[Death] = []
        while self._marks and self._marks[0][0] <= moment:
            mark = self._marks.popleft()
            if isinstance(mark, Gap):
                self._gap = _both(self._gap, mark)
            else:
                ended += self._counted(mark, is_last=is_last and not self._marks)
        return ended

    @property
    def bounded(self) -> bool:
        """Was the census read before and after every loss so far?"""
        return self._is_bounded and self._gap is None

    def beyond(self, dying: int, at_s: float) -> list[Death]:
        """Deaths that were ended unseen: no more can be open than are dying."""
        stayed = [death for death in self.by_id.values() if death.died_s <= at_s]
        return self._end(stayed, max(len(stayed) - max(dying, 0), 0), at_s)

    def _counted(self, census: Count, *, is_last: bool) -> list[Death]:
        gap = self._gap
        if gap is None:
            self._count, self._freed = census, 0
            return []
        if census.mono_s < gap.end_s + (0.0 if is_last else GRACE.value):
            return []  # some that were removed last are not yet released
        before_s = gap.start_s - GRACE.value
        older = [death for death in self.by_id.values() if death.died_s <= before_s]
        recent = [d for d in self.by_id.values() if before_s < d.died_s <= gap.end_s]
        number, foreign = len(self.by_id) - census.dying, 0
        before = self._count
        if before is not None:
            new = sum(death.died_s > before.mono_s for death in self.by_id.values())
            known = len(self.by_id) - new + self._freed
            foreign = max(before.dying - known, 0)
            number = before.dying - self._freed + new - census.dying
        self._is_bounded &= before is not None
        number = max(number if gap.lost is None else min(number, gap.lost), 0)
        ended = self._end(recent, min(number, len(recent)), census.mono_s)
        ended += self._end(older, max(number - len(recent), 0), census.mono_s, foreign)
        self._gap, self._count, self._freed = None, census, 0
        return ended

    def _end(
        self, candidates: Sequence[Death], number: int, at_s: float, foreign: int = 0
    ) -> list[Death]:
        """End `number` of these and of as many `foreign` ones whose removal was not seen: of each
        owner as many as must have ended, the oldest. Those that may have ended become unsure."""
        if number <= 0:
            return []
        by_owner: dict[str, list[Death]] = defaultdict(list)
        for death in candidates:
            by_owner[path_stem(death.path)].append(death)
        most = number
        if foreign or len(by_owner) > 1:
            most = int(number / CONFIRMED)  # the counts are off by a few
        ended: list[Death] = []
        for mine in by_owner.values():
            least = min(max(number - foreign - (len(candidates) - len(mine)), 0), len(mine))
            ended += [death._replace(released_s=at_s) for death in mine[:least]]
            for death in mine[least : max(min(most, len(mine)), least)]:
                self.unsure[death.cgroup_id] = death._replace(unsure_s=at_s)
            for death in mine[: max(most, least)]:
                del self.by_id[death.cgroup_id]
        self.missed += min(number, len(candidates))
        return ended


def _both(gap: Gap | None, later: Gap) -> Gap:
    """Two gaps without a count between them are one."""
    if gap is None:
        return later
    lost = None if gap.lost is None or later.lost is None else gap.lost + later.lost
    return Gap(gap.start_s, max(gap.end_s, later.end_s), lost)


def gaps_between(batches: Sequence[Batch[CgroupEvent]], lost: Mapping[float, int]) -> list[Gap]:
    """When events were lost; `lost` is how many, by the moment of the reading that found out."""
    read = [batch.mono_s for batch in batches]
    found = [
        Gap(before.mono_s, _end(batch), None)
        for before, batch in pairwise(batches)
        if not batch.follows
    ]
    for moment, number in lost.items():
        if number and read:
            at = min(bisect_left(read, moment), len(read) - 1)
            if at and moment - read[at - 1] < read[at] - moment:
                at -= 1
            found.append(Gap(read[at - 1] if at else -inf, max(_end(batches[at]), moment), number))
    return found


def _end(batch: Batch[CgroupEvent]) -> float:
    return max([batch.mono_s, *(row.mono_ns / 1e9 for row in batch.rows)])


class _Joined(NamedTuple):
    """Deaths with their releases, the paths of new cgroups, how many releases were missed, until
    when releases may have been missed, and whether counts bound how many."""

    found: list[Death]
    made: list[str]
    missed: int
    doubt_until_s: float
    bounded: bool


def _joined(
    events: Iterable[CgroupEvent], gaps: Sequence[Gap], counted: Sequence[Count]
) -> _Joined:
    """Join events by id; without gaps the counts are not needed."""
    found: list[Death] = []
    still = Open()
    still.expect(gaps, counted)
    made: list[str] = []
    for event in events:
        if event.kind == "mkdir":
            made.append(event.path)
        moment = event.mono_ns / 1e9
        found += still.reach(moment)
        ended = still.add(event.kind, event.cgroup_id, event.path, moment)
        found += [] if ended is None else [ended]
    found += still.reach(inf, is_last=True)
    doubt_until_s = max((gap.end_s for gap in gaps if gap.lost or still.missed), default=-inf)
    if counted:
        missed, last = still.missed, counted[-1]
        found += still.beyond(last.dying, last.mono_s)
        doubt_until_s = doubt_until_s if still.missed == missed else last.mono_s
    found += [*still.unsure.values(), *still.by_id.values()]
    found.sort(key=attrgetter("died_s"))
    return _Joined(found, made, still.missed, doubt_until_s, still.bounded)
