"""Processes and threads."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class Process(Row):
    """One process (`/proc/PID/stat`). Times and page faults are of the whole thread group; `cpu` is
    only the leader's last core: `Thread` has the cores that a process uses."""

    entity = ("pid", "start_ms")

    pid: int
    ppid: int
    comm: str
    state: str
    start_ms: int
    user_ms: int
    system_ms: int
    cpu: int | None
    threads: int
    kernel: bool
    minor_faults: int | None = None
    major_faults: int | None = None


@row
class ProcessCgroup(Row):
    """The memory cgroup of a process; `deleted` if its directory was removed."""

    entity = ("pid",)

    pid: int
    path: str
    deleted: bool


@row
class Thread(Row):
    """One thread of a process whose CPU time moved; `cpu` is the core it last ran on. `policy` is
    the scheduler's number for it (sched(7)): 1 FIFO, 2 RR, 6 DEADLINE are realtime."""

    entity = ("pid", "tid")

    pid: int
    tid: int
    comm: str
    state: str
    start_ms: int
    user_ms: int
    system_ms: int
    cpu: int | None
    policy: int | None = None
    rt_priority: int | None = None
