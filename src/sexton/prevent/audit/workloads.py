"""What the node is for: the containers and jobs that live on it, by the cgroups of processes.

Container runtimes and schedulers put what they start into cgroups with names of their own
(`sexton.detect.stems`). Only cgroups with a process in them count: an empty directory is nobody's
workload.

>>> pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + "0a" * 16 + ".slice"
>>> found = counted([pod + "/cri-containerd-" + "1" * 64 + ".scope", "/ecs/abc/" + "f" * 64])
>>> [(each.kind, each.count) for each in found], found[0].example
([('ecs', 1), ('kubernetes', 1)], '/ecs/abc')
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sexton.model.audit import Workload

#: Kind, and what of a path is one of them; the first that fits a path decides.
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("ecs", r".*?/ecs(?:tasks[^/]*)?/[^/]+"),
        ("kubernetes", r".*?/kubepods.*?pod[0-9a-f]{8}[-_0-9a-f]{20,}[^/]*"),
        ("slurm", r".*?/slurm[^/]*(?:/uid_\d+)?(?:/job_\d+|\.scope/job_\d+)"),
        ("nomad", r".*?/nomad(?:\.slice)?/[^/]*[0-9a-f]{8}-[^/]*"),
        ("docker", r".*?/(?:docker-[0-9a-f]{12,}\.scope|docker/[0-9a-f]{12,})"),
        ("podman", r".*?/libpod-[0-9a-f]{12,}[^/]*"),
        ("containerd", r".*?/(?:nerdctl|cri-containerd)-[0-9a-f]{12,}[^/]*"),
        ("cri-o", r".*?/crio-[0-9a-f]{12,}[^/]*"),
        ("lxc", r".*?/lxc\.payload\.[^/]+|/lxc/[^/]+"),
        ("vm", r".*?/machine\.slice/machine-[^/]+\.scope"),
    )
)


def kind_of(path: str) -> tuple[str, str] | None:
    """The workload a cgroup path belongs to: its kind, and the part of the path that is it."""
    for kind, pattern in _KINDS:
        found = pattern.match(path)
        if found is not None:
            return kind, found[0]
    return None


def counted(paths: Iterable[str]) -> tuple[Workload, ...]:
    """Workloads by kind, sorted; each is counted once, however many processes it has."""
    found: dict[str, set[str]] = {}
    for path in paths:
        known = kind_of(path)
        if known is not None:
            found.setdefault(known[0], set()).add(known[1])
    return tuple(Workload(kind, len(places), min(places)) for kind, places in sorted(found.items()))
