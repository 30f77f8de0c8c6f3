"""Pods and containers: what names the cgroups below `kubepods`.

Both tables are events: a row is recorded when its name is first read or changes, and again every
ten minutes. So what died before a window still has its name in it. Names are kept as read.
"""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class Container(Row):
    """One container of a pod, running or dead, by the id that its cgroup has.

    `name` is `None` for the pod's sandbox (the pause container). `restarts` is how often the
    kubelet had started this container of the pod before, `started_s` (UNIX) when it started it this
    time. `pod_uid`, `restarts` and `started_s` are `None` where they were not read.
    """

    id: str
    namespace: str
    pod: str
    name: str | None
    pod_uid: str | None
    restarts: int | None
    started_s: float | None = None


@row
class Pod(Row):
    """One pod, by the uid that its cgroup has: of a static pod that is the hash of its file."""

    uid: str
    namespace: str
    name: str
