"""Reclaim, page faults and OOM kills between two readings of `/proc/vmstat`.

Counters are added up in groups, because their names change between kernels: before 4.8 scans were
counted by zone (`pgscan_direct_normal`), `allocstall` is by zone since then, and `pgscan_anon` and
`pgscan_file` came in 5.8 (497a6c1b0990). Only those two include what a task scans for its own
*cgroup* (at its limit, or after a write to `memory.reclaim`); `pgscan_direct` and `allocstall` do
not. So their excess over all other scanners is the part of the cgroups.

>>> group_of("pgscan_direct_normal"), group_of("pgscan_direct_throttle"), group_of("nr_dirty")
('direct', None, None)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from sexton.model.counters import delta
from sexton.model.rows.memory import VmCounter
from sexton.model.window import Key, Window
from sexton.series.rates import F64, Bools, Ints, Lazy, counts_on, nearest

_ZONE = r"(_(dma|dma32|normal|high|highmem|movable|device))?"
_GROUPS = {
    "direct": rf"pgscan_direct{_ZONE}",
    "direct_freed": rf"pgsteal_direct{_ZONE}",
    "kswapd": rf"pgscan_kswapd{_ZONE}",
    "kswapd_freed": rf"pgsteal_kswapd{_ZONE}",
    "other": r"pgscan_(khugepaged|proactive)",
    "other_freed": r"pgsteal_(khugepaged|proactive)",
    "every": r"pgscan_(anon|file)",
    "every_freed": r"pgsteal_(anon|file)",
    "stalls": rf"allocstall{_ZONE}",
    "faults": "pgfault",
    "major": "pgmajfault",
    "refaults": r"workingset_refault(_anon|_file)?",
    "swapped_in": "pswpin",
    "killed": "oom_kill",
    "free": "nr_free_pages",
}
GROUPS = tuple(_GROUPS)
#: Goes down as well as up.
_GAUGE = "free"
_PLACE = {group: at for at, group in enumerate(GROUPS)}
#: Memory is read every second: a reading further away does not describe the same moment.
NEAR_S = 2.0
_PATTERN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _GROUPS.items()))


@cache
def group_of(name: str) -> str | None:
    """The group of a counter; `None` if no detector uses it."""
    found = _PATTERN.fullmatch(name)
    return found.lastgroup if found else None


class Reading(NamedTuple):
    """One reading: sums by group, without groups that the kernel does not count."""

    mono_s: float
    follows: bool
    sums: Mapping[str, int]


class PagingStep(NamedTuple):
    """How much each group moved in `seconds` between two readings, without groups that went back.

    `by_tasks` is the number of pages that tasks scanned themselves (direct reclaim), for the node
    or for their cgroup.
    """

    start: float
    end: float
    seconds: float
    moved: Mapping[str, int]
    by_tasks: int | None

    @property
    def freed_by_tasks(self) -> int | None:
        """How many of the pages in `by_tasks` were freed."""
        return _by_tasks(self.moved, "_freed")

    @property
    def tasks_rate(self) -> float | None:
        """Pages in `by_tasks` per second."""
        return None if self.by_tasks is None else self.by_tasks / self.seconds

    @property
    def tasks_share(self) -> float | None:
        """The part of all scanned pages that tasks scanned themselves, 0 to 1; 0 if none were."""
        if self.by_tasks is None:
            return None
        every = self.by_tasks + self.moved.get("kswapd", 0) + self.moved.get("other", 0)
        return self.by_tasks / every if every else 0.0

    def rate(self, group: str) -> float | None:
        """The amount of a group per second."""
        moved = self.moved.get(group)
        return None if moved is None else moved / self.seconds


def minor_faults(sums: Mapping[str, int]) -> int | None:
    """Page faults without a read from disk, since boot."""
    every, major = sums.get("faults"), sums.get("major")
    return None if every is None or major is None else every - major


def _by_tasks(moved: Mapping[str, int], what: str) -> int | None:
    """All pages minus those of kernel threads; only direct reclaim if no more is counted."""
    if f"every{what}" not in moved:
        return moved.get(f"direct{what}")
    threads = moved.get(f"kswapd{what}", 0) + moved.get(f"other{what}", 0)
    # The kernel sums counters core by core: the total may be some pages behind its parts.
    return max(0, moved[f"every{what}"] - threads)


class _Sums(Mapping[str, int]):
    """One column of a table, by group, as a mapping without a copy; -1 is missing."""

    __slots__ = ("_at", "_table")

    def __init__(self, table: Ints, at: int) -> None:
        self._table, self._at = table, at

    def __getitem__(self, group: str) -> int:
        value = int(self._table[_PLACE[group], self._at])
        if value < 0:
            raise KeyError(group)
        return value

    def __iter__(self) -> Iterator[str]:
        return (group for group, at in _PLACE.items() if self._table[at, self._at] >= 0)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class PagingSteps(Lazy[PagingStep]):
    """Steps between consecutive readings, oldest first; -1 in `moved` is unknown. `read` is false
    for steps across missing readings: the kernel counts on meanwhile."""

    def __init__(self, start: F64, end: F64, moved: Ints, read: Bools) -> None:
        super().__init__(len(start))
        self.start, self.end, self._moved, self.read = start, end, moved, read
        threads = np.maximum(self.moved("kswapd"), 0) + np.maximum(self.moved("other"), 0)
        every = self.moved("every")
        #: Pages that tasks scanned themselves; -1 is unknown.
        self.by_tasks: Ints = np.where(
            every >= 0, np.maximum(every - threads, 0), self.moved("direct")
        )

    def moved(self, group: str) -> Ints:
        """The amount of a group per step; -1 is unknown."""
        made: Ints = self._moved[_PLACE[group]]
        return made

    def rate(self, group: str) -> F64:
        """The same per second; a negative rate is unknown."""
        made: F64 = self.moved(group) / (self.end - self.start)
        return made

    def together(self) -> PagingStep | None:
        """All steps that were read and in which every counter is known that ever is; `None` if
        there is none."""
        counted: Bools = np.asarray((self._moved >= 0).any(axis=1))
        counted[_PLACE[_GAUGE]] = False
        known: Bools = self.read & np.asarray((self._moved[counted] >= 0).all(axis=0))
        if not counted.any() or not known.any():
            return None
        sums = self._moved[:, known].sum(axis=1)
        moved = {group: int(sums[at]) for group, at in _PLACE.items() if counted[at]}
        start, end = float(self.start[known][0]), float(self.end[known][-1])
        seconds = float((self.end - self.start)[known].sum())
        return PagingStep(start, end, seconds, moved, _by_tasks(moved, ""))

    def make(self, at: int) -> PagingStep:
        tasks = int(self.by_tasks[at])
        moved = _Sums(self._moved, at)
        start, end = float(self.start[at]), float(self.end[at])
        return PagingStep(start, end, end - start, moved, tasks if tasks >= 0 else None)


class Readings(Lazy[Reading]):
    """Readings, oldest first, and the steps between them."""

    def __init__(self, mono: F64, follows: Bools, sums: Ints, over_gaps: bool) -> None:
        super().__init__(len(mono))
        self.mono, self._follows, self._sums = mono, follows, sums
        self._over_gaps = over_gaps

    def make(self, at: int) -> Reading:
        return Reading(float(self.mono[at]), bool(self._follows[at]), _Sums(self._sums, at))

    @cached_property
    def steps(self) -> PagingSteps:
        sums = self._sums
        moved = np.diff(sums, axis=1)
        moved[(moved < 0) | (sums[:, 1:] < 0) | (sums[:, :-1] < 0)] = -1
        read = self._follows[1:]
        kept = np.flatnonzero(read | self._over_gaps)
        times = self.mono[:-1][kept], self.mono[1:][kept]
        return PagingSteps(*times, moved[:, kept], read[kept])


def readings(window: Window) -> Readings:
    """Every reading of the counters, oldest first."""
    return window.keep("paging", lambda: _readings(window))


def _readings(window: Window) -> Readings:
    def wanted(key: Key) -> bool:
        return group_of(str(key[0])) is not None

    mono: list[F64] = [np.empty(0)]
    follows: list[Bools] = [np.empty(0, np.bool_)]
    sums: list[Ints] = [np.empty((len(GROUPS), 0), np.int64)]
    for piece in window.columns(VmCounter, ("value",), wanted):
        of = np.array([_PLACE[str(group_of(str(thing[0])))] for thing in piece.things])
        value = piece.values["value"]
        made = np.full((len(GROUPS), len(piece.mono)), -1, np.int64)
        for place in np.unique(of).tolist():
            mine = value[of == place]
            known = ~np.isnan(mine)
            total = np.where(known, mine, 0).sum(axis=0)
            made[place] = np.where(known.any(axis=0), total, -1)
        there = np.flatnonzero((made >= 0).any(axis=0))
        mono.append(piece.mono[there])
        follows.append(piece.follows[there])
        sums.append(made[:, there])
    columns = np.concatenate(mono), np.concatenate(follows), np.concatenate(sums, axis=1)
    return Readings(*columns, counts_on(window))


def last_sums(window: Window) -> Mapping[str, int]:
    """The sums of the last reading alone, without groups that the kernel does not count."""
    sums: dict[str, int] = {}
    for row in window.latest(VmCounter) or ():
        group = group_of(row.name)
        if group is not None:
            sums[group] = sums.get(group, 0) + row.value
    return sums


def between(before: Reading, after: Reading) -> PagingStep:
    """The step between any two readings."""
    moved = {
        group: step
        for group, value in after.sums.items()
        if (step := delta(before.sums.get(group), value)) is not None
    }
    start, end = before.mono_s, after.mono_s
    return PagingStep(start, end, end - start, moved, _by_tasks(moved, ""))


def first_to_last(window: Window) -> PagingStep | None:
    """The step from the first reading to the last, for amounts: the kernel counts on in a gap.
    `None` with fewer than two readings."""
    found = readings(window)
    return between(found[0], found[-1]) if len(found) > 1 else None


def whole(window: Window) -> PagingStep | None:
    """All known steps together, for rates: gaps are left out. `None` if there is no step."""
    return window.keep("paging of the window", lambda: readings(window).steps.together())


def risen(window: Window, group: str) -> tuple[float, float] | None:
    """From the reading before a group first moved to the one after which it no longer did
    (monotonic); `None` if it did not move, or some of it in a gap."""
    steps, whole_window = readings(window).steps, first_to_last(window)
    moved = steps.moved(group)
    at = np.flatnonzero(moved > 0)
    if not len(at) or whole_window is None or whole_window.moved.get(group) != moved[at].sum():
        return None
    return float(steps.start[at[0]]), float(steps.end[at[-1]])


def over(found: Readings, start: float, end: float) -> PagingStep | None:
    """The step between the readings nearest to two moments; `None` if none is near."""
    first, last = nearest(found.mono, start, NEAR_S), nearest(found.mono, end, NEAR_S)
    if first is None or last is None or first >= last:
        return None
    return between(found[first], found[last])
