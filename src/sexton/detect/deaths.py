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

from sexton.detect.growth import latest_count
from sexton.detect.registry import Threshold
from sexton.detect.rows_read import remembered
from sexton.model.row import fields_of
from sexton.model.rows.cgroup import CgroupEvent, CgroupEventGap
from sexton.model.window import Batch, Window

GRACE = Threshold(
    "grace", 5, "s after the rmdir", "a release waits for RCU and a worker, which takes under 1 s"
)


class Death(NamedTuple):
    """One removed cgroup; times are monotonic seconds."""

    cgroup_id: int
    path: str
    died_s: float
    released_s: float | None = None


@dataclass(frozen=True)
class Deaths:
    """What was traced between `start_s` and `end_s`; `lost` events were dropped by the buffer."""

    all: tuple[Death, ...]
    births: int
    start_s: float
    end_s: float
    lost: int

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
    def _left(self) -> list[Death]:
        return [death for death in self.all if death.released_s is None]


@remembered
def deaths(window: Window) -> Deaths | None:
    """Every death in the window; `None` if nothing was traced."""
    batches = window.batches(CgroupEvent)
    if batches is None:
        return None
    events = _in_order(batches)
    found, births = _joined(events)
    gaps = window.all(CgroupEventGap) or ()
    lost = sum(gap.lost for gap in gaps)
    end_s = max(batches[-1].mono_s, events[-1].mono_ns / 1e9 if events else 0.0)
    start_s = min(batches[0].mono_s, events[0].mono_ns / 1e9 if events else batches[0].mono_s)
    return Deaths(tuple(found), births, start_s, end_s, lost)


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
    found, _ = _joined(_in_order([*earlier, *(window.batches(CgroupEvent) or ())]))
    stayed = [death for death in found if death.released_s is None and death.died_s < begins]
    # There cannot be more than are dying now: the release of the others was missed.
    census = latest_count(window)
    most = len(stayed)
    if census is not None and census.scope == "node" and census.dying is not None:
        most = max(census.dying - (len(traced.unreleased) if traced else 0), 0)
    lost = sum(row.lost for batch in window.earlier(CgroupEventGap) for row in batch.rows)
    whole = all(batch.follows for batch in earlier[1:])
    sure = not lost and whole and most >= len(stayed)
    return AlreadyDying(tuple(stayed[-most:]) if most else (), sure)


def _in_order(batches: Iterable[Batch[CgroupEvent]]) -> list[CgroupEvent]:
    """Events by time, each once: two readings of one buffer may overlap."""
    values = attrgetter(*fields_of(CgroupEvent))  # their hash takes a third of a row's
    unique = {values(event): event for batch in batches for event in batch.rows}
    return sorted(unique.values(), key=attrgetter("mono_ns"))


def _joined(events: Iterable[CgroupEvent]) -> tuple[list[Death], int]:
    """Deaths with their releases, and the number of births."""
    found: list[Death] = []
    open_at: dict[int, int] = {}
    births = 0
    for event in events:
        moment = event.mono_ns / 1e9
        if event.kind == "mkdir":
            births += 1
            index = open_at.pop(event.cgroup_id, None)
            if index is not None:  # an id is reused only after a release, which was lost
                found[index] = found[index]._replace(released_s=moment)
        elif event.kind == "rmdir":
            open_at[event.cgroup_id] = len(found)
            found.append(Death(event.cgroup_id, event.path, moment))
        elif event.kind == "release":
            index = open_at.pop(event.cgroup_id, None)
            if index is not None:  # else it died before the trace began
                found[index] = found[index]._replace(released_s=moment)
    return found, births
