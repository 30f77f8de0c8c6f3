"""Which metric of which exporter becomes which field of which row: one entry per table.

A metric's name is a regular expression; ``{1}`` is its first group and ``{label}`` the value of a
label. `field` says where the value goes, `key` are the row's entity fields, in their order.

>>> core = Metric("node_cpu_seconds_total", "{mode}_ms", ("{cpu}",), 1000)
>>> core.place({"__name__": "node_cpu_seconds_total", "cpu": "3", "mode": "idle"})
(('3',), 'idle_ms')

Left out on purpose:

- `node_procs_running`: a moment per scrape, in which the exporter itself runs, says nothing about
  the time between;
- `node_cgroups_cgroups`: live and dying cgroups in one number;
- `node_cpu_core_throttles_total`: by physical core;
- `node_network_info`: does not tell a physical interface from a virtual one.

`node_filesystem_readonly` does not tell a failed filesystem from one that is mounted read-only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from sexton.model.frozen import Frozen, frozen
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCpu, CgroupMemory, CgroupThrottle
from sexton.model.rows.cpu import CoreTimes, RunQueue, SoftnetCpu
from sexton.model.rows.filesystem import Filesystem
from sexton.model.rows.hardware import MemoryModule
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.net import Conntrack, NetDevice, NicCounter, TcpCounters
from sexton.model.rows.unit import ServiceManager, Unit

#: The exporters that a row may come from.
NODE, KUBELET = "node_exporter", "kubelet (cAdvisor)"
_LABEL = re.compile(r"\{(\w+)\}")


class Metric(NamedTuple):
    """A metric and where its value goes; `scale` makes the row's unit of the metric's."""

    name: str
    field: str
    key: tuple[str, ...] = ()
    scale: float = 1

    def place(self, labels: Mapping[str, str]) -> tuple[tuple[str, ...], str] | None:
        """The key and the field of a series; `None` if this metric is another one."""
        found = re.fullmatch(self.name, labels.get("__name__", ""))
        if found is None:
            return None
        named = {**labels, **{str(at): text for at, text in enumerate(found.groups(), 1)}}

        def filled(form: str) -> str:
            return _LABEL.sub(lambda label: named.get(label[1], ""), form)

        return tuple(map(filled, self.key)), filled(self.field)


@frozen
class Table(Frozen):
    """A row type and its metrics. `turn_on` is what makes the exporter give them; `unless` are
    values of fields that may be missing, without which a row is not made otherwise."""

    row: type[Row]
    exporter: str
    metrics: tuple[Metric, ...]
    turn_on: str
    by_default: bool
    unless: Mapping[str, Any]

    @property
    def names(self) -> str:
        """Its metrics, for people."""
        return ", ".join(metric.name.replace("(.+)", "*") for metric in self.metrics)

    @property
    def pattern(self) -> str:
        """Its metrics as one regular expression of PromQL, which anchors it."""
        return "|".join(dict.fromkeys(metric.name for metric in self.metrics))


def _each(form: str, fields: Mapping[str, str], *key: str, scale: float = 1) -> tuple[Metric, ...]:
    """One metric per field, named by putting a word into `form`."""
    return tuple(
        Metric(form.replace("*", word), field, key, scale) for word, field in fields.items()
    )


def _node(row: type[Row], *metrics: Metric, off: str = "", flag: str, **unless: Any) -> Table:
    """A table of node_exporter; `off` is the collector's flag if it is off by default."""
    return Table(row, NODE, metrics, off or flag, not off, unless)


