"""Births, deaths and releases of cgroups, joined by id.

A death is an `rmdir` event; a `release` event ends it. A cgroup that was removed five seconds ago
and not released is a zombie; one removed a moment ago is only *not yet released*, since an ordinary
release waits for RCU and a worker thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from sexton.detect.growth import Count, Growth, counts, growth, latest_count
from sexton.detect.registry import Threshold
from sexton.detect.rows_read import remembered
from sexton.model.row import fields_of
from sexton.model.rows.cgroup import CgroupEvent, CgroupEventGap
from sexton.model.window import Batch, Window

GRACE = Threshold(
    "grace", 5, "s after the rmdir", "a release waits for RCU and a worker, which takes under 1 s"
)
#: So much of what was traced must be in the count: both are read a moment apart.
CONFIRMED = 0.9


class Death(NamedTuple):
    """One removed cgroup; times are monotonic seconds."""

    cgroup_id: int
    path: str
    died_s: float
    released_s: float | None = None


@dataclass(frozen=True)
class Deaths:
    """What was traced between `start_s` and `end_s`; `lost` events were dropped by the buffer.

    `missed` releases are known only from the census, which counts fewer dying cgroups.
    """

    all: tuple[Death, ...]
    births: int
    start_s: float
    end_s: float
    lost: int
    missed: int = 0

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

    @property
    def whole(self) -> bool:
        """Whether no event is known to be missing."""
        return not (self.lost or self.missed)

    def sure(self, moved: Growth | None) -> bool:
        """Whether no release was missed: no event is missing, or the count grew by about as many
        as were left, however many events the trace buffer dropped."""
        number = len(self.unreleased) + self.missed
        grew = moved is not None and number > 0 and moved.by >= CONFIRMED * number
        return self.whole or grew

    def doubtful(self, moved: Growth | None) -> int:
        """How many of the unreleased may have been released: as many as events were lost, less the
        releases that the census told of."""
        return 0 if self.sure(moved) else max(self.lost - self.missed, 0)

    @property
    def _left(self) -> list[Death]:
        return [death for death in self.all if death.released_s is None]


@remembered
def deaths(window: Window) -> Deaths | None:
    """Every death in the window; `None` if nothing was traced.

    Where releases may have been missed, no more stay unreleased than the last census counts.
    """
    batches = window.batches(CgroupEvent)
    if batches is None:
        return None
    events = _in_order(batches)
    lost = sum(gap.lost for gap in window.all(CgroupEventGap) or ())
    whole = not lost and all(batch.follows for batch in batches[1:])
    found, births, missed = _joined(events, None if whole else _counted(window))
    end_s = max(batches[-1].mono_s, events[-1].mono_ns / 1e9 if events else 0.0)
    start_s = min(batches[0].mono_s, events[0].mono_ns / 1e9 if events else batches[0].mono_s)
    return Deaths(tuple(found), births, start_s, end_s, lost, len(missed))


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
    events = _in_order([*earlier, *(window.batches(CgroupEvent) or ())])
    found, _, missed = _joined(events, _counted(window))
    stayed = [death for death in found if death.released_s is None and death.died_s < begins]
    lost = sum(row.lost for batch in window.earlier(CgroupEventGap) for row in batch.rows)
    whole = not (lost or missed) and all(batch.follows for batch in earlier[1:])
    return AlreadyDying(tuple(stayed), whole and (not traced or traced.sure(growth(window))))


def _counted(window: Window) -> Count | None:
    """The last count of all that are dying on the node."""
    census = latest_count(window)
    if census is None or census.scope != "node" or census.dying is None:
        return None
    return counts(window)[-1]


def _in_order(batches: Iterable[Batch[CgroupEvent]]) -> list[CgroupEvent]:
    """Events by time, each once: two readings of one buffer may overlap."""
    values = attrgetter(*fields_of(CgroupEvent))  # their hash takes a third of a row's
    unique = {values(event): event for batch in batches for event in batch.rows}
    return sorted(unique.values(), key=attrgetter("mono_ns"))


class Open:
    """Cgroups that were removed and not released yet, by events in time order."""

    def __init__(self) -> None:
        self.by_id: dict[int, Death] = {}

    def add(self, kind: str, cgroup_id: int, path: str, moment: float) -> Death | None:
        """The death that this event ended. An id is reused only after a release, even if that event
        was lost."""
        ended = self.by_id.pop(cgroup_id, None)  # if none is open, it died before the trace began
        if kind == "rmdir":
            self.by_id[cgroup_id] = Death(cgroup_id, path, moment)
        return None if ended is None else ended._replace(released_s=moment)

    def beyond(self, dying: int, at_s: float) -> list[Death]:
        """End the oldest, of which releases were missed: no more can be open than are dying."""
        stayed = [death for death in self.by_id.values() if death.died_s <= at_s]
        gone = stayed[: max(len(stayed) - max(dying, 0), 0)]
        for death in gone:
            del self.by_id[death.cgroup_id]
        return [death._replace(released_s=at_s) for death in gone]


def _joined(
    events: Iterable[CgroupEvent], census: Count | None
) -> tuple[list[Death], int, list[Death]]:
    """Deaths with their releases, the number of births, and those beyond the census."""
    found: list[Death] = []
    still = Open()
    births = 0
    for event in events:
        births += event.kind == "mkdir"
        ended = still.add(event.kind, event.cgroup_id, event.path, event.mono_ns / 1e9)
        found += [] if ended is None else [ended]
    missed = [] if census is None else still.beyond(census.dying, census.mono_s)
    found += [*missed, *still.by_id.values()]
    return sorted(found, key=attrgetter("died_s")), births, missed
