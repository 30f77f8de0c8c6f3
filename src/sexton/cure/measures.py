"""What a fix has to improve, measured in the same way before and after.

Each measure is a number or absent: what could not be measured is not zero. Rates are over the whole
window, so ten seconds before can be compared with ten minutes after.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sexton.detect import kernel_log, nics
from sexton.detect.detectors.network.nic_resets import COUNTERS, FAMILIES
from sexton.model.rows.cgroup import CgroupCensus, CgroupThrottle
from sexton.model.rows.event import KernelLog
from sexton.model.rows.net import NicCounter
from sexton.model.window import Window
from sexton.series import paging
from sexton.series.cores import core_series
from sexton.series.restarts import restarts
from sexton.series.steps import span

#: Names of the measures in a plan's `baseline`.
DYING = "dying"
SLOPE = "zombies_per_minute"
CORE = "core_{}_system_percent"
WORST_CORE = "worst_core_system_percent"
THROTTLED = "throttled_ms_per_second"
RECLAIM = "reclaim_pages_per_second"
RESETS = "resets"
RESTARTS = "restarts {}"
SECONDS = "seconds"


def measure(
    window: Window, cores: Collection[int] = (), units: Collection[str] = ()
) -> dict[str, float]:
    """All measures that the window allows."""
    found: dict[str, float] = {SECONDS: window.seconds}
    counted = dying_over(window)
    if counted:
        found[DYING] = float(counted[-1][1])
    slope = slope_of(counted)
    if slope is not None:
        found[SLOPE] = slope * 60
    busy = core_shares(window)
    for core in cores:
        if core in busy:
            found[CORE.format(core)] = busy[core]
    if busy:
        found[WORST_CORE] = max(busy.values())
    if (throttled := _throttled(window)) is not None:
        found[THROTTLED] = throttled
    if (scanned := _reclaim(window)) is not None:
        found[RECLAIM] = scanned
    if (resets := _resets(window)) is not None:
        found[RESETS] = float(resets)
    counted_restarts = restarts(window)
    for unit in units:
        if unit in counted_restarts:
            found[RESTARTS.format(unit)] = float(counted_restarts[unit].count)
    return found


def dying_over(window: Window) -> list[tuple[float, int]]:
    """Every zombie count made with the same method as the last one."""
    rows = [
        (batch.mono_s, row)
        for batch in window.batches(CgroupCensus) or ()
        for row in batch.rows[:1]
        if row.dying is not None
    ]
    if not rows:
        return []
    last = rows[-1][1]
    return [
        (at, row.dying or 0)
        for at, row in rows
        if (row.scope, row.method) == (last.scope, last.method)
    ]


def why_uncounted(window: Window) -> str:
    """Why zombie growth could not be measured."""
    rows = [row for batch in window.batches(CgroupCensus) or () for row in batch.rows[:1]]
    if not rows:
        return "no cgroup hierarchy could be read"
    if rows[-1].dying is None:
        return rows[-1].reason or "this kernel reports only the total number of cgroups"
    return "only one sample; watch longer"


def slope_of(points: list[tuple[float, int]]) -> float | None:
    """Least-squares slope per second; `None` for fewer than two points.

    >>> slope_of([(0.0, 10), (1.0, 12), (2.0, 14)]), slope_of([(0.0, 1)])
    (2.0, None)
    """
    if len(points) < 2:
        return None
    middle = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    spread = sum((at - middle) ** 2 for at, _ in points)
    if spread <= 0:
        return None
    return sum((at - middle) * (value - mean) for at, value in points) / spread


def core_shares(window: Window) -> dict[int, float]:
    """System time per core, in percent."""
    series = core_series(window)
    if series is None:
        return {}
    found = series.over(window.start_mono, window.end_mono)
    return {core: shares.system for core, shares in found.items()}


def _throttled(window: Window) -> float | None:
    """Milliseconds per second that cgroups were throttled; 0 if none has a quota."""
    batches = window.batches(CgroupThrottle)
    if batches is None:
        return None
    total = 0.0
    for step in span(batches, lambda row: row.path).values():
        total += (step.delta("throttled_us") or 0) / 1e3 / step.seconds
    return total


def _reclaim(window: Window) -> float | None:
    """Pages per second scanned by direct reclaim."""
    readings = paging.readings(window)
    if len(readings) < 2 or readings[-1].mono_s <= readings[0].mono_s:
        return None
    moved = paging.between(readings[0], readings[-1])
    return None if moved.by_tasks is None else moved.by_tasks / moved.seconds


def _resets(window: Window) -> int | None:
    """NIC resets in the window, by kernel log or counters, whichever shows more."""
    logged = window.read(KernelLog)
    counted = window.read(NicCounter)
    if not logged and not counted:
        return 0 if nics.physical(window) == () else None
    moved = sum(
        counter.moved
        for counter in nics.counters(window, COUNTERS)
        if counter.name == "total_resets"
    )
    others = [counter.moved for counter in nics.counters(window, COUNTERS)]
    lines = kernel_log.lines(window, FAMILIES)
    recent = [line for line in lines if line.age_s is not None and line.age_s <= window.seconds]
    bursts = kernel_log.bursts(recent, nics.namer(window, recent), 10.0)
    return max(moved, max(others, default=0), len(bursts))


def plain(found: dict[str, float]) -> dict[str, Any]:
    """Rounded for a plan, so that the same window gives the same text."""
    return {name: round(value, 3) for name, value in found.items()}
