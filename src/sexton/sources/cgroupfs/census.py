"""Live and dying memory cgroups: their number, and the live paths.

On v2 `cgroup.stat` counts them; on v1 it is ``/proc/cgroups`` minus the directories.

Documented in the kernel's Documentation/admin-guide/cgroup-v2.rst, "cgroup.stat", and in
Documentation/admin-guide/cgroup-v1/cgroups.rst. The root's `cgroup.stat` on 6.1, 62 of whose
cgroups are dead and not released::

    nr_descendants 15
    nr_dying_descendants 62

and ``/proc/cgroups`` of the same crash loop on v1, against 16 directories of that hierarchy::

    #subsys_name    hierarchy   num_cgroups enabled
    memory          6           81          1

Quirks: v1 has no `cgroup.stat`. `num_cgroups` includes dying cgroups, and counts the whole node in
any namespace, so the subtraction is made only where `sexton.sources.cgroupfs.layout` finds both
sides comparable; a missing row is not zero. Directories come and go during the walk, so the number
is read before and after it, and everything once more if it changed. Since about 6.12
`nr_dying_subsys_memory` counts the dying *memory* states, which is what burns cores; before, every
dying cgroup of the hierarchy is counted. A cgroup is also "dying" for the few milliseconds that an
ordinary removal takes: one reading is not a leak.

The directories are rows too, so that creations and removals show by inode, without tracefs.

>>> from sexton.sources.cgroupfs.stat import parse
>>> parse("nr_descendants 15\\nnr_dying_descendants 62\\n", "/").dying
62
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceDenied
from sexton.host.host import Host
from sexton.host.reader import Directory, text, walk
from sexton.model.frozen import Frozen, frozen
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir, CgroupStat
from sexton.model.text import count
from sexton.sources.cgroupfs.layout import Layout, MemoryReading, controller
from sexton.sources.cgroupfs.stat import parse
from sexton.sources.registry import source

#: Rows of directories beyond this are not kept, to save memory.
MOST_DIRECTORIES = 50_000
#: Age up to which other sources of the same round reuse a census.
RECENT_S = 2.0


@frozen
class Walked(Frozen):
    """The directories of a hierarchy: how many, and the first `MOST_DIRECTORIES` of them."""

    count: int
    kept: list[Directory]


class _Counted(NamedTuple):
    """One walk with the kernel's number on both sides of it."""

    before: int | None
    walked: Walked
    after: int | None

    @property
    def moved(self) -> bool:
        return self.before != self.after


@source("/proc/cgroups, /sys/fs/cgroup", rows=(CgroupCensus, CgroupDir), period_s=5.0, deadline_s=3)
class Census(MemoryReading):
    """One `CgroupCensus`, and a `CgroupDir` per live directory."""

    def collect(self) -> Iterator[Row]:
        census, walked = take(self._host, self._layout)
        yield census
        for path, inode, children in walked.kept:
            yield CgroupDir(path, inode, children)


def take(host: Host, layout: Layout) -> tuple[CgroupCensus, Walked]:
    """The census, and the directories it is based on."""
    taken = _take(host, layout)
    host.memo["census"] = (host.moment, time.monotonic(), taken)
    return taken


def _take(host: Host, layout: Layout) -> tuple[CgroupCensus, Walked]:
    if layout.mount_point is None:
        memory = controller(host, "memory")
        total = memory.cgroups if memory is not None and layout.version is not None else None
        reason = f"{layout.reason}; {layout.advice}"
        return _row(layout, "node", (total, None, None), "/proc/cgroups", reason), Walked(0, [])
    try:
        status = _top_stat(host, layout)
        counted = _count_once(host, layout)
        if counted.moved and status is None and layout.comparable:
            counted = _count_once(host, layout)
    except SourceDenied as error:
        reason = f"cannot list {error.path}: {error.detail}; run as root"
        return _row(layout, "subtree", (None, None, None), "none", reason), Walked(0, [])
    if status is not None:
        row = _by_stat(layout, status, counted.walked)
    elif not layout.comparable:
        row = _incomparable(layout, counted)
    else:
        row = _by_subtraction(layout, counted)
    return row, counted.walked


def recent(host: Host, layout: Layout) -> tuple[CgroupCensus, Walked]:
    """The last census if it is recent, else a new one; for sources that need only its size."""
    known = host.memo.get("census")
    if known is not None and known[0] == host.moment and time.monotonic() - known[1] < RECENT_S:
        found: tuple[CgroupCensus, Walked] = known[2]
        return found
    return take(host, layout)


