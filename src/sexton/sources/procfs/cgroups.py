"""`/proc/cgroups`: hierarchy and number of cgroups of each controller.

Documented in the kernel's Documentation/admin-guide/cgroup-v1/cgroups.rst and in cgroups(7).
An excerpt (6.1, hybrid: `memory` on a v1 hierarchy of its own)::

    #subsys_name	hierarchy	num_cgroups	enabled
    cpuset	2	1	1
    memory	6	115	1

Quirks: `num_cgroups` includes dying cgroups: minus the hierarchy's live directories it is the
number of dying memory cgroups on v1. It is **not namespaced**: in a container it still counts the
whole node. Hierarchy 0 means v2 (or nowhere). Newer kernels omit controllers without v1 code; on
7.x there is no `memory` row at all, which is not zero. A controller named in `cgroup_disable=` has
`enabled` 0.

>>> list(parse("#subsys_name\\thierarchy\\tnum_cgroups\\tenabled\\nmemory\\t6\\t115\\t1\\n"))
[Controller(name='memory', hierarchy=6, cgroups=115, enabled=True)]
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceMalformed
from sexton.model.rows.cgroup import Controller
from sexton.sources.registry import file_source

PATH = "/proc/cgroups"


@file_source(PATH, rows=(Controller,), period_s=1.0)
def parse(text: str) -> Iterator[Controller]:
    """One row per controller the kernel lists."""
    for number, line in enumerate(text.splitlines(), 1):
        columns = line.split()
        if not columns or line.startswith("#"):
            continue
        try:
            hierarchy, cgroups, enabled = (int(column) for column in columns[1:4])
        except ValueError:
            raise SourceMalformed(PATH, number, "not a controller's three numbers") from None
        yield Controller(columns[0], hierarchy, cgroups, enabled != 0)
