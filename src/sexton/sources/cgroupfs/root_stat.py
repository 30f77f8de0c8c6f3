"""Live and dying cgroups of the whole node (v2 only): the root's `cgroup.stat`.

Documented in the kernel's Documentation/admin-guide/cgroup-v2.rst, "Core Interface Files". The file
``/sys/fs/cgroup/cgroup.stat`` on 6.1 while a unit crash-loops::

    nr_descendants 15
    nr_dying_descendants 62

and some lines of the same on 6.12, which counts per controller as well::

    nr_descendants 16
    nr_subsys_memory 17
    nr_dying_descendants 55
    nr_dying_subsys_memory 55

It walks nothing and costs the same with 70,000 zombies as with none, so a recorder reads it every
second and knows the exact second in which the count rose. Owners come from `cgroupfs.stat`, which
descends the tree, and from tracefs.

Quirks: it counts the cgroups of the *v2* hierarchy. Where memory is on v1 a v2 hierarchy may be
mounted too (systemd's "hybrid"), and its root says ``nr_dying_descendants 0`` beside a hundred dead
memory cgroups; so rows are given only where memory is on v2. On v1 the raw number is `num_cgroups`
of ``/proc/cgroups`` (`procfs.cgroups`). In a cgroup namespace the same path is only a subtree's: no
rows. The root itself is not among its descendants. Before 6.12 `dying_memory` is `None`, and
`dying` counts every dead cgroup, including those without memory state.
The file exists since 4.14.

>>> parse("nr_descendants 15\\nnr_dying_descendants 62\\n")
RootCgroupStat(descendants=15, dying=62, dying_memory=None)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from sexton.errors import SourceAbsent
from sexton.host.reader import text
from sexton.model.rows.cgroup import RootCgroupStat
from sexton.sources.cgroupfs import stat
from sexton.sources.cgroupfs.layout import read_layout
from sexton.sources.registry import Reading, source

PATH = "/sys/fs/cgroup/cgroup.stat"
ON_V1 = "memory is on cgroup v1, which has no cgroup.stat; /proc/cgroups is used instead"


def parse(content: str, path: str = PATH) -> RootCgroupStat:
    """The one row."""
    found = stat.parse(content, path.removesuffix(f"/{stat.PATH}"))
    return RootCgroupStat(found.descendants, found.dying, found.dying_memory)


@source(PATH, rows=(RootCgroupStat,), period_s=1.0)
class RootStat(Reading):
    """One row per reading; the first one locates the root."""

    def collect(self) -> Iterable[RootCgroupStat]:
        return [parse(text(self._files, self._path), self._path)]

    @cached_property
    def _path(self) -> str:
        layout = read_layout(self._host)
        if layout.version == 1:  # nothing is missing: procfs.cgroups has the count
            raise SourceAbsent(PATH, ON_V1, grant="")
        if layout.mount_point is None or not layout.comparable:
            why = layout.reason or "no cgroup v2 here"
            raise SourceAbsent(PATH, f"{why}, so the root cannot be read", grant=layout.advice)
        return f"{layout.mount_point}/{stat.PATH}"