TABLES: tuple[Table, ...] = (
    _node(
        CoreTimes,
        Metric("node_cpu_seconds_total", "{mode}_ms", ("{cpu}",), 1000),
        flag="--collector.cpu",
    ),
    _node(
        VmCounter,
        Metric("node_vmstat_(.+)", "value", ("{1}",)),
        flag="--collector.vmstat.fields='^(oom_kill|pg|pswp|allocstall|workingset|nr_free).*'",
    ),
    _node(
        Pressure,
        *(
            Metric(f"node_pressure_{name}_seconds_total", "total_us", key, 1e6)
            for name, key in {
                "cpu_waiting": ("cpu", "some"),
                "memory_waiting": ("memory", "some"),
                "memory_stalled": ("memory", "full"),
                "io_waiting": ("io", "some"),
                "io_stalled": ("io", "full"),
            }.items()
        ),
        flag="--collector.pressure  # and a kernel with CONFIG_PSI",
        avg10_percent=float("nan"),
        avg60_percent=float("nan"),
        avg300_percent=float("nan"),
    ),
    _node(
        RunQueue,
        Metric("node_schedstat_running_seconds_total", "run_ns", ("{cpu}",), 1e9),
        Metric("node_schedstat_waiting_seconds_total", "wait_ns", ("{cpu}",), 1e9),
        Metric("node_schedstat_timeslices_total", "timeslices", ("{cpu}",)),
        flag="--collector.schedstat  # and a kernel with CONFIG_SCHEDSTATS",
    ),
    _node(
        SoftnetCpu,
        *_each("node_softnet_*_total",
               {"processed": "processed", "dropped": "dropped", "times_squeezed": "time_squeeze",
                "received_rps": "received_rps", "flow_limit_count": "flow_limit"}, "{cpu}"),
        Metric("node_softnet_backlog_len", "backlog", ("{cpu}",)),
        flag="--collector.softnet",
        received_rps=None,
        flow_limit=None,
        backlog=None,
    ),
    _node(
        NetDevice,
        *_each("node_network_receive_*_total",
               {"bytes": "rx_bytes", "packets": "rx_packets", "errs": "rx_errors",
                "drop": "rx_dropped"}, "{device}"),
        *_each("node_network_transmit_*_total",
               {"bytes": "tx_bytes", "packets": "tx_packets", "errs": "tx_errors",
                "drop": "tx_dropped"}, "{device}"),
        flag="--collector.netdev",
    ),
    _node(
        TcpCounters,
        *_each("node_netstat_Tcp_*",
               {"InSegs": "in_segments", "OutSegs": "out_segments",
                "RetransSegs": "retransmitted_segments", "EstabResets": "established_resets",
                "AttemptFails": "attempt_fails"}),
        *_each("node_netstat_TcpExt_*",
               {"TCPTimeouts": "timeouts", "TCPAbortOnTimeout": "aborts_on_timeout",
                "TCPLostRetransmit": "lost_retransmits", "ListenDrops": "listen_drops",
                "TCPSynRetrans": "syn_retransmits"}),
        flag="--collector.netstat",
        established_resets=None,
        attempt_fails=None,
        timeouts=None,
        aborts_on_timeout=None,
        lost_retransmits=None,
        listen_drops=None,
        syn_retransmits=None,
    ),
    _node(
        Conntrack,
        Metric("node_nf_conntrack_entries", "count"),
        Metric("node_nf_conntrack_entries_limit", "maximum"),
        *_each("node_nf_conntrack_stat_*",
               {"drop": "drops", "early_drop": "early_drops", "insert_failed": "insert_failed"}),
        flag="--collector.conntrack  # and nf_conntrack loaded",
        maximum=None,
        drops=None,
        early_drops=None,
        insert_failed=None,
    ),
    _node(
        NicCounter,
        Metric("node_ethtool_(.+)", "value", ("{device}", "{1}")),
        flag="",
        off="--collector.ethtool",
    ),
    _node(
        Unit,
        Metric("node_systemd_service_restart_total", "restarts", ("{name}",)),
        flag="",
        off="--collector.systemd --collector.systemd.enable-restarts-metrics",
        load_state="",
        active_state="",
        sub_state="",
        file_state=None,
        restart_policy=None,
        restart_delay_us=None,
        main_start_us=None,
        main_exit_us=None,
        active_enter_us=None,
        result=None,
        exit_status=None,
        cgroup=None,
        cgroup_origin="",
    ),
    _node(
        Filesystem,
        *_each("node_filesystem_*",
               {"size_bytes": "total_bytes", "free_bytes": "free_bytes",
                "avail_bytes": "available_bytes", "files": "inodes", "files_free": "free_inodes",
                "readonly": "mount_read_only"}, "{mountpoint}", "{device}", "{fstype}"),
        flag="--collector.filesystem",
        inodes=None,
        free_inodes=None,
    ),
    _node(
        MemoryModule,
        *_each("node_edac_*_errors_total",
               {"correctable": "corrected", "uncorrectable": "uncorrected"}, "{controller}"),
        flag="--collector.edac  # and a driver for the memory controller",
    ),
    Table(
        CgroupThrottle,
        KUBELET,
        _each("container_cpu_cfs_*_total",
              {"periods": "periods", "throttled_periods": "throttled"}, "{id}")
        + _each("container_cpu_cfs_*_total", {"throttled_seconds": "throttled_us"}, "{id}",
                scale=1e6),
        "a scrape job for the kubelet's /metrics/cadvisor",
        True,
        {},
    ),
    Table(
        CgroupCpu,
        KUBELET,
        (
            Metric("container_cpu_usage_seconds_total", "used_us", ("{id}",), 1e6),
            Metric("container_pressure_cpu_waiting_seconds_total", "waited_us", ("{id}",), 1e6),
        ),
        "a scrape job for the kubelet's /metrics/cadvisor",
        True,
        {"waited_us": None},
    ),
    Table(
        CgroupMemory,
        KUBELET,
        (
            Metric("container_spec_memory_limit_bytes", "limit_bytes", ("{id}",)),
            Metric("container_memory_usage_bytes", "used_bytes", ("{id}",)),
            Metric("container_oom_events_total", "killed", ("{id}",)),
        ),
        "a scrape job for the kubelet's /metrics/cadvisor",
        True,
        {"hits": None, "killed": None},
    ),
)  # fmt: skip

#: Given together with another table, without series of its own.
BESIDE: Mapping[type[Row], type[Row]] = {ServiceManager: Unit}


def table_of(kind: type[Row]) -> Table | None:
    """The table that gives a row type; `None` if no exporter does."""
    kind = BESIDE.get(kind, kind)
    return next((table for table in TABLES if table.row is kind), None)
