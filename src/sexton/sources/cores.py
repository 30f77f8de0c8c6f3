"""The cores Sexton may use: how many at once, and which of them serve no NIC interrupt.

**How many** (`cores_for_us`): those this process may run on, limited by its CPU quota. A quota
belongs to a cgroup, and the ancestors' quotas apply too: ``cpu.max`` ("quota period", or "max
period") on v2, Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files";
``cpu.cfs_quota_us`` (-1: no quota) and ``cpu.cfs_period_us`` on v1,
Documentation/scheduler/sched-bwc.rst. ``/proc/self/cgroup`` names our cgroup as
"number:controllers:path"; on v2 the list of controllers is empty.

Quirks: the root of a hierarchy has neither file. In a container without a cgroup namespace the path
is the host's, while the mount shows only the container's own cgroup: then the mount is the cgroup.

**Which** (`off_the_nic`): a read that walks inside the kernel cannot be interrupted, so not even a
deadline protects the core it runs on. It must never be the core that the NIC's watchdog waits for.

>>> quota_cores("50000 100000\\n"), quota_cores("max 100000\\n"), quota_cores("")
(0.5, None, None)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceDenied, SourceError
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.model.cgroup import Mount
from sexton.sources.cgroupfs.layout import cgroup_mounts, v1_mounts
from sexton.sources.procfs.irq_affinity import cpu_list


class Spared(NamedTuple):
    """The cores to run on (`None`: any), and a note for the report."""

    cpus: frozenset[int] | None
    note: str


def off_the_nic(host: Host) -> Spared:
    """Where a child may run; looked up once per host, since there may be hundreds of devices."""
    known: Spared | None = host.memo.get("off the nic")
    if known is None:
        known = host.memo["off the nic"] = _spare(nic_cores(host))
    return known


def nic_cores(host: Host) -> frozenset[int]:
    """The cores that the network devices' own interrupts go to."""
    cores: set[int] = set()
    for device in _names(host, "/sys/class/net"):
        # virtio's queues belong to the PCI device above the virtio one
        for irqs in (f"{device}/device/msi_irqs", f"{device}/device/../msi_irqs"):
            for irq in _names(host, f"/sys/class/net/{irqs}"):
                cores.update(_irq_cores(host, irq))
    return frozenset(cores)


def _names(host: Host, path: str) -> list[str]:
    try:
        return host.files.names(path)
    except (SourceAbsent, SourceDenied):
        return []


def _irq_cores(host: Host, irq: str) -> tuple[int, ...]:
    for file in ("effective_affinity_list", "smp_affinity_list"):
        try:
            cores = cpu_list(text(host.files, f"/proc/irq/{irq}/{file}"))
        except (SourceAbsent, SourceDenied, ValueError):
            continue
        if cores:
            return cores
    return ()


def _spare(busy: frozenset[int]) -> Spared:
    allowed = frozenset(os.sched_getaffinity(0))
    if not busy:
        return Spared(None, "(no NIC interrupts found, so on any core)")
    free = allowed - busy
    if not free:
        return Spared(None, "(every core serves the NIC, so on any core)")
    return Spared(free, "on a core that does not serve the NIC")


def cores_for_us(host: Host) -> int:
    """How many cores this process may keep busy; at least one."""
    allowed = float(len(os.sched_getaffinity(0)))
    return max(1, ceil(min([allowed, *quotas(host)])))


def quotas(host: Host) -> Iterator[float]:
    """The quotas of our cgroup and its ancestors, in cores."""
    try:
        mounts, content = cgroup_mounts(host), text(host.files, f"{host.self_dir}/cgroup")
    except SourceError:
        return
    for line in content.splitlines():
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


def quota_cores(content: str) -> float | None:
    """A quota and its period as cores; `None` without a quota or where it cannot be parsed."""
    words = content.split()
    try:
        quota, period = int(words[0]), int(words[1])
    except (ValueError, IndexError):
        return None
    return quota / period if quota > 0 and period > 0 else None


def _upward(mounts: Sequence[Mount], path: str) -> Iterator[str]:
    """Our cgroup's directory and its visible ancestors."""
    for mount in mounts[:1]:
        root = mount.root.rstrip("/")
        inside = path[len(root) :] if f"{path}/".startswith(f"{root}/") else ""
        parts = [part for part in inside.split("/") if part]
        for depth in range(len(parts), -1, -1):
            yield "/".join([mount.mount_point, *parts[:depth]])


def _quota(host: Host, directory: str, *, v2: bool) -> float | None:
    names = ("cpu.max",) if v2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        return quota_cores(" ".join(text(host.files, f"{directory}/{name}") for name in names))
    except SourceError:
        return None
