"""How many cores we may keep busy at once: those we may run on, and not more than our quota pays.

A quota is a cgroup's, and those above it count too: ``cpu.max`` ("quota period", or "max period")
on v2, Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files"; ``cpu.cfs_quota_us`` (-1 is
none) and ``cpu.cfs_period_us`` on v1, Documentation/scheduler/sched-bwc.rst. Which cgroup is ours
says ``/proc/self/cgroup``, "number:controllers:path", an empty list of controllers being v2's.

Quirks: neither file is there in the root of a hierarchy, and in a container without a cgroup
namespace the path is the host's, while the mount shows the container's own alone: then the mount is
the cgroup.

>>> shares("50000 100000\\n"), shares("max 100000\\n"), shares("")
(0.5, None, None)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import ceil

from sexton.errors import SourceError
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.model.cgroup import Mount
from sexton.sources.cgroupfs.layout import cgroup_mounts, v1_mounts


def cores_for_us(host: Host) -> int:
    """At least one."""
    allowed = float(len(os.sched_getaffinity(0)))
    return max(1, ceil(min([allowed, *quotas(host)])))


def quotas(host: Host) -> Iterator[float]:
    """Of our cgroup and of those above it, in cores; those that have one."""
    try:
        mounts, told = cgroup_mounts(host), text(host.files, f"{host.self_dir}/cgroup")
    except SourceError:
        return
    for line in told.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            candidates = [mount for mount in mounts if mount.fstype == "cgroup2"]
        elif "cpu" in controllers.split(","):
            candidates = v1_mounts(mounts, "cpu")
        else:
            continue
        for directory in _upward(candidates, path):
            found = _quota(host, directory, v2=not controllers)
            if found is not None:
                yield found


def shares(told: str) -> float | None:
    """Cores of a quota and its period; `None` where there is none, or it is not understood."""
    words = told.split()
    try:
        quota, period = int(words[0]), int(words[1])
    except (ValueError, IndexError):
        return None
    return quota / period if quota > 0 and period > 0 else None


def _upward(mounts: Sequence[Mount], path: str) -> Iterator[str]:
    """Our directory and those above it, as far as they can be seen."""
    for mount in mounts[:1]:
        root = mount.root.rstrip("/")
        inside = path[len(root) :] if f"{path}/".startswith(f"{root}/") else ""
        parts = [part for part in inside.split("/") if part]
        for depth in range(len(parts), -1, -1):
            yield "/".join([mount.mount_point, *parts[:depth]])


def _quota(host: Host, directory: str, *, v2: bool) -> float | None:
    names = ("cpu.max",) if v2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        return shares(" ".join(text(host.files, f"{directory}/{name}") for name in names))
    except SourceError:
        return None
