"""The numbers of `sexton top`: load of each core, thread and network interface.

Only the last two readings are compared: a screen shows now, not the average since it was opened.
`top_json` prints them as `sexton.top/1` (docs/json.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sexton.detect import resets
from sexton.detect.deaths import deaths
from sexton.detect.detectors.cpu.saturated_core import KERNEL_SHARE
from sexton.detect.findings import reason
from sexton.detect.growth import growth, latest_count
from sexton.detect.nics import physical
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import NetDevice
from sexton.model.text import printable
from sexton.model.window import Window, columns_of
from sexton.series.busiest import TaskLoad, worst_tasks
from sexton.series.catalogue import metric
from sexton.series.cores import PARTS, CoreSeries, all_cores, from_columns
from sexton.series.meter import latest

SCHEMA = "sexton.top/1"
_NIC_RATES = tuple(
    metric(f"nic_{name}")
    for name in ("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors")
)


class CoreLoad(NamedTuple):
    """Shares of the time one core was given, 0 to 1."""

    cpu: int
    user: float
    system: float
    softirq: float

    @property
    def busy(self) -> float:
        return self.user + self.system + self.softirq

    @property
    def kernel(self) -> float:
        return self.system + self.softirq

    @property
    def is_held(self) -> bool:
        """Whether its kernel time would count as a problem."""
        return 100 * self.kernel >= KERNEL_SHARE.value

    @property
    def kind(self) -> str:
        """Where most of the time goes: "u"ser, "s"ystem or softirq ("i")."""
        return max((self.user, "u"), (self.system, "s"), (self.softirq, "i"))[1]


class NicLoad(NamedTuple):
    """Rates of one interface, per second; its resets since boot, if known; and the driver's reset
    counters: name, value, change."""

    name: str
    rx_bytes: float | None
    tx_bytes: float | None
    drops: float | None
    errors: float | None
    resets: int | None
    counters: tuple[tuple[str, int, int | None], ...]


def core_loads(window: Window) -> tuple[CoreLoad, ...] | None:
    """By core number; `None` until there are two readings."""
    series = _last_step(window)
    return None if series is None else _shares(series)


def all_cores_load(window: Window) -> CoreLoad | None:
    """All cores as one: a core that was given more time weighs more."""
    series = _last_step(window)
    return None if series is None else next(iter(_shares(all_cores(series))), None)


def _last_step(window: Window) -> CoreSeries | None:
    columns = columns_of((window.batches(CoreTimes) or ())[-2:], CoreTimes, PARTS)
    return None if columns is None else from_columns((columns,))


def _shares(series: CoreSeries) -> tuple[CoreLoad, ...]:
    last = series.over(float(series.start[-1]), float(series.end[-1]))
    return tuple(
        CoreLoad(core, shares.user / 100, shares.system / 100, shares.softirq / 100)
        for core, shares in sorted(last.items())
    )


def nic_loads(window: Window) -> tuple[NicLoad, ...]:
    """Interfaces with a device behind them; if that is unknown, all but `lo`."""
    real = physical(window)
    known, counters = resets.by_nic(window), resets.counters(window)
    rates = latest(window, _NIC_RATES)
    names = [row.name for row in window.latest(NetDevice) or ()]
    return tuple(
        NicLoad(
            name,
            *_rates(rates.get((name,))),
            known.get(name),
            tuple(
                (counter.name, counter.value, counter.moved)
                for counter in counters
                if counter.nic == name
            ),
        )
        for name in names
        if (name != "lo" if real is None else name in real)
    )


def _rates(
    found: tuple[float | None, ...] | None,
) -> tuple[float | None, float | None, float | None, float | None]:
    """Received, sent, dropped and failed, per second."""
    received, sent, *losses = found or (None,) * len(_NIC_RATES)
    return received, sent, _both(*losses[:2]), _both(*losses[2:])


def _both(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def top_json(window: Window) -> dict[str, Any]:
    """One screen for machines; what was not read is `None`."""
    loads = core_loads(window)
    tasks = worst_tasks(window)
    node = window.node
    cores = None
    if loads is not None:
        cores = [
            {
                "core": load.cpu,
                "user": round(load.user, 4),
                "system": round(load.system, 4),
                "softirq": round(load.softirq, 4),
                "task": _task_json(tasks.get(load.cpu)),
            }
            for load in loads
        ]
    return {
        "schema": SCHEMA,
        "node": None if node is None else printable(node.hostname),
        "time": window.end,
        "cores": cores,
        "zombies": _zombies(window),
        "nics": [_nic(load) for load in nic_loads(window)],
        "events": _events(window),
    }


def _task_json(task: TaskLoad | None) -> dict[str, Any] | None:
    if task is None:
        return None
    return {
        "name": printable(task.comm),
        "pid": task.pid,
        "tid": task.tid,
        "share": round(task.share, 4),
        "system": round(task.system, 4),
    }


def _zombies(window: Window) -> dict[str, Any]:
    census = latest_count(window)
    if census is None:
        why = reason(window.why_missing(CgroupCensus))
    else:
        why = "" if census.dying is not None else census.reason or ""
    grown, traced = growth(window), deaths(window)
    return {
        "dying": None if census is None else census.dying,
        "live": None if census is None else census.live,
        "scope": None if census is None else census.scope,
        "reason": printable(why),
        "growth": None if grown is None else {"net": grown.by, "seconds": round(grown.seconds, 3)},
        "removed": None if traced is None else len(traced.all),
        "unreleased": None if traced is None else len(traced.unreleased),
    }


def _nic(load: NicLoad) -> dict[str, Any]:
    return {
        "name": printable(load.name),
        "rx_bytes_per_s": load.rx_bytes,
        "tx_bytes_per_s": load.tx_bytes,
        "drops_per_s": load.drops,
        "errors_per_s": load.errors,
        "resets": {printable(name): value for name, value, _ in load.counters},
    }


def _events(window: Window) -> list[dict[str, Any]] | None:
    """`None` if the kernel log cannot be read."""
    events = window.all(KernelEvent)
    if events is None:
        return None
    return [{"time": event.wall_s, "message": printable(event.message)} for event in events]
