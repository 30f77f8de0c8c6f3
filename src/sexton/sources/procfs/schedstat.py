"""`/proc/schedstat`: run time of each core, and time tasks waited for it.

Documented in the kernel's Documentation/scheduler/sched-stats.rst. An excerpt (6.1)::

    version 15
    timestamp 4294912474
    cpu0 0 0 0 0 0 0 30645323238 12193821310 11544
    domain0 3 0 0 0 0 0 0 0 …

Of a core's nine numbers the last three are kept: nanoseconds run, nanoseconds waited (by all
tasks that were ready to run there), time slices. Quirks: the file needs CONFIG_SCHEDSTATS and is
absent on many kernels. The first six numbers do not change unless the sysctl
`kernel.sched_schedstats` is 1, the last three always count. Versions 15 to 17 differ in the
`domain` lines only; 14 and older had other columns and are refused. A newer version is read as
long as a core's line has its nine numbers.

>>> list(parse("version 15\\ncpu1 0 0 0 0 0 0 33147192165 11692553131 10554\\n"))
[RunQueue(cpu=1, run_ns=33147192165, wait_ns=11692553131, timeslices=10554)]
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceMalformed
from sexton.model.rows.cpu import RunQueue
from sexton.sources.registry import file_source

PATH = "/proc/schedstat"
_OLDEST = 15


@file_source(PATH, rows=(RunQueue,), period_s=1.0, grant="a kernel built with CONFIG_SCHEDSTATS=y")
def parse(text: str) -> Iterator[RunQueue]:
    """One row per online core."""
    for number, line in enumerate(text.splitlines(), 1):
        name, *columns = line.split() or [""]
        if name == "version":
            _check(number, columns)
        if not name.startswith("cpu"):
            continue
        try:
            cpu = int(name[3:])
            run_ns, wait_ns, timeslices = (int(column) for column in columns[6:9])
        except ValueError:
            raise SourceMalformed(PATH, number, "not a core's nine numbers") from None
        yield RunQueue(cpu, run_ns, wait_ns, timeslices)


def _check(number: int, columns: list[str]) -> None:
    try:
        version = int(columns[0])
    except (IndexError, ValueError):
        raise SourceMalformed(PATH, number, "no version number") from None
    if version < _OLDEST:
        raise SourceMalformed(PATH, number, f"version {version}, at least {_OLDEST} expected")
