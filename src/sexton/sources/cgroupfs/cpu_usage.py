"""`cpuacct.usage`, `cpu.stat`: CPU time used by each of the upper cgroups.

Documented in the kernel's Documentation/admin-guide/cgroup-v1/cpuacct.rst (v1, nanoseconds) and
Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files" (v2, microseconds). One cgroup's
`cpuacct.usage` on 6.18::

    4380211533

and `cpu.stat` with `cpu.pressure` on 6.1::

    usage_usec 4380211          some avg10=41.10 avg60=12.02 avg300=2.80 total=9120333
    user_usec 1402233           full avg10=0.00 avg60=0.00 avg300=0.00 total=0
    system_usec 2977978

Quirks: a cgroup's time includes that of all below it, and of those that were removed. `cpu.stat` of
v2 counts without the `cpu` controller too, and each read flushes the cgroup's statistics, which is
not free. So the first `DEEP` levels are read, parents first, at most `MOST_READS` cgroups and for
`MOST_S` seconds of CPU time (by the clock a starved node would get nothing read, just when it
matters). `cpu.pressure` came with 4.20 and needs CONFIG_PSI; v1 has no such file.

>>> parse("usage_usec 4380211\\nuser_usec 1402233\\n", "/a", "some avg10=0.00 total=912\\n")
CgroupCpu(path='/a', used_us=4380211, waited_us=912)
>>> parse("4380211533\\n", "/a")
CgroupCpu(path='/a', used_us=4380211, waited_us=None)
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import islice

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.reader import text, walk
from sexton.model.rows.cgroup import CgroupCpu
from sexton.sources.cgroupfs.layout import cgroup_mounts, controller_mount
from sexton.sources.cgroupfs.stat import flat_keyed
from sexton.sources.registry import Reading, source

PATTERN = "/sys/fs/cgroup/**/cpuacct.usage"
DEEP = 4
MOST_READS = 100
MOST_S = 0.1
_WANTED = frozenset({"usage_usec"})
_SOME = re.compile(r"^some [^\n]{0,200}?total=(\d{1,18})$", re.MULTILINE | re.ASCII)


def parse(content: str, path: str, pressure: str = "") -> CgroupCpu:
    """The row of the cgroup at `path`: `cpuacct.usage`, or `cpu.stat` with its `cpu.pressure`."""
    nanoseconds = content.strip()
    if nanoseconds.isascii() and nanoseconds.isdigit() and len(nanoseconds) < 20:
        return CgroupCpu(path, int(nanoseconds) // 1000, None)
    used = flat_keyed(content, _WANTED, f"{path}/cpu.stat").get("usage_usec")
    if used is None:
        raise SourceMalformed(f"{path}/cpu.stat", 0, "no usage_usec")
    some = _SOME.search(pressure)
    return CgroupCpu(path, used, None if some is None else int(some[1]))


@source(PATTERN, rows=(CgroupCpu,), period_s=5.0, deadline_s=3.0)
class CpuUsage(Reading):
    """A row per cgroup of the upper levels."""

    def collect(self) -> Iterator[CgroupCpu]:
        top, version = controller_mount(cgroup_mounts(self._host), "cpuacct", PATTERN)
        return self._rows(top, "cpuacct.usage" if version == 1 else "cpu.stat")

    def _rows(self, top: str, name: str) -> Iterator[CgroupCpu]:
        until = time.thread_time() + MOST_S
        below = islice(walk(self._files, top, depth=DEEP), 1, MOST_READS + 1)
        for path, _, _ in below:
            if time.thread_time() > until and self._host.live:
                return
            try:
                used = text(self._files, f"{top}{path}/{name}")
            except SourceAbsent:  # removed since
                continue
            yield parse(used, path, self._pressure(f"{top}{path}") if name == "cpu.stat" else "")

    def _pressure(self, place: str) -> str:
        try:
            return text(self._files, f"{place}/cpu.pressure")
        except SourceAbsent:
            return ""
