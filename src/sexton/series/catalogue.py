"""All metrics, one entry each, used by detectors, alarms, lanes, `why` and reports.

A metric is computed from columns of one table. Its kind says how:

- *counter*: the sum of the columns, as a rate per second (times `scale`);
- *gauge*: the value as read;
- *change*: the change of a gauge per second, in either direction;
- *share*: of a core's time, in per cent of what the core was given (`sexton.series.cores`).

>>> metric("core_kernel_percent").help
'kernel time'
>>> [each.name for each in of_table(RunQueue)]
['core_run_queue_wait_percent']
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import inf
from typing import NamedTuple

from sexton.model.row import Row
from sexton.model.rows.cgroup import (
    CgroupCensus,
    CgroupCpu,
    CgroupMemory,
    CgroupThrottle,
    Controller,
)
from sexton.model.rows.cpu import (
    CoreTimes,
    ProbeCost,
    ReadyTasks,
    RunQueue,
    SoftirqWait,
    SoftnetCpu,
)
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.net import Conntrack, NetDevice, NicCounter, TcpCounters
from sexton.model.rows.unit import Unit
from sexton.model.window import Key
from sexton.series import cores, pressure


class Kind(Enum):
    """How values are computed from readings."""

    COUNTER = "counter"
    GAUGE = "gauge"
    CHANGE = "change"
    SHARE = "share"


class Metric(NamedTuple):
    """One entry. `help` is one line; `{0}` and `{1}` in it are replaced by a thing's labels.

    `normal` is the value on a calm node; the explorer's lanes show it. It is not a limit: detectors
    have limits, and a node may set its own.

    `subject` is the heading in `why`, `scale` converts a counter's rate to `unit`, `wanted` selects
    things of the table, and `absent` is the value of a missing reading, if it has one. With `worst`
    the largest of all things is a series too: the culprit may be on another core each time. `about`
    names the thing; `compared` metrics are signals of `why`. A step of a counter is zero if its
    `witness`, another column, is known not to have changed. No rate is above `most`.
    """

    name: str
    table: type[Row]
    columns: tuple[str, ...]
    kind: Kind
    unit: str
    help: str
    subject: str
    normal: str
    scale: float = 1.0
    wanted: Callable[[Key], bool] | None = None
    absent: float | None = None
    worst: bool = False
    about: str = "{0}"
    compared: bool = True
    witness: str = ""
    most: float = inf


_CORE, _TIME, _EACH = "% of a core", "% of time", "/s"
_LOAD, _TRAFFIC, _FEW = "depends on the load", "depends on the traffic", "a few per cent"
#: Units without a metric: the mean of all cores, shares of a capture's samples, busy samples.
ALL_CORES, CORE_SAMPLES, SAMPLES = "% of all cores", "% of samples", "samples in 20 ms"
#: Counters in `/proc/vmstat` that are named like gauges.
_COUNTED = frozenset(
    {
        "nr_dirtied", "nr_written", "nr_throttled_written", "nr_vmscan_write",
        "nr_vmscan_immediate_reclaim", "nr_foll_pin_acquired", "nr_foll_pin_released",
    }
)  # fmt: skip
#: Gauges whose value is of interest, not only its change.
_LEVELS = frozenset({"nr_free_pages", "nr_dirty", "nr_writeback", "nr_isolated_file"})


def _is_gauge(key: Key) -> bool:
    name = str(key[0])
    return (name.startswith("nr_") or name == "workingset_nodes") and name not in _COUNTED


def _is_counter(key: Key) -> bool:
    return not _is_gauge(key)


def _is_level(key: Key) -> bool:
    return key[0] in _LEVELS


def _is_memory(key: Key) -> bool:
    return key[0] == "memory"


def _share(name: str, columns: tuple[str, ...], text: str, normal: str) -> Metric:
    worst = columns != cores.WAIT
    return Metric(
        f"core_{name}_percent", CoreTimes, columns, Kind.SHARE, _CORE, text, "core", normal,
        worst=worst, about="core {0}", compared=columns != cores.KERNEL,
    )  # fmt: skip


def _counters(
    table: type[Row], prefix: str, subject: tuple[str, str], **normal: str
) -> tuple[Metric, ...]:
    return tuple(
        Metric(f"{prefix}_{column}", table, (column,), Kind.COUNTER, _EACH,
               column.replace("_", " "), subject[0], usual, about=subject[1])
        for column, usual in normal.items()
    )  # fmt: skip


CORE_KERNEL = _share("kernel", cores.KERNEL, "kernel time", _LOAD)
CORE_USER = _share("user", cores.USER, "user time", _LOAD)
CORE_SYSTEM = _share("system", cores.SYSTEM, "system time", "depends on the load, below user time")
CORE_SOFTIRQ = _share("softirq", cores.SOFTIRQ, "softirq time", _FEW)
CORE_WAIT = _share("wait", cores.WAIT, "waiting for I/O or stolen", "depends on the disks")
CORE_STEAL = _share("steal", cores.STEAL, "taken by the hypervisor", _FEW)
RUN_QUEUE_WAIT = Metric(
    "core_run_queue_wait_percent", RunQueue, ("wait_ns",), Kind.COUNTER, _CORE,
    "tasks waiting to run", "core", _FEW, 1e-7, worst=True, about="core {0}",
)  # fmt: skip
READY_TASKS = Metric("ready_tasks", ReadyTasks, ("running",), Kind.GAUGE, "tasks",
                     "tasks running or ready to run", "core", "at most one per core",
                     about="node")  # fmt: skip
BLOCKED_TASKS = Metric("blocked_tasks", ReadyTasks, ("blocked",), Kind.GAUGE, "tasks",
                       "tasks waiting for I/O", "core", "0 to a few",
                       about="node")  # fmt: skip
SOFTIRQ_WAIT = Metric(
    "softirq_wait_percent", SoftirqWait, ("total_us",), Kind.COUNTER, _TIME,
    "{1} waiting", "softirq", "< 1 %", 1e-4, worst=True, about="core {0}",
)  # fmt: skip
SOFTIRQ_PENDING = Metric(
    "softirq_pending_ms", SoftirqWait, ("pending_us",), Kind.GAUGE, "ms",
    "{1} not yet served", "softirq", "< 10 ms", 1e-3, absent=0.0, worst=True, about="core {0}",
)  # fmt: skip
SOFTIRQ_LONGEST = Metric(
    "softirq_longest_wait_ms", SoftirqWait, ("longest_us",), Kind.GAUGE, "ms",
    "longest wait of {1} that ended", "softirq", "< 10 ms", 1e-3, compared=False,
)  # fmt: skip
SOFTIRQ_WAITS = Metric(
    "softirq_waits", SoftirqWait, ("waits",), Kind.GAUGE, "", "waits of {1} since the probe began",
    "softirq", _TRAFFIC, compared=False,
)  # fmt: skip
PROBE_WATCHED = Metric(
    "softirq_probe_watched", ProbeCost, ("watched",), Kind.GAUGE, "", "the probe was watching",
    "softirq", "1 while the probe runs", compared=False,
)  # fmt: skip
PRESSURE = Metric(
    "pressure_percent", Pressure, ("total_us",), Kind.COUNTER, _TIME, "{1} pressure", "pressure",
    _FEW, 1e-4, most=pressure.MOST,
)  # fmt: skip
VMSTAT = Metric("vmstat", VmCounter, ("value",), Kind.COUNTER, _EACH, "{0}", "memory", _LOAD,
                wanted=_is_counter, about="vmstat")  # fmt: skip
VMSTAT_CHANGE = Metric("vmstat_change", VmCounter, ("value",), Kind.CHANGE, _EACH,
                       "change of {0}", "memory", _LOAD, wanted=_is_gauge,
                       about="vmstat")  # fmt: skip
VMSTAT_LEVEL = Metric("vmstat_level", VmCounter, ("value",), Kind.GAUGE, "pages", "{0}", "memory",
                      _LOAD, wanted=_is_level, about="vmstat")  # fmt: skip
NIC_RECEIVED, NIC_SENT = (
    Metric(f"nic_{way}_mbit", NetDevice, (f"{way}_bytes",), Kind.COUNTER, "Mbit/s", text, "nic",
           _TRAFFIC, 8e-6, compared=False)
    for way, text in (("rx", "received"), ("tx", "sent"))
)  # fmt: skip
NIC_COUNTER = Metric("nic_counter", NicCounter, ("value",), Kind.COUNTER, _EACH, "{1}", "nic",
                     "depends on the counter: faults 0", compared=False)  # fmt: skip
CONNTRACK_ENTRIES = Metric("conntrack_entries", Conntrack, ("count",), Kind.GAUGE, "entries",
                           "entries", "tcp", "far below its limit", about="conntrack")  # fmt: skip
#: `NRestarts` may increase for a start that never happened (`sexton.series.restarts`).
UNIT_RESTARTS = Metric("unit_restarts", Unit, ("restarts",), Kind.COUNTER, "/min", "restarts",
                       "unit", "0", 60.0, witness="main_start_us")  # fmt: skip
CGROUP_CPU = Metric("cgroup_cpu_percent", CgroupCpu, ("used_us",), Kind.COUNTER, _CORE,
                    "CPU time used", "cgroup", _LOAD, 1e-4)  # fmt: skip
CGROUP_CPU_WAIT = Metric(
    "cgroup_cpu_wait_percent", CgroupCpu, ("waited_us",), Kind.COUNTER, _TIME,
    "waiting for a core", "cgroup", _FEW, 1e-4, most=pressure.MOST,
)  # fmt: skip
CGROUP_MEMORY = Metric("cgroup_memory_bytes", CgroupMemory, ("used_bytes",), Kind.GAUGE, "bytes",
                       "memory of a cgroup with a limit", "cgroup", "below its limit")  # fmt: skip
CGROUP_OOM_KILLS = Metric("cgroup_oom_kills", CgroupMemory, ("killed",), Kind.COUNTER, "/min",
                          "OOM kills", "cgroup", "0", 60.0)  # fmt: skip
THROTTLED = Metric(
    "cgroup_throttled_percent", CgroupThrottle, ("throttled_us",), Kind.COUNTER, _TIME,
    "stopped by its quota", "cgroup", "0", 1e-4,
)  # fmt: skip
CGROUPS = Metric("memory_cgroups", Controller, ("cgroups",), Kind.GAUGE, "",
                 "cgroups, including dying ones", "cgroup", "hardly more than live ones",
                 wanted=_is_memory)  # fmt: skip
CGROUPS_CHANGE = Metric(
    "memory_cgroups_change", Controller, ("cgroups",), Kind.CHANGE, _EACH,
    "change of cgroups, including dying ones", "cgroup", "0 on average", wanted=_is_memory,
)  # fmt: skip
DYING = Metric("dying_memcgs", CgroupCensus, ("dying",), Kind.GAUGE, "cgroups",
               "dying memory cgroups", "cgroup", "< 50", compared=False)  # fmt: skip
LIVE = Metric("live_memcgs", CgroupCensus, ("live",), Kind.GAUGE, "cgroups",
              "live memory cgroups", "cgroup", "depends on services and containers",
              compared=False)  # fmt: skip

METRICS: tuple[Metric, ...] = (
    CORE_KERNEL, CORE_USER, CORE_SYSTEM, CORE_SOFTIRQ, CORE_WAIT, CORE_STEAL, RUN_QUEUE_WAIT,
    READY_TASKS, BLOCKED_TASKS,
    *_counters(SoftnetCpu, "softnet", ("softirq", "core {0}"),
               processed=_TRAFFIC, dropped="0", time_squeeze="near 0"),
    SOFTIRQ_WAIT, SOFTIRQ_PENDING, SOFTIRQ_LONGEST, SOFTIRQ_WAITS, PROBE_WATCHED, PRESSURE,
    VMSTAT, VMSTAT_CHANGE, VMSTAT_LEVEL,
    *_counters(NetDevice, "nic", ("nic", "{0}"),
               rx_bytes=_TRAFFIC, rx_packets=_TRAFFIC, rx_errors="0", rx_dropped="near 0",
               tx_bytes=_TRAFFIC, tx_packets=_TRAFFIC, tx_errors="0", tx_dropped="0"),
    NIC_RECEIVED, NIC_SENT, NIC_COUNTER,
    *_counters(TcpCounters, "tcp", ("tcp", "TCP"),
               in_segments=_TRAFFIC, out_segments=_TRAFFIC,
               retransmitted_segments="< 1 % of the segments sent",
               established_resets="depends on the services",
               attempt_fails="depends on the services", timeouts="near 0",
               aborts_on_timeout="near 0", lost_retransmits="near 0", listen_drops="0",
               syn_retransmits="near 0"),
    CONNTRACK_ENTRIES,
    *_counters(Conntrack, "conntrack", ("tcp", "conntrack"),
               drops="0", early_drops="0", insert_failed="near 0"),
    UNIT_RESTARTS, CGROUP_CPU, CGROUP_CPU_WAIT, CGROUP_MEMORY, CGROUP_OOM_KILLS, THROTTLED,
    CGROUPS, CGROUPS_CHANGE, DYING, LIVE,
)  # fmt: skip


_BY_NAME = {item.name: item for item in METRICS}


def metric(name: str) -> Metric:
    """The entry of that name."""
    return _BY_NAME[name]


def of_table(table: type[Row]) -> tuple[Metric, ...]:
    """Every metric of one table."""
    return tuple(item for item in METRICS if item.table is table)
