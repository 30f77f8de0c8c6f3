"""Recorded rows as Prometheus would have scraped them: made-up answers of its API.

Every `every_s` seconds a scrape takes the readings of that moment. It is the table of
`sexton.replay.prometheus.table` read backwards.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.filesystem import Filesystem
from sexton.model.rows.net import NicCounter
from sexton.model.rows.node import Node
from sexton.model.window import Batch, Window
from sexton.replay.prometheus.client import Labels, Samples
from sexton.replay.prometheus.table import KUBELET, TABLES, Metric, Table

NAME = "n1"
NODE_TARGET = {"job": "node", "instance": f"{NAME}:9100"}
KUBELET_TARGET = {"job": "kubelet", "instance": f"{NAME}:10250", "node": NAME}
#: What node_exporter 1.5 gives without further flags.
_VMSTAT = re.compile(r"^(oom_kill|pgpg|pswp|pg.*fault).*")
_NETSTAT = re.compile(r"InSegs|OutSegs|RetransSegs|Listen.*|TCPSynRetrans|TCPTimeouts")


class MadePrometheus:
    """What a client of a Prometheus that scraped this window would get. `flags`: every collector
    that helps is on, and all fields of vmstat and netstat are given."""

    url = "http://made"

    def __init__(self, window: Window, every_s: float, flags: bool = True) -> None:
        self._flags = flags
        self.found: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        moments = _moments(window, every_s)
        boot = window.start - window.start_mono
        for moment in moments:
            self._add({**NODE_TARGET, "__name__": "node_boot_time_seconds"}, moment + boot, boot)
            about = window.node or Node(NAME, "6.1", *(None,) * 11)
            uname = {"nodename": about.hostname, "release": about.kernel}
            self._add({**NODE_TARGET, "__name__": "node_uname_info", **uname}, moment + boot, 1)
        for table in TABLES:
            if not flags and not table.by_default:
                continue
            batches = window.batches(table.row) or ()
            target = KUBELET_TARGET if table.exporter == KUBELET else NODE_TARGET
            times = [batch.mono_s for batch in batches]
            for moment in moments:
                at = bisect_right(times, moment + 0.5) - 1
                if at >= 0:
                    for labels, value in self._scraped(table, batches[at]):
                        self._add({**target, **labels}, moment + boot, value)
        if any(dict(labels)["job"] == "kubelet" for labels in self.found):
            for moment in moments:
                cores = {**KUBELET_TARGET, "__name__": "machine_cpu_cores"}
                self._add(cores, moment + boot, 2)

    def _add(self, labels: Labels, wall: float, value: float) -> None:
        self.found.setdefault(tuple(sorted(labels.items())), []).append((wall, value))

    def _scraped(self, table: Table, batch: Batch[Any]) -> Iterator[tuple[dict[str, str], float]]:
        for row in batch.rows:
            for metric in table.metrics:
                for labels, field in _labels(metric, row):
                    value = getattr(row, field, None)
                    name = labels["__name__"]
                    if value is None or not (self._flags or _by_default(name)):
                        continue
                    yield labels, float(value) / metric.scale

    def series(self, selector: str, start: float, end: float) -> list[Labels]:
        return [samples.labels for samples in self.samples(selector, start, end)]

    def samples(self, selector: str, start: float, end: float) -> list[Samples]:
        matched = re.match(r'\{__name__=~"([^"]*)"', selector)
        assert matched is not None
        name = re.compile(matched[1])
        job = re.search(r'job="([^"]*)"', selector)
        found = []
        for pairs, values in self.found.items():
            labels = dict(pairs)
            if name.fullmatch(labels["__name__"]) and (job is None or labels["job"] == job[1]):
                inside = [pair for pair in values if start <= pair[0] <= end]
                if inside:
                    found.append(Samples(labels, inside))
        return found


def _moments(window: Window, every_s: float) -> list[float]:
    """Readings of the cores, at least about so far apart."""
    times = [batch.mono_s for batch in window.batches(CoreTimes) or () if batch.rows]
    chosen: list[float] = []
    for moment in times:
        if not chosen or moment - chosen[-1] >= every_s - 0.25:
            chosen.append(moment)
    return chosen


def _labels(metric: Metric, row: Row) -> Iterator[tuple[dict[str, str], str]]:
    """Labels of this metric for a row, and the field that has its value."""
    if isinstance(row, Filesystem):
        device = f"/dev/{row.device}" if row.device else row.fstype
        about = {"mountpoint": row.mount_point, "device": device, "fstype": row.fstype}
        yield {"__name__": metric.name, **about}, metric.field
        return
    key = [str(getattr(row, name)) for name in row.entity]
    labels = {"__name__": metric.name}
    if not metric.key and not key:
        yield labels, metric.field
        return
    for form, value in zip(metric.key, key, strict=False):
        if form == "{1}":
            if isinstance(row, NicCounter):
                words = {"rx": "received", "tx": "transmitted"}
                value = "_".join(words.get(word, word) for word in value.split("_"))
            labels["__name__"] = metric.name.replace("(.+)", value)
        elif form.startswith("{"):
            labels[form[1:-1]] = value
        elif form != value:
            return  # the pressure of another resource
    if metric.field == "{mode}_ms":
        for mode in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"):
            yield {**labels, "mode": mode}, f"{mode}_ms"
    else:
        yield labels, metric.field


def _by_default(name: str) -> bool:
    """Is it given without flags?"""
    if name.startswith("node_vmstat_"):
        return _VMSTAT.match(name.removeprefix("node_vmstat_")) is not None
    if name.startswith("node_netstat_"):
        return _NETSTAT.fullmatch(name.rpartition("_")[2]) is not None
    return True
