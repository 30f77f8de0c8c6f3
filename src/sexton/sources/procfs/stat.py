"""`/proc/stat`: CPU time of each core, and how many tasks are ready.

Documented in the kernel's Documentation/filesystems/proc.rst, "Miscellaneous kernel statistics".
An excerpt::

    cpu  2255 34 2290 22625563 6290 127 456 0 0 0
    cpu0 1132 34 1441 11311718 3675 127 438 0 0 0
    cpu1 1123 0 849 11313845 2614 0 18 0 0 0
    intr 114930548 113199788 3 0 5 263 …
    procs_running 3
    procs_blocked 0

Times are in USER_HZ ticks since boot, and a tick is 10 ms: USER_HZ is 100 on every architecture
Linux offers to user space. Quirks: `guest` is already inside `user`. `iowait` may go *down*
(proc.rst says so); `steal` came with 2.6.11. Offline cores have no line, so numbers may have holes.
The first `cpu` line is the sum over all cores, the average that hides a saturated core: not kept.
`procs_running` counts tasks on a core and those that wait for one at the moment of the read (the
reader is among them), on the whole node and in any namespace.

>>> [(row.cpu, row.system_ms) for row in parse("cpu0 1132 34 1441 11311718 3675 127 438 0 0 0\\n")]
[(0, 14410)]
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceMalformed
from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes, ReadyTasks
from sexton.sources.registry import file_source

PATH = "/proc/stat"
TICK_MS = 10


@file_source(PATH, rows=(CoreTimes, ReadyTasks), period_s=1.0)
def parse(text: str) -> Iterator[Row]:
    """One row per online core, and one of the tasks that are ready."""
    tasks: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("procs_"):
            name, _, value = line.partition(" ")
            if not value.strip().isdecimal() or len(value) > 18:
                raise SourceMalformed(PATH, number, "not a number of tasks")
            tasks[name] = int(value)
        if not line.startswith("cpu") or line.startswith("cpu "):
            continue
        name, *columns = line.split()
        try:
            cpu = int(name[3:])
            ticks = [int(column) * TICK_MS for column in columns[:8]]
        except ValueError:
            raise SourceMalformed(PATH, number, "not a core's times") from None
        if len(ticks) < 7:
            raise SourceMalformed(PATH, number, f"{len(ticks)} columns, at least 7 expected")
        user, nice, system, idle, iowait, irq, softirq, *rest = ticks
        steal = rest[0] if rest else 0
        yield CoreTimes(cpu, user, nice, system, idle, iowait, irq, softirq, steal)
    if "procs_running" in tasks:
        yield ReadyTasks(tasks["procs_running"], tasks.get("procs_blocked"))
