"""Control groups: live and dying ones, their limits, and what they used."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class Controller(Row):
    """One row of `/proc/cgroups`. `cgroups` counts dying ones too and is not namespaced."""

    entity = ("name",)

    name: str
    hierarchy: int
    cgroups: int
    enabled: bool


@row
class Mount(Row):
    """One line of mountinfo."""

    entity = ("mount_id",)

    mount_id: int
    root: str
    mount_point: str
    fstype: str
    source: str
    super_options: tuple[str, ...]


@row
class CgroupCensus(Row):
    """How many memory cgroups there are, live and dying, and how far that can be trusted.

    `hierarchy`: "v1", "v2" or "hybrid" as the node is set up; `version` is where memory lives
    (1 or 2). `scope` is "node" only where both sides of the count saw the same tree, else
    "subtree". `total`, `live` and `dying` are `None` if unknown; then `reason` says why.
    """

    hierarchy: str
    version: int | None
    mount_point: str | None
    scope: str
    total: int | None
    live: int | None
    dying: int | None
    method: str
    reason: str | None


@row
class CgroupDir(Row):
    """One live directory of the memory hierarchy. `path` is relative to the hierarchy's root.

    `children` is the number of child directories (`st_nlink` - 2); the inode is the cgroup's id,
    so two directories of one path at different times can be told apart.
    """

    entity = ("path",)

    path: str
    inode: int
    children: int


@row
class CgroupStat(Row):
    """`cgroup.stat` (v2) at a live directory."""

    entity = ("path",)

    path: str
    descendants: int
    dying: int
    dying_memory: int | None


@row
class RootCgroupStat(Row):
    """`cgroup.stat` (v2) of the hierarchy's root, where memory is on it: the whole node's."""

    descendants: int
    dying: int
    dying_memory: int | None


@row
class CgroupThrottle(Row):
    """`cpu.stat` of one cgroup: how often its CPU quota stopped it."""

    entity = ("path",)

    path: str
    periods: int
    throttled: int
    throttled_us: int


@row
class CgroupCpu(Row):
    """CPU time one cgroup and all below it used; `waited_us` is the time in which one of its tasks
    waited for a core (`cpu.pressure`, v2), `None` if the kernel does not report it."""

    entity = ("path",)

    path: str
    used_us: int
    waited_us: int | None


@row
class CgroupMemory(Row):
    """Limit and use of one cgroup that has a limit of its own, and what happened at that limit.

    `hits` is how often it was reached, `killed` how many processes the OOM killer ended in it; both
    count since it was created.
    """

    entity = ("path",)

    path: str
    limit_bytes: int
    used_bytes: int
    hits: int | None
    killed: int | None


@row
class CgroupResidual(Row):
    """Memory still charged to removed children of a live directory."""

    entity = ("path",)

    path: str
    bytes: int
    method: str


@row
class CgroupEvent(Row):
    """A creation ("mkdir"), a removal ("rmdir") or a release, from tracefs.

    `cgroup_id` joins the three; paths repeat. `mono_ns` is the kernel's CLOCK_MONOTONIC.
    """

    kind: str
    cgroup_id: int
    path: str
    mono_ns: int


@row
class CgroupEventGap(Row):
    """Events the trace buffer lost (overruns) since the last read."""

    lost: int


@row
class OfflineMemcg(Row):
    """A dying memcg named by `lru_gen`; `path` is from before its removal."""

    path: str


@row
class WalkCost(Row):
    """What reading a walking file costs, measured on a small subtree and extrapolated.

    `measured_s` is the time one read of `path` took for `memcgs` memory cgroups; `estimate_s` is
    what the same file at the root is expected to take; `root_s` is what it did take, `None` if it
    was skipped (`note` says why).
    """

    file: str
    path: str
    memcgs: int
    measured_s: float
    estimate_s: float
    root_s: float | None
    note: str
