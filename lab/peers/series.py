"""Recorded counters as node_exporter would have exported them to Prometheus.

A scrape every 15 s (as in Prometheus' example configuration) takes the latest reading before it,
starting with the recording's first. Only metrics that the evaluated alerts use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.net import Conntrack, NetDevice
from sexton.model.rows.unit import Unit
from sexton.model.text import printable
from sexton.model.window import Batch, Window

SCRAPE_S = 15.0
_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
#: /proc/net/dev's columns by metric.
_NETWORK = {
    "node_network_receive_errs_total": "rx_errors",
    "node_network_receive_packets_total": "rx_packets",
    "node_network_transmit_errs_total": "tx_errors",
    "node_network_transmit_packets_total": "tx_packets",
}


class Key(NamedTuple):
    """A series: its metric and labels."""

    metric: str
    labels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        inside = ",".join(f'{name}="{value}"' for name, value in self.labels)
        return f"{self.metric}{{{inside}}}" if inside else self.metric


#: For each series one value per scrape, `None` if missing.
Scrapes = Mapping[Key, tuple[float | None, ...]]


def scraped(window: Window) -> Scrapes:
    """Every series of a window."""
    begin, end = window.start_mono, window.end_mono
    moments = [begin + SCRAPE_S * number for number in range(int((end - begin) / SCRAPE_S) + 1)]
    found: dict[Key, list[float | None]] = {}
    for kind, read in _READERS.items():
        batches = window.batches(kind) or ()
        times = [batch.mono_s for batch in batches]
        for place, moment in enumerate(moments):
            # Sources are read one after another: the first scrape takes the first reading of each.
            at = bisect_right(times, moment + (1.0 if place == 0 else 0.0)) - 1
            if at < 0:
                continue
            for key, value in read(batches[at]):
                found.setdefault(key, [None] * len(moments))[place] = value
    return {key: tuple(values) for key, values in sorted(found.items())}


_Values = Iterable[tuple[Key, float]]


def _cores(batch: Batch[CoreTimes]) -> _Values:
    for row in batch.rows:
        for mode in _MODES:
            labels = (("cpu", str(row.cpu)), ("mode", mode))
            yield Key("node_cpu_seconds_total", labels), getattr(row, f"{mode}_ms") / 1000


def _memory(batch: Batch[VmCounter]) -> _Values:
    for row in batch.rows:
        if row.name == "pgmajfault":
            yield Key("node_vmstat_pgmajfault"), float(row.value)


def _network(batch: Batch[NetDevice]) -> _Values:
    for row in batch.rows:
        for metric, column in _NETWORK.items():
            yield Key(metric, (("device", printable(row.name)),)), float(getattr(row, column))


def _units(batch: Batch[Unit]) -> _Values:
    for row in batch.rows:
        labels = (("name", printable(row.name)),)
        if row.restarts is not None:
            yield Key("node_systemd_service_restart_total", labels), float(row.restarts)
        failed = float(row.active_state == "failed")
        yield Key("node_systemd_unit_state", (*labels, ("state", "failed"))), failed


def _conntrack(batch: Batch[Conntrack]) -> _Values:
    for row in batch.rows:
        yield Key("node_nf_conntrack_entries"), float(row.count)
        if row.maximum is not None:
            yield Key("node_nf_conntrack_entries_limit"), float(row.maximum)


_READERS: Mapping[type[Row], Callable[[Batch[Any]], _Values]] = {
    CoreTimes: _cores,
    VmCounter: _memory,
    NetDevice: _network,
    Unit: _units,
    Conntrack: _conntrack,
}
