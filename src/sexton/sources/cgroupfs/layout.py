"""Which hierarchy the memory controller is on, and whether it can be counted node-wide.

Three files are needed: ``mountinfo`` (what is mounted), ``/proc/cgroups`` (which hierarchy `memory`
is bound to; 0 is v2) and, on v2, ``cgroup.controllers``. `stat -f` does not help: a ``tmpfs`` on
``/sys/fs/cgroup`` is v1 *or* hybrid.

``/proc/cgroups`` counts the whole node from inside any namespace, while the directories there are
only a subtree's, and mountinfo's root still reads ``/``: a pod that subtracts would invent a
thousand zombies. So the two are `comparable` only if both of these hold:

- the mount shows the hierarchy from its root: mountinfo's root reads ``/``, or ``/../..`` if we are
  in a cgroup namespace (every pod on v2 is) and the host's tree is mounted, since the kernel prints
  it relative to the *reader's* namespace;
- the directory itself looks like a root: on v1 it alone has ``release_agent`` and
  ``cgroup.sane_behavior``, on v2 it alone lacks ``cgroup.type`` and ``cgroup.events``
  (CFTYPE_ONLY_ON_ROOT and CFTYPE_NOT_ON_ROOT in kernel/cgroup). A namespace's root is none.

Through ``--root`` the host's first process must also be in the initial cgroup namespace,
``cgroup:[4026531835]`` (PROC_CGROUP_INIT_INO in include/linux/proc_ns.h): a tree may be a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceDenied
from sexton.host.host import Host
from sexton.host.reader import exists, text
from sexton.model.rows.cgroup import Controller, Mount
from sexton.model.text import printable
from sexton.sources.procfs import cgroups, mountinfo
from sexton.sources.registry import Reading

INITIAL_NAMESPACE = "cgroup:[4026531835]"
HOST_NAMESPACE = "run with the host's cgroup namespace"
#: A command line; everything that is not a command is behind a comment mark.
HOST_VIEW = (
    "sudo sexton diagnose  # on the node; in a pod with hostPID: nsenter -t 1 -C -m sexton diagnose"
)
HOST_MOUNT = "run with the host's /sys/fs/cgroup mounted, or with --root on the host's tree"
#: A node may mount one hierarchy many times (kubelet's pods do); a few candidates are enough.
_MOST_CANDIDATES = 8


class Layout(NamedTuple):
    """Where memory cgroups are, and how far their number can be trusted.

    `hierarchy` is the node's setup ("v1", "v2", "hybrid"), `version` that of the memory controller,
    `None` if there is none. `comparable` is true if /proc/cgroups and the directories under
    `mount_point` cover the same tree; otherwise `reason` says why not, as a clause, and `advice`
    what would help.
    """

    hierarchy: str
    version: int | None
    mount_point: str | None
    comparable: bool
    reason: str | None
    advice: str = ""


class MemoryReading(Reading):
    """An opened source of the memory hierarchy, which is located once."""

    @cached_property
    def _layout(self) -> Layout:
        return read_layout(self._host)


def mount_point(layout: Layout, path: str) -> str:
    """Where the memory cgroups are mounted; `SourceAbsent` for `path` if they are not."""
    if layout.mount_point is None:
        raise SourceAbsent(path, layout.reason or "no memory hierarchy here")
    return layout.mount_point


def read_layout(host: Host) -> Layout:
    """The layout as of now."""
    mounts = cgroup_mounts(host)
    memory = controller(host, "memory")
    hierarchy = _hierarchy(mounts, memory)
    if memory is not None and not memory.enabled:
        reason = "the memory controller is disabled (cgroup_disable=memory)"
        return Layout(hierarchy, None, None, False, reason, "boot without cgroup_disable")
    first = v1_mounts(mounts, "memory")
    if first:
        return _chosen(host, hierarchy, 1, first)
    if memory is not None and memory.hierarchy != 0:
        reason = "memory is on a cgroup v1 hierarchy that is not mounted here"
        return Layout(hierarchy, 1, None, False, reason, HOST_MOUNT)
    second = [mount for mount in mounts if mount.fstype == "cgroup2"]
    having = [mount for mount in second[:_MOST_CANDIDATES] if _has_memory(host, mount, memory)]
    if having:
        return _chosen(host, hierarchy, 2, having)
    if not mounts:
        version = None if memory is None else 2
        reason = "no cgroup hierarchy is mounted here"
        return Layout(hierarchy, version, None, False, reason, HOST_MOUNT)
    reason = "no cgroup hierarchy here has a memory controller"
    return Layout(hierarchy, None, None, False, reason, HOST_NAMESPACE)


def cgroup_mounts(host: Host) -> list[Mount]:
    """The cgroup mounts that are not hidden under a later one on the same point."""
    found = mountinfo.parse(text(host.files, f"{host.self_dir}/mountinfo"))
    top = {mount.mount_point: mount for mount in found}
    return [mount for mount in top.values() if mount.fstype in ("cgroup", "cgroup2")]


def v1_mounts(mounts: Sequence[Mount], name: str) -> list[Mount]:
    """The mounts of the v1 hierarchy that has this controller."""
    return [mount for mount in mounts if mount.fstype == "cgroup" and name in mount.super_options]


def controller_mount(mounts: Sequence[Mount], name: str, path: str) -> tuple[str, int]:
    """Mount point and cgroup version of a controller's hierarchy: v1 if mounted, else v2."""
    first = v1_mounts(mounts, name)
    found = first or [mount for mount in mounts if mount.fstype == "cgroup2"]
    if not found:
        raise SourceAbsent(path, f"no hierarchy with a {name} controller is mounted")
    return min((mount.mount_point for mount in found), key=len), 1 if first else 2


