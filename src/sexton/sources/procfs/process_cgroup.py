"""`/proc/PID/cgroup`: the memory cgroup of each process, even if removed.

Documented in cgroups(7). Excerpts, hybrid and v2::

    9:memory:/system.slice/ecs.service       0::/system.slice/ecs.service
    8:pids:/system.slice/ecs.service
    0::/system.slice/ecs.service

The line of the `memory` controller is used (it may share its hierarchy, ``cpu,memory``), else the
``0::`` line: a controller that is on no v1 hierarchy is on v2. Quirks: on v2 the kernel adds
`` (deleted)`` to the path of a cgroup that was removed while the process (a defunct one, say) is
still in it; on v1 it does not. A directory may also have that name. A path cannot contain a
newline, since cgroupfs refuses it. Paths are relative to the *reader's* cgroup namespace,
and may start with ``/..``. Kernel threads are in ``/``.

>>> parse(7, "8:pids:/a\\n4:cpu,memory:/b:c\\n0::/d\\n")
ProcessCgroup(pid=7, path='/b:c', deleted=False)
>>> parse(7, "0::/user.slice/session-3.scope (deleted)\\n")
ProcessCgroup(pid=7, path='/user.slice/session-3.scope', deleted=True)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sexton.errors import SourceMalformed
from sexton.host.host import Host
from sexton.model.rows.task import ProcessCgroup
from sexton.sources.procfs.tasks import each_process
from sexton.sources.registry import Reading, source

PATH = "/proc/*/cgroup"
_MARK = " (deleted)"
#: Names of cgroups that are often left behind empty: scopes and containers.
_LEFT_BEHIND = re.compile(
    r"\.scope$|^lxc\.|pod[0-9a-f]{8}|(containerd|nerdctl|crio|libpod|docker)-|[0-9a-f]{64}"
)
_MOST_BYTES = 1 << 16  # a line per hierarchy, each at most a path of 4096 bytes


@source(PATH, rows=(ProcessCgroup,), period_s=0.0)
class ProcessCgroups(Reading):
    """A row per process."""

    def collect(self) -> Iterator[ProcessCgroup]:
        if not self._host.thorough and not _has_scopes(self._host):
            return
        names = self._files.names("/proc")
        for path, content in each_process(names, "cgroup", self._files.read, _MOST_BYTES):
            found = parse(int(path.split("/")[2]), content.decode("utf-8", "surrogateescape"))
            if found is not None:
                yield found


def _has_scopes(host: Host) -> bool:
    """Is there a directory whose processes matter?

    Scopes and containers are the ones that are left behind empty. If the current census has none of
    them, a thousand small reads are saved; without a census, everything is read.
    """
    known = host.memo.get("census")
    if known is None or known[0] != host.moment:
        return True
    names = (directory.path.rpartition("/")[2] for directory in known[2][1].kept)
    return any(map(_LEFT_BEHIND.search, names))


def parse(pid: int, content: str) -> ProcessCgroup | None:
    """The process's place in the memory hierarchy; `None` if it has none."""
    unified: str | None = None
    for number, line in enumerate(content.split("\n"), 1):
        if not line:
            continue
        hierarchy, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon or not hierarchy.isdecimal():
            raise SourceMalformed(f"/proc/{pid}/cgroup", number, "not hierarchy:controllers:path")
        if "memory" in controllers.split(","):
            return _row(pid, path)
        if hierarchy == "0" and not controllers:
            unified = path
    return None if unified is None else _row(pid, unified)


def _row(pid: int, path: str) -> ProcessCgroup:
    return ProcessCgroup(pid, path.removesuffix(_MARK), path.endswith(_MARK))
