"""What a person would have seen in `mpstat -P ALL 1`, on a CPU graph and in `below`.

mpstat prints each core's shares of the last second; a core at 90 % of one kind is obvious. A CPU
graph shows the machine's mean over a minute. `below` shows five seconds at a time (its recorder's
default): the machine's user and system CPU in its header; CPU, memory, pressure and, on cgroup v2
only, dying descendants in its default cgroup table (facebookincubator/below,
below/view/src/summary_view.rs and cgroup_tabs.rs at bb8a4873389c, 2026-08-17).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.rows.cgroup import CgroupStat, RootCgroupStat
from sexton.model.rows.cpu import CoreTimes
from sexton.model.window import Batch, Window

#: A share that is obvious in a column of percentages.
OBVIOUS = 90.0
BELOW_S = 5.0
GRAPH_S = 60.0
#: A number of dying cgroups that a reader would notice.
MANY_DYING = 50
_KINDS = ("user", "system", "softirq")
_MODES = (
    "user_ms",
    "nice_ms",
    "system_ms",
    "idle_ms",
    "iowait_ms",
    "irq_ms",
    "softirq_ms",
    "steal_ms",
)
F64 = npt.NDArray[np.float64]


class Column(NamedTuple):
    """A core that was obvious in one of mpstat's columns: from when, for how long, its maximum."""

    kind: str
    core: int
    after_s: float
    seconds: float
    most: float


class Shares(NamedTuple):
    """Every core's time between readings, in percent: `value[kind]` is (interval, core)."""

    end_s: F64
    length_s: F64
    cores: tuple[int, ...]
    value: dict[str, F64]


def shares(window: Window, every_s: float = 1.0) -> Shares | None:
    """From readings at least about `every_s` apart (alarms add more); `None` with fewer than
    two."""
    batches = window.batches(CoreTimes) or ()
    chosen: list[Batch[CoreTimes]] = []
    for batch in batches:
        if batch.rows and (not chosen or batch.mono_s - chosen[-1].mono_s >= 0.9 * every_s):
            chosen.append(batch)
    if len(chosen) < 2:
        return None
    cores = sorted(set.intersection(*({row.cpu for row in batch.rows} for batch in chosen)))
    times = np.zeros((len(chosen), len(cores), len(_MODES)))
    for place, batch in enumerate(chosen):
        known = {row.cpu: row for row in batch.rows}
        for column, core in enumerate(cores):
            times[place, column] = [getattr(known[core], mode) for mode in _MODES]
    moved = np.diff(times, axis=0)
    total = np.maximum(moved.sum(axis=2), 1e-9)
    by_mode = {mode: 100 * moved[:, :, place] / total for place, mode in enumerate(_MODES)}
    mono = np.array([batch.mono_s for batch in chosen])
    value = {"user": by_mode["user_ms"] + by_mode["nice_ms"], "system": by_mode["system_ms"],
             "softirq": by_mode["softirq_ms"],
             "busy": 100 - by_mode["idle_ms"] - by_mode["iowait_ms"]}  # fmt: skip
    return Shares(mono[1:] - window.start_mono, np.diff(mono), tuple(cores), value)


def mpstat(window: Window) -> list[Column] | None:
    """Obvious cores, earliest first; `None` if core times were not recorded."""
    found = shares(window)
    if found is None:
        return None
    return sorted(_columns(found), key=lambda column: (column.after_s, column.kind, column.core))


def _columns(found: Shares) -> Iterator[Column]:
    for kind in _KINDS:
        high = found.value[kind] >= OBVIOUS
        for place, core in enumerate(found.cores):
            rows = np.flatnonzero(high[:, place])
            if len(rows):
                lasted = float(found.length_s[rows].sum())
                most = float(found.value[kind][:, place].max())
                yield Column(kind, core, float(found.end_s[rows[0]]), lasted, most)


def graph(window: Window) -> tuple[float, float] | None:
    """CPU of all cores in percent: highest mean over a minute (or all, if shorter) and a second."""
    found = shares(window)
    if found is None:
        return None
    busy = found.value["busy"].mean(axis=1)
    ends = np.cumsum(found.length_s)
    spent = np.concatenate([[0.0], np.cumsum(busy * found.length_s)])
    edges = np.concatenate([[0.0], ends])
    whole = float(spent[-1] / edges[-1])
    minutes = [
        (spent[place] - np.interp(edge - GRAPH_S, edges, spent)) / GRAPH_S
        for place, edge in enumerate(edges)
        if edge >= GRAPH_S
    ]
    return max([float(minute) for minute in minutes], default=whole), float(busy.max())


class Below(NamedTuple):
    """Its header in the worst five seconds, and its table's column of dying cgroups."""

    busy: float
    system: float
    dying: int | None
    many_after_s: float | None


def below(window: Window) -> Below | None:
    """`None` if core times were not recorded; `dying` is `None` on cgroup v1, which it does not
    show."""
    found = shares(window, BELOW_S)
    if found is None:
        return None
    system = found.value["system"].mean(axis=1)
    busy = found.value["busy"].mean(axis=1)
    dying = [*_dying(window)]
    many = next((after for after, number in dying if number >= MANY_DYING), None)
    most = max((number for _, number in dying), default=None)
    worst = int(np.argmax(busy))
    return Below(float(busy[worst]), float(system[worst]), most, many)


def _dying(window: Window) -> Iterator[tuple[float, int]]:
    for batch in window.batches(RootCgroupStat) or ():
        for row in batch.rows:
            yield batch.mono_s - window.start_mono, row.dying
    if window.batches(RootCgroupStat) is None:
        for reading in window.batches(CgroupStat) or ():
            if reading.rows:
                yield reading.mono_s - window.start_mono, max(row.dying for row in reading.rows)