def controller(host: Host, name: str) -> Controller | None:
    """The controller's row of /proc/cgroups; `None` means unknown, never zero."""
    try:
        rows = cgroups.parse(text(host.files, cgroups.PATH))
    except SourceAbsent:
        return None
    return next((row for row in rows if row.name == name), None)


def _hierarchy(mounts: Sequence[Mount], memory: Controller | None) -> str:
    kinds = {mount.fstype for mount in mounts}
    if len(kinds) == 2:
        return "hybrid"
    if kinds:
        return "v1" if kinds == {"cgroup"} else "v2"
    return "v1" if memory is not None and memory.hierarchy != 0 else "v2"


def _has_memory(host: Host, mount: Mount, memory: Controller | None) -> bool:
    try:
        names = text(host.files, f"{mount.mount_point}/cgroup.controllers").split()
    except SourceAbsent:  # a copied tree may lack the file; then /proc/cgroups decides
        return memory is not None
    return "memory" in names


def _chosen(host: Host, hierarchy: str, version: int, mounts: Sequence[Mount]) -> Layout:
    tried = [
        (mount, _looks_like_root(host, version, mount.mount_point))
        for mount in mounts[:_MOST_CANDIDATES]
        if _has_entries(host, mount.mount_point)
    ]
    if not tried:
        where = printable(mounts[0].mount_point)
        reason = f"{where} is mounted on the host but empty here"
        return Layout(hierarchy, version, None, False, reason, HOST_MOUNT)
    mount, looks = min(
        tried, key=lambda item: (item[1] is not True, item[0].root != "/", len(item[0].mount_point))
    )
    objection = _objection(host, mount, looks)
    if objection is None:
        return Layout(hierarchy, version, mount.mount_point, True, None)
    return Layout(hierarchy, version, mount.mount_point, False, *objection)


def _objection(host: Host, mount: Mount, looks: bool | None) -> tuple[str, str] | None:
    """Why a node-wide count is impossible, and what would help."""
    namespace = _namespace(host)
    if namespace not in (None, INITIAL_NAMESPACE) and not (host.live and looks is True):
        who = "sexton" if host.live else "the host's first process"
        return f"{who} runs in a cgroup namespace", HOST_NAMESPACE
    if mount.root.strip("/.") != "":
        return f"only {printable(mount.root)} of the hierarchy is mounted", HOST_MOUNT
    if looks is True:
        return None
    where = printable(mount.mount_point)
    if looks is False or host.live:
        return f"{where} is not the root of its hierarchy", HOST_NAMESPACE
    if namespace is None:
        return f"cannot verify that {where} is the host's whole hierarchy", HOST_MOUNT
    return None


def _namespace(host: Host) -> str | None:
    try:
        return host.files.link(f"{host.self_dir}/ns/cgroup")
    except (SourceAbsent, SourceDenied):  # before 4.6, not recorded, or not permitted
        return None


def _looks_like_root(host: Host, version: int, top: str) -> bool | None:
    """By the files that only a root has or lacks; `None` if too few were copied to tell."""

    def any_of(*names: str) -> bool:
        return any(exists(host.files, f"{top}/{name}") for name in names)

    if version == 1:
        if any_of("release_agent", "cgroup.sane_behavior"):
            return True
        return False if any_of("notify_on_release", "cgroup.clone_children") else None
    if any_of("cgroup.type", "cgroup.events", "cgroup.freeze"):
        return False
    return True if any_of("cgroup.controllers") else None


def _has_entries(host: Host, path: str) -> bool:
    try:
        return bool(host.files.names(path))
    except SourceAbsent:
        return False
