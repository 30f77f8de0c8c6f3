"""The kernel's own counts of OOM kills: of the node since boot, and of each cgroup with a limit.

They remain where the log may not be read, or has forgotten the lines; they have no times and no
names of processes.
"""

from __future__ import annotations

from typing import NamedTuple

from sexton.model.finding import Evidence
from sexton.model.rows.cgroup import CgroupMemory
from sexton.model.window import Window
from sexton.series import paging


class Counted(NamedTuple):
    """`oom_kill` of `/proc/vmstat`: since boot, and in this window; `None` is unknown."""

    total: int | None
    recent: int | None


def counted(window: Window) -> Counted:
    """The node's counter."""
    readings = paging.readings(window)
    if not len(readings):
        return Counted(None, None)
    over = paging.first_to_last(window)
    return Counted(readings[-1].sums.get("killed"), over.moved.get("killed") if over else None)


def counted_in(window: Window) -> list[tuple[str, int]]:
    """Cgroups with a limit in which kills were counted since they were made, the most first; of a
    cgroup and one below it with as many, the latter."""
    rows = {row.path: row.killed for row in window.latest(CgroupMemory) or () if row.killed}
    found = [
        (path, number)
        for path, number in rows.items()
        if not any(
            other.startswith(path.rstrip("/") + "/") and below == number
            for other, below in rows.items()
        )
    ]
    return sorted(found, key=lambda one: (-one[1], one[0]))


def evidence_in(path: str, number: int) -> Evidence:
    """How many were killed in a cgroup."""
    return Evidence(
        f"{path}: OOM kills",
        f"{number:,}",
        "0",
        "processes since it was made",
        "memory.events (v1: memory.oom_control)",
        float(number),
        "it is meant to be killed at its limit",
    )


def evidence(counted: Counted) -> list[Evidence]:
    """How many were killed on the node; nothing if that is unknown."""
    if counted.total is None:
        return []
    recent = f", {counted.recent:,} in this window" if counted.recent is not None else ""
    return [
        Evidence(
            "OOM kills on the node",
            f"{counted.total:,} since boot{recent}",
            "0",
            "processes",
            "/proc/vmstat",
            float(counted.total),
            "the kernel is older than 4.13, which began to count them",
        )
    ]