def walk_directories(host: Host, top: str) -> Walked:
    """Count every directory under `top`, keep the first `MOST_DIRECTORIES`."""
    number = 0
    kept: list[Directory] = []
    for directory in walk(host.files, top):
        number += 1
        if number <= MOST_DIRECTORIES:
            kept.append(directory)
    return Walked(number, kept)


def _top_stat(host: Host, layout: Layout) -> CgroupStat | None:
    """The mount's own `cgroup.stat`; `None` on v1 and before 4.14."""
    if layout.version != 2:
        return None
    path = f"{layout.mount_point}/cgroup.stat"
    try:
        return parse(text(host.files, path), "/")
    except SourceAbsent:
        return None


def _count_once(host: Host, layout: Layout) -> _Counted:
    before = controller(host, "memory")
    walked = walk_directories(host, layout.mount_point or "/")
    after = controller(host, "memory")
    return _Counted(before.cgroups if before else None, walked, after.cgroups if after else None)


def _by_stat(layout: Layout, status: CgroupStat, walked: Walked) -> CgroupCensus:
    live = status.descendants + 1  # the root has a directory, too
    dying = status.dying if status.dying_memory is None else status.dying_memory
    counted = "descendants" if status.dying_memory is None else "subsys_memory"
    scope = "node" if layout.comparable else "subtree"
    reason = _join(_because(layout), _cut(walked))
    return _row(
        layout, scope, (live + dying, live, dying), f"cgroup.stat nr_dying_{counted}", reason
    )


def _by_subtraction(layout: Layout, counted: _Counted) -> CgroupCensus:
    method = "/proc/cgroups minus directories"
    live = counted.walked.count
    cut = _cut(counted.walked)
    if counted.before is None or counted.after is None:
        reason = "/proc/cgroups has no memory row on this kernel, and there is no cgroup.stat"
        return _row(layout, "node", (None, live, None), method, _join(reason, cut))
    low, high = sorted((counted.before, counted.after))
    # The lower of the two, so that a burst of creations during the walk invents no zombie.
    dying = low - live
    if dying >= 0:
        note = (
            f"the count moved between {low:,} and {high:,} during the walk" if low != high else None
        )
        return _row(layout, "node", (live + dying, live, dying), method, _join(note, cut))
    directories = count(live, "live directory", "live directories")
    short = f"/proc/cgroups says {low:,} to {high:,} against {directories}"
    if high - live >= 0:
        note = f"{short}: cgroups came and went during the count, so 0 is assumed"
        return _row(layout, "node", (live, live, 0), method, _join(note, cut))
    reason = f"{short}: not the same tree, or too much churn; count again"
    return _row(layout, "node", (low, live, None), method, _join(reason, cut))


def _incomparable(layout: Layout, counted: _Counted) -> CgroupCensus:
    live = counted.walked.count
    reason = _join(_because(layout, counted), _cut(counted.walked))
    return _row(layout, "subtree", (None, live, None), "directories of this subtree", reason)


def _because(layout: Layout, counted: _Counted | None = None) -> str | None:
    if layout.comparable:
        return None
    if counted is None or counted.after is None:
        return f"{layout.reason}: these numbers are the subtree's; {layout.advice}"
    directories = count(counted.walked.count, "directory", "directories")
    pair = f"{counted.after:,} node-wide against {directories}"
    return f"{layout.reason}: {pair} are not comparable; {layout.advice}"


def _cut(walked: Walked) -> str | None:
    if walked.count <= MOST_DIRECTORIES:
        return None
    return f"only the first {MOST_DIRECTORIES:,} of {walked.count:,} directories were kept"


def _join(*notes: str | None) -> str | None:
    return "; ".join(note for note in notes if note) or None


def _row(
    layout: Layout,
    scope: str,
    numbers: tuple[int | None, int | None, int | None],
    method: str,
    reason: str | None,
) -> CgroupCensus:
    total, live, dying = numbers
    return CgroupCensus(
        hierarchy=layout.hierarchy,
        version=layout.version,
        mount_point=layout.mount_point,
        scope=scope,
        total=total,
        live=live,
        dying=dying,
        method=method,
        reason=reason,
    )
