"""What the last step of a window says of each core, each task and each network card.

Only the last two readings are compared: a screen shows now, not the average since it was opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sexton.detect.nics import counters, physical
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.net import NetDevice
from sexton.model.rows.task import Process, Thread
from sexton.model.window import Window, columns_of
from sexton.series.cores import PARTS, from_columns
from sexton.series.steps import Step, steps

#: Counters of drivers that say that a device was reset, or why.
RESETS = (
    "total_resets",
    "tx_timeout",
    "tx_timeout_count",
    "tx_timeouts",
    "suspected_poll_starvation",
    "wd_expired",
    "missing_tx_cmpl",
    "missing_intr",
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
    def kind(self) -> str:
        """What it does most: "u", "s" or "i" for softirq."""
        return max((self.user, "u"), (self.system, "s"), (self.softirq, "i"))[1]


class TaskLoad(NamedTuple):
    """The thread that took most of a core, and the share it took."""

    cpu: int
    comm: str
    pid: int
    tid: int
    share: float
    system: float

    @property
    def name(self) -> str:
        who = str(self.pid) if self.pid == self.tid else f"{self.pid}/{self.tid}"
        return f"{self.comm}[{who}]"


class NicLoad(NamedTuple):
    """Rates of one interface, per second, and the reset counters that are not zero."""

    name: str
    rx_bytes: float | None
    tx_bytes: float | None
    drops: float | None
    errors: float | None
    resets: tuple[tuple[str, int, int], ...]


def core_loads(window: Window) -> tuple[CoreLoad, ...] | None:
    """By core number; `None` until there are two readings."""
    columns = columns_of((window.batches(CoreTimes) or ())[-2:], CoreTimes, PARTS)
    series = None if columns is None else from_columns((columns,))
    if series is None:
        return None
    last = series.over(float(series.start[-1]), float(series.end[-1]))
    return tuple(
        CoreLoad(core, shares.user / 100, shares.system / 100, shares.softirq / 100)
        for core, shares in sorted(last.items())
    )


def worst_tasks(window: Window) -> Mapping[int, TaskLoad]:
    """Per core the thread that moved most and last ran there.

    Threads are read only of processes that moved, so a newcomer is missing for one reading; a
    process of a single thread stands for it, since there the leader's core is the right one.
    """
    worst: dict[int, TaskLoad] = {}
    alone = steps(
        (window.batches(Process) or ())[-2:], lambda row: (row.pid, row.start_ms, row.threads)
    )
    threads = steps(
        (window.batches(Thread) or ())[-2:], lambda row: (row.pid, row.tid, row.start_ms)
    )
    loads = [_task(step, step.after.pid) for _, step in alone if step.after.threads == 1]
    loads += [_task(step, step.after.tid) for _, step in threads]
    for load in loads:
        if load is not None and (load.cpu not in worst or worst[load.cpu].share < load.share):
            worst[load.cpu] = load
    return worst


def _task(step: Step[Process] | Step[Thread], tid: int) -> TaskLoad | None:
    row = step.after
    user, system = step.delta("user_ms"), step.delta("system_ms")
    if user is None or system is None or row.cpu is None or user + system == 0:
        return None
    span_ms = step.seconds * 1000
    share, kernel = (user + system) / span_ms, system / span_ms
    return TaskLoad(row.cpu, row.comm, row.pid, tid, share, kernel)


def nic_loads(window: Window) -> tuple[NicLoad, ...]:
    """Interfaces with a device behind them; where nobody knows which, all but `lo`."""
    real = physical(window)
    reset = counters(window, RESETS)
    moved = dict(steps((window.batches(NetDevice) or ())[-2:], lambda row: row.name))
    names = [row.name for row in window.latest(NetDevice) or ()]
    return tuple(
        NicLoad(
            name,
            _rate(moved.get(name), "rx_bytes"),
            _rate(moved.get(name), "tx_bytes"),
            _rate(moved.get(name), "rx_dropped", "tx_dropped"),
            _rate(moved.get(name), "rx_errors", "tx_errors"),
            tuple(
                (counter.name, counter.value, counter.moved)
                for counter in reset
                if counter.nic == name
            ),
        )
        for name in names
        if (name != "lo" if real is None else name in real)
    )


def _rate(step: Step[NetDevice] | None, *fields: str) -> float | None:
    if step is None:
        return None
    moved = [step.delta(field) for field in fields]
    known = [number for number in moved if number is not None]
    return sum(known) / step.seconds if len(known) == len(moved) else None
