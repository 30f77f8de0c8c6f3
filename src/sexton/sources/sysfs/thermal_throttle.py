"""`/sys/devices/system/cpu/cpu*/thermal_throttle`: cores that were slowed down because of heat.

Documented in the kernel's Documentation/ABI/testing/sysfs-devices-system-cpu. Files of one core::

    core_throttle_count 12            core_throttle_total_time_ms 3140
    package_throttle_count 48         package_throttle_total_time_ms 10873

Quirks: Intel only, and not in most virtual machines. The times came with 5.6. A package's count is
the same on all its cores; all are read, since which cores share a package is in other files. The
power limit has its own counts (`*_power_limit_count`), which are no sign of heat and are not read.
At most `MOST` cores.

>>> parse({"core_throttle_count": "12\\n", "package_throttle_count": "48\\n"}, 3)
CoreThrottle(cpu=3, core_events=12, package_events=48, core_ms=None, package_ms=None)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sexton.errors import SourceAbsent
from sexton.host.reader import text
from sexton.model.rows.hardware import CoreThrottle
from sexton.sources.registry import Reading, source
from sexton.sources.sysfs.edac import number

PATH = "/sys/devices/system/cpu"
MOST = 1024
_CPU = re.compile(r"cpu(\d{1,5})", re.ASCII)
_COUNTS = ("core_throttle_count", "package_throttle_count")
_TIMES = ("core_throttle_total_time_ms", "package_throttle_total_time_ms")


def parse(files: Mapping[str, str], cpu: int) -> CoreThrottle:
    """The row of one core from the content of its files."""
    core, package = (number(files[name], f"{PATH}/cpu{cpu}/{name}") for name in _COUNTS)
    times = [
        number(files[name], f"{PATH}/cpu{cpu}/{name}") if name in files else None for name in _TIMES
    ]
    return CoreThrottle(cpu, core, package, times[0], times[1])


# Heat changes slowly, and the kernel log reports it at once.
@source(f"{PATH}/cpu*/thermal_throttle", rows=(CoreThrottle,), period_s=60.0)
class Throttles(Reading):
    """A row per core."""

    def collect(self) -> Iterator[CoreThrottle]:
        found = False
        cores = sorted(int(name[3:]) for name in filter(_CPU.fullmatch, self._files.names(PATH)))
        for cpu in cores[:MOST]:
            files = self._contents(f"{PATH}/cpu{cpu}/thermal_throttle")
            if len(files) >= len(_COUNTS):
                found = True
                yield parse(files, cpu)
            elif not found and cpu > 0:  # neither of the first two: this machine has none
                break
        if not found:
            raise SourceAbsent(
                PATH, "this processor or hypervisor has no thermal throttle counters"
            )

    def _contents(self, folder: str) -> dict[str, str]:
        files: dict[str, str] = {}
        for name in (*_COUNTS, *_TIMES):
            try:
                files[name] = text(self._files, f"{folder}/{name}")
            except SourceAbsent:
                if name in _COUNTS:
                    return {}
        return files
