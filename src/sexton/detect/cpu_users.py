"""Which units and cgroups used the CPU time of a span, and which task held a core."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sexton.detect.registry import Threshold
from sexton.detect.stacks import thread_name
from sexton.detect.stems import split, unit_of
from sexton.model.rows.cgroup import CgroupCpu
from sexton.model.rows.task import Thread
from sexton.model.window import Window
from sexton.series.cores import Hold, core_series
from sexton.series.rates import Amount, Born, counts_on, lasts, steps_of
from sexton.series.tasks import Task, task_steps

BLAME = Threshold(
    "blame", 50, "% of the held time", "a task that used less than half of it did not hold the core"
)
#: A second; cgroups that used less CPU time are not named.
_LEAST_US = 10_000


class User(NamedTuple):
    """A user of CPU time, and its `share` of all that was used, in per cent."""

    name: str
    share: float
    cgroup: str | None = None
    unit: str | None = None
    number: int = 1


def cgroups(window: Window, span: tuple[float, float]) -> list[User]:
    """Units, and cgroups outside units, by CPU time used; empty if that was not read."""
    used, covered = moved(window, span, "used_us")
    return users(used, _inside(window, covered, used))


def _total(used: Mapping[str, Amount]) -> float:
    return sum(each.amount for path, each in used.items() if split(path)[0] == "/")


def users(used: Mapping[str, Amount], inside: float = 1.0) -> list[User]:
    """`inside` is the part of all CPU time that these cgroups used."""
    total = _total(used)
    if not total:
        return []
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in leaves(used):
        by_name[unit_of(path) or path].append(path)
    made = [
        User(
            name,
            min(100 * sum(used[path].amount for path in paths) / total, 100.0) * inside,
            paths[0],
            unit_of(paths[0]),
        )
        for name, paths in by_name.items()
        if sum(used[path].rate for path in paths) >= _LEAST_US
    ]
    return sorted(made, key=lambda part: -part.share)


def _inside(window: Window, span: tuple[float, float], used: Mapping[str, Amount]) -> float:
    """The part of the node's CPU time that cgroups below the root used."""
    cores = core_series(window)
    if cores is None or not used:
        return 1.0
    parts = cores.over(*span).values()
    busy = sum(shares.busy / 100 * shares.given_s / shares.seconds for shares in parts)
    known = max(each.seconds for each in used.values())
    return min(_total(used) / 1e6 / known / busy, 1.0) if busy > 0 else 1.0


def moved(
    window: Window, span: tuple[float, float], field: str
) -> tuple[Mapping[str, Amount], tuple[float, float]]:
    """By cgroup, how far a counter moved around a span, and the start and end of that time.

    A cgroup that is new since the reading before has counted from zero.
    """
    cores = core_series(window)
    born = Born("used_us", 1e6 * len(cores.cores)) if cores is not None else None
    found = window.keep(
        "cgroup cpu", lambda: steps_of(window.columns(CgroupCpu, ("used_us", "waited_us")), born)
    )
    touching = np.flatnonzero((found.start < span[1]) & (found.end > span[0]))
    if not len(touching):
        return {}, (0.0, 0.0)
    covered = float(found.start[touching[0]]), float(found.end[touching[-1]])
    return {str(path): each for (path,), each in found.over(field, *covered).items()}, covered


def leaves(paths: Mapping[str, Amount]) -> list[str]:
    """Those without another of them below."""
    parents = {split(path)[0] for path in paths}
    return [path for path in paths if path not in parents]


class Blame(NamedTuple):
    """A thread and its share of a run's time; or the busiest of several threads of one process,
    and the share of these together."""

    thread: Thread
    share: float
    threads: int = 1

    @property
    def name(self) -> str:
        tid = self.thread.tid if self.threads == 1 else self.thread.pid
        return thread_name(self.thread.pid, tid, self.thread.comm)


def blame(held: Mapping[int, Hold], window: Window) -> dict[int, Blame]:
    """Per held core, the thread that used most CPU time on it while it was held; or the process
    whose threads did so one after the other.

    Threads are read a moment after the cores, and a thread is read only once its process has used
    CPU time. So only as much of a step counts as fits into its overlap with the hold, and a
    thread's share is of the time it was seen, which must be at least half of the hold.
    """
    blamed = {}
    for core, hold in held.items():
        tasks: dict[Task, _Spent] = defaultdict(_Spent)
        processes: dict[int, _Spent] = defaultdict(_Spent)
        read = window.between(Thread, hold.start, hold.end)
        for step in task_steps(read, over_gaps=counts_on(window)):
            cores = {row.cpu for row in (step.before, step.row) if row is not None}
            if core not in cores:
                continue
            overlap = min(step.end, hold.end) - max(step.start, hold.start)
            if overlap <= 0:
                continue
            # A thread that came or went inside the step spent an unknown part of it here.
            seconds = min(step.amount / 1000 / len(cores), overlap)
            for mine in (tasks[step.task], processes[step.row.pid]):
                mine.add(step.row, seconds, (step.start, overlap))
        for found in (tasks, processes):
            most = max(found.values(), key=lambda one: one.total, default=None)
            by = None if most is None else most.blame(hold)
            if by is not None:
                blamed[core] = by
                break
    return blamed


class _Spent:
    """CPU time of a thread or a process on a core while it was held."""

    def __init__(self) -> None:
        self._threads: dict[int, float] = defaultdict(float)
        self._rows: dict[int, Thread] = {}
        self._seen: dict[float, float] = {}

    def add(self, row: Thread, seconds: float, seen: tuple[float, float]) -> None:
        """One step of one thread: `seen` is its start and how much of it the core was held."""
        self._threads[row.tid] += seconds
        self._rows[row.tid] = row
        self._seen[seen[0]] = max(seen[1], self._seen.get(seen[0], 0.0))

    @property
    def total(self) -> float:
        return sum(self._threads.values())

    def blame(self, hold: Hold) -> Blame | None:
        """`None` if it did not account for the hold."""
        seen = sum(self._seen.values())
        share = min(100 * self.total / seen, 100.0)
        if share < BLAME.value or not lasts(seen, BLAME.value / 100 * hold.shares.seconds):
            return None
        most = max(self._threads, key=lambda tid: self._threads[tid])
        ran = sum(seconds > 0 for seconds in self._threads.values())
        return Blame(self._rows[most], share, ran)
