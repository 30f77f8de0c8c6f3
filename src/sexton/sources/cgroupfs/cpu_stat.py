"""`cpu.stat`: how often each cgroup was throttled by its CPU quota.

Documented in the kernel's Documentation/scheduler/sched-bwc.rst (v1) and
Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files". v1 counts in nanoseconds::

    nr_periods 0
    nr_throttled 0
    throttled_time 0

v2 in microseconds, among other numbers::

    usage_usec 4380211
    user_usec 1402233
    system_usec 2977978
    nr_periods 1200
    nr_throttled 37
    throttled_usec 1510000

Quirks: the root has no quota, hence (on v2) no `nr_periods`; neither has a cgroup whose `cpu`
controller is off. On v2 each read flushes the cgroup's statistics in the kernel, which is not
free; `cpu.max` is, so on a live node only cgroups with a quota are read. A cgroup that never ran a
period under a quota gives no row. At most `MOST_READS` cgroups are read.

>>> parse("nr_periods 5\\nnr_throttled 2\\nthrottled_time 31000\\n", "/a")
CgroupThrottle(path='/a', periods=5, throttled=2, throttled_us=31)
>>> parse("usage_usec 4380211\\n", "/b") is None
True
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.reader import text, walk
from sexton.model.rows.cgroup import CgroupThrottle
from sexton.sources.cgroupfs.layout import cgroup_mounts, controller_mount
from sexton.sources.cgroupfs.stat import flat_keyed
from sexton.sources.registry import Reading, source

PATH = "cpu.stat"
PATTERN = f"/sys/fs/cgroup/**/{PATH}"
MOST_READS = 5_000
_WANTED = frozenset({"nr_periods", "nr_throttled", "throttled_time", "throttled_usec"})


def parse(content: str, path: str) -> CgroupThrottle | None:
    """The row of the cgroup at `path`; `None` if it never ran under a quota."""
    found = flat_keyed(content, _WANTED, f"{path}/{PATH}")
    periods = found.get("nr_periods", 0)
    if periods <= 0:
        return None
    throttled = found.get("nr_throttled")
    microseconds = found.get("throttled_usec")
    if microseconds is None and "throttled_time" in found:
        microseconds = found["throttled_time"] // 1000
    if throttled is None or microseconds is None:
        raise SourceMalformed(f"{path}/{PATH}", 0, "nr_periods without nr_throttled and its time")
    return CgroupThrottle(path, periods, throttled, microseconds)


@source(PATTERN, rows=(CgroupThrottle,), period_s=5.0, deadline_s=2.0)
class CpuStats(Reading):
    """A row per cgroup that has run under a quota."""

    def collect(self) -> Iterator[CgroupThrottle]:
        top, version = controller_mount(cgroup_mounts(self._host), "cpu", PATTERN)
        return self._rows(top, by_quota=version == 2 and self._host.live)

    def _rows(self, top: str, by_quota: bool) -> Iterator[CgroupThrottle]:
        for path, _, _ in islice(walk(self._files, top), MOST_READS):
            try:
                if by_quota and text(self._files, f"{top}{path}/cpu.max").startswith("max"):
                    continue
                row = parse(text(self._files, f"{top}{path}/{PATH}"), path)
            except SourceAbsent:  # removed since, or the controller is off there
                continue
            if row is not None:
                yield row
