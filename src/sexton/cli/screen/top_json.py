"""`sexton.top/1`: one screen of `sexton top` for machines. Described in docs/json.md."""

from __future__ import annotations

from typing import Any

from sexton.cli.screen.load import NicLoad, TaskLoad, core_loads, nic_loads, worst_tasks
from sexton.detect.deaths import deaths
from sexton.detect.findings import reason
from sexton.detect.growth import growth
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.event import KernelEvent
from sexton.model.text import printable
from sexton.model.window import Window

SCHEMA = "sexton.top/1"


def top_json(window: Window) -> dict[str, Any]:
    """Plain dicts and lists; what was not read is `None`."""
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
                "task": _task(tasks.get(load.cpu)),
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


def _task(task: TaskLoad | None) -> dict[str, Any] | None:
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
    rows = window.latest(CgroupCensus)
    census = rows[0] if rows else None
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
    """`None` where the kernel log may not be read."""
    events = window.all(KernelEvent)
    if events is None:
        return None
    return [{"time": event.wall_s, "message": printable(event.message)} for event in events]
