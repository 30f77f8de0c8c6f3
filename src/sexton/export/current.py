"""Metrics of now: the last readings, without a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sexton.detect.growth import latest_count
from sexton.export import families as f
from sexton.export.samples import Counts, Samples, in_buckets
from sexton.model.rows.cgroup import CgroupCensus, CgroupStat
from sexton.model.rows.cpu import CoreTimes, ProbeCost, SoftirqWait
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.node import Node
from sexton.model.rows.recorder import RecorderCost
from sexton.model.rows.unit import RestartMark, Unit
from sexton.model.window import SourceState, Window
from sexton.replay.tail import Kept
from sexton.series import paging
from sexton.series.busiest import worst_tasks
from sexton.series.cores import CoreSeries, core_series
from sexton.series.restarts import restarts

#: How much is read: two readings of every table that is read at least each half minute.
SPAN_S = 75.0
#: Tables that are read each time. Which task is busiest on a core is looked up in others. Of cores
#: as many seconds are kept as `current` is asked for, and some.
KEPT = Kept(
    (CgroupStat, Node, Pressure, ProbeCost, RecorderCost, SoftirqWait, VmCounter),
    {CgroupCensus: SPAN_S, CoreTimes: 20.0, Unit: SPAN_S},
    (RestartMark,),
)
#: A core that is less in the kernel than this is not named.
NAMED_RATIO = 0.5
_VECTORS = ("NET_RX", "NET_TX")
#: The node has no such thing, or it was not requested.
_NOTHING = ("absent", "skipped")


class Current(NamedTuple):
    """`kernel` are the observations of cores since the last refresh, which ended at `seen_s`, the
    monotonic time of the last one."""

    samples: Samples
    kernel: Counts | None
    seen_s: float


def current(window: Window, since_s: float, span_s: float) -> Current:
    """The last readings of a window; cores over its last `span_s` seconds, and observations of
    cores that ended after `since_s`."""
    samples = Samples()
    _node(samples, window)
    _memcgs(samples, window)
    kernel, seen_s = _cores(samples, window, since_s, span_s)
    _softirqs(samples, window)
    _restarts(samples, window)
    _memory(samples, window)
    _pressure(samples, window)
    _sources(samples, window.states.values())
    _recorder(samples, window)
    return Current(samples, kernel, seen_s)


def _node(samples: Samples, window: Window) -> None:
    node, census = window.node, latest_count(window)
    if node is not None:
        hierarchy = census.hierarchy if census is not None else ""
        samples.add(f.NODE, 1, node.kernel, hierarchy, str(node.cores or ""))


def _memcgs(samples: Samples, window: Window) -> None:
    census = latest_count(window)
    if census is not None:
        samples.add(f.DYING, census.dying)
        samples.add(f.LIVE, census.live if census.dying is not None else None)


def _cores(
    samples: Samples, window: Window, since_s: float, span_s: float
) -> tuple[Counts | None, float]:
    series = core_series(window)
    if series is None:
        return None, since_s
    over = series.over(float(series.end[-1]) - span_s, float(series.end[-1]))
    worst = max(over, key=lambda core: over[core].kernel, default=None)
    if worst is not None:
        ratio = over[worst].kernel / 100
        samples.add(f.WORST_CORE, ratio)
        if ratio >= NAMED_RATIO:
            task = worst_tasks(window).get(worst)
            samples.add(f.WORST_CORE_INFO, 1, str(worst), task.comm if task else "")
    return _observations(series, since_s), float(series.end[-1])


def _observations(series: CoreSeries, since_s: float) -> Counts | None:
    new = series.end > since_s
    if not new.any():
        return None
    percent = series.percent(series.kernel)[:, new]
    return in_buckets((percent[~np.isnan(percent)] / 100).tolist(), f.KERNEL_RATIOS)


def _softirqs(samples: Samples, window: Window) -> None:
    rows, probe = window.latest(SoftirqWait), window.latest(ProbeCost)
    if rows is None or not probe or probe[-1].mode == "off":
        return
    for vector in _VECTORS:  # without rows: nothing has waited yet
        mine = [row for row in rows if row.vector == vector]
        pending = max((row.pending_us or 0 for row in mine), default=0)
        samples.add(f.SOFTIRQ_WAIT, _waits(mine), vector)
        samples.add(f.SOFTIRQ_PENDING, pending / 1e6, vector)


def _waits(rows: Sequence[SoftirqWait]) -> Counts:
    """All cores together. The probe's bucket n ends at 2**n microseconds."""
    total = np.zeros(max([26, *(len(row.buckets) for row in rows)]))
    for row in rows:
        total[: len(row.buckets)] += row.buckets
    edges = [0, *(round(np.log2(bound * 1e6)) + 1 for bound in f.WAIT_SECONDS), len(total)]
    parts = tuple(float(total[low:high].sum()) for low, high in pairwise(edges))
    return Counts(parts, sum(row.total_us for row in rows) / 1e6)


def _restarts(samples: Samples, window: Window) -> None:
    if not window.read(Unit) and not window.read(RestartMark):
        return
    found = {name: each.total for name, each in restarts(window).items() if each.total}
    for unit in sorted(found, key=lambda name: (-found[name], name)):
        samples.add(f.UNIT_RESTARTS, found[unit], unit)


def _memory(samples: Samples, window: Window) -> None:
    sums = paging.last_sums(window)
    for by in ("direct", "kswapd"):
        samples.add(f.RECLAIM, sums.get(by), by)
    samples.add(f.FAULTS, paging.minor_faults(sums), "minor")
    samples.add(f.FAULTS, sums.get("major"), "major")
    samples.add(f.OOM_KILLS, sums.get("killed"))


def _pressure(samples: Samples, window: Window) -> None:
    for row in window.latest(Pressure) or ():
        samples.add(f.PRESSURE, row.total_us / 1e6, row.resource, row.kind)


def _sources(samples: Samples, states: Iterable[SourceState]) -> None:
    for state in sorted(states):
        if state.state == "ok":
            samples.add(f.SOURCE, 1, state.id)
        elif state.state not in _NOTHING or state.requested:
            samples.add(f.SOURCE, 0, state.id)


def _recorder(samples: Samples, window: Window) -> None:
    rows = window.latest(RecorderCost)
    if not rows:
        return
    cost = rows[-1]
    samples.add(f.RECORDER_CPU, cost.cpu_ms / 1000, "own")
    samples.add(f.RECORDER_CPU, cost.children_cpu_ms / 1000, "children")
    if cost.kernel_ms is not None:
        samples.add(f.RECORDER_CPU, cost.kernel_ms / 1000, "kernel")
    samples.add(f.RECORDER_MEMORY, cost.rss_bytes, "own")
    samples.add(f.RECORDER_MEMORY, cost.children_rss_bytes, "children")
    samples.add(f.WRITTEN, cost.written_bytes)
