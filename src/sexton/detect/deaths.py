"""Births, deaths and releases of cgroups, joined by id.

A death is an `rmdir` event; a `release` event ends it. A cgroup that was removed five seconds ago
and not released is a zombie; one removed a moment ago is only *not yet released*, since an ordinary
release waits for RCU and a worker thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    census = latest_count(window)
    missed: Sequence[Death] = ()
    if census is not None and census.scope == "node" and census.dying is not None:
        missed = beyond(stayed, census.dying - (len(traced.unreleased) if traced else 0))
    lost = sum(row.lost for batch in window.earlier(CgroupEventGap) for row in batch.rows)
    whole = all(batch.follows for batch in earlier[1:])
    return AlreadyDying(tuple(stayed[len(missed) :]), not lost and whole and not missed)


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


def beyond(stayed: Sequence[Death], dying: int) -> Sequence[Death]:
    """The oldest of these, of which releases were missed: there cannot be more than are dying."""
    return stayed[: max(len(stayed) - max(dying, 0), 0)]


def _joined(events: Iterable[CgroupEvent]) -> tuple[list[Death], int]:
    """Deaths with their releases, and the number of births."""
    found: list[Death] = []
    still = Open()
    births = 0
    for event in events:
        births += event.kind == "mkdir"
        ended = still.add(event.kind, event.cgroup_id, event.path, event.mono_ns / 1e9)
        found += [] if ended is None else [ended]
    return sorted([*found, *still.by_id.values()], key=attrgetter("died_s")), births
