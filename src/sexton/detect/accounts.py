"""Everything on a node that comes and goes again and again: its side of the restart ledger.

Units by `NRestarts` and by the journal's restart counters, timers by their interval, containers by
the ids that went away in the window: ecs-init and kubelet re-create a container forever without one
restart of a unit, so that `NRestarts` stays 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from sexton.detect.deaths import Deaths
from sexton.detect.growth import ENOUGH
from sexton.detect.spread import median
from sexton.detect.stems import container, join, path_stem, split
from sexton.model.cgroup import CgroupDir
from sexton.model.unit import RestartMark, Timer, Unit
from sexton.model.window import Window
from sexton.series.directories import turnover
from sexton.series.restarts import RestartCount, restarts


class Account(NamedTuple):
    """One thing that comes and goes, and the cgroup it has while it is there.

    `total` is how often since boot, as far as told; `recent` how often in the window; `active`
    says that it still does.
    """

    owner: str
    path: str
    kind: str
    total: int | None
    recent: int
    active: bool
    period_s: float | None


def units(window: Window) -> Iterator[Account]:
    counts = restarts(window)
    journal = _journal(window)
    rows = {unit.name: unit for unit in window.latest(Unit) or ()}
    for name in {**counts, **journal}:
        seen = counts.get(name, RestartCount(0, 0, False, 0.0))
        marks = journal.get(name, _Marks(0, 0, None))
        total = max(seen.since_boot, marks.total)
        if not total:
            continue
        unit = rows.get(name)
        waiting = unit is not None and "auto-restart" in unit.sub_state
        yield Account(
            owner=name,
            path=(unit.cgroup if unit is not None else None) or f"/system.slice/{name}",
            kind="unit",
            total=total,
            recent=max(seen.count, marks.recent),
            active=seen.count > 0 or marks.recent > 0 or waiting,
            period_s=_period(unit, seen, marks),
        )


class _Marks(NamedTuple):
    """One unit's restarts in the journal."""

    total: int
    recent: int
    period_s: float | None


def _journal(window: Window) -> dict[str, _Marks]:
    by_unit: dict[str, list[RestartMark]] = defaultdict(list)
    for mark in window.all(RestartMark) or ():
        by_unit[mark.unit].append(mark)
    found = {}
    for unit, marks in by_unit.items():
        marks.sort(key=lambda mark: mark.wall_s)
        # A counter that fell was cleared: what it had reached before comes on top.
        cleared = sum(a.counter for a, b in pairwise(marks) if b.counter < a.counter)
        steps = [
            (b.wall_s - a.wall_s) / (b.counter - a.counter)
            for a, b in pairwise(marks)
            if b.counter > a.counter and b.wall_s > a.wall_s
        ]
        recent = sum(1 for mark in marks if window.start <= mark.wall_s <= window.end)
        found[unit] = _Marks(
            cleared + marks[-1].counter, recent, median(steps) if len(steps) > 1 else None
        )
    return found


def _period(unit: Unit | None, seen: RestartCount, marks: _Marks) -> float | None:
    """Observed where there is enough of it, else what the unit's own settings come to."""
    if seen.count >= ENOUGH.value and seen.seconds > 0:
        return seen.seconds / seen.count
    if marks.period_s is not None:
        return marks.period_s
    if unit is None or unit.restart_delay_us is None:
        return None
    started, ended = unit.main_start_us, unit.main_exit_us
    if not started or not ended or ended < started:
        return None
    return (unit.restart_delay_us + ended - started) / 1e6


def timers(window: Window) -> Iterator[Account]:
    first: dict[str, int] = {}
    for batch in window.batches(Timer) or ():
        for timer in batch.rows:
            if timer.last_trigger_us:
                first.setdefault(timer.name, timer.last_trigger_us)
    homes = {unit.name: unit.cgroup for unit in window.latest(Unit) or ()}
    uptime_s = window.node.uptime_s if window.node is not None else None
    for timer in window.latest(Timer) or ():
        if not timer.interval_us or not timer.last_trigger_us:
            continue
        period_s = timer.interval_us / 1e6
        moved = timer.last_trigger_us > first[timer.name]
        idle_s = window.end_mono - timer.last_trigger_us / 1e6
        yield Account(
            owner=timer.name,
            path=homes.get(timer.unit) or f"/system.slice/{timer.unit}",
            kind="timer",
            total=int(uptime_s / period_s) if uptime_s else None,
            recent=0,
            active=moved or idle_s <= period_s * 1.2,
            period_s=period_s,
        )


def containers(window: Window, traced: Deaths | None, named: Iterable[str]) -> Iterator[Account]:
    """Containers that went away in the window, by runtime and directory; `named` are paths of the
    dead from before it."""
    if traced is not None:
        went = Counter(death.path for death in traced.all)
        span_s = traced.seconds
    else:
        went, span_s = _vanished(window)
    before = Counter(named)
    recent: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for path in {*went, *before}:
        kind = container(path)
        if kind is not None:
            recent[f"{kind}s", pattern_of(path)] += went[path]
            total[f"{kind}s", pattern_of(path)] += max(went[path], before[path])
    for (owner, path), number in total.items():
        new = recent[owner, path]
        yield Account(
            owner=owner,
            path=path,
            kind="container",
            total=number,
            recent=new,
            active=new > 1,
            period_s=span_s / new if new > 1 and span_s > 0 else None,
        )


def _vanished(window: Window) -> tuple[Counter[str], float]:
    """Directories of an earlier reading that the next one no longer had."""
    edges = window.bounds_of(CgroupDir)
    return turnover(window).gone, edges[1] - edges[0] if edges is not None else 0.0


def pattern_of(path: str) -> str:
    """`path` with the unique part of its last name replaced.

    >>> pattern_of("/top/run-17")
    '/top/run-*'
    """
    parent, name = split(path)
    return join(parent, path_stem(name))
