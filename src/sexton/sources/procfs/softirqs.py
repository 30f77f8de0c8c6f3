"""`/proc/softirqs`: softirqs per kind and core since boot.

Documented in the kernel's Documentation/filesystems/proc.rst, "softirqs". An excerpt::

                        CPU0       CPU1
              HI:          0          0
           TIMER:      12104      14526
          NET_RX:       4785       6432
           BLOCK:          0     142462

Quirks: the columns are the *possible* cores, not the online ones, so an offline core shows with
numbers that do not change; `/proc/stat` lists the online ones. The counters are 32 bits wide and
wrap. Kinds that the row does not name (`HI`, `IRQ_POLL`) are skipped, kinds that a kernel does
not have are `None`.

>>> text = "     CPU0 CPU1\\n NET_RX: 4785 6432\\n"
>>> [(row.cpu, row.net_rx, row.rcu) for row in parse(text)]
[(0, 4785, None), (1, 6432, None)]
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceMalformed
from sexton.model.rows.cpu import SoftirqCount
from sexton.sources.registry import file_source

PATH = "/proc/softirqs"
KINDS = ("TIMER", "NET_TX", "NET_RX", "BLOCK", "TASKLET", "SCHED", "HRTIMER", "RCU")


@file_source(PATH, rows=(SoftirqCount,), period_s=1.0)
def parse(text: str) -> Iterator[SoftirqCount]:
    """One row per possible core."""
    lines = text.splitlines()
    cpus = header_cpus(PATH, lines[0] if lines else "")
    counts: dict[str, list[int]] = {}
    for number, line in enumerate(lines[1:], 2):
        kind, _, rest = line.partition(":")
        kind = kind.strip()
        if kind not in KINDS:
            continue
        try:
            counts[kind] = [int(column) for column in rest.split()]
        except ValueError:
            raise SourceMalformed(PATH, number, f"{kind} counts are not numbers") from None
        if len(counts[kind]) != len(cpus):
            columns = len(counts[kind])
            raise SourceMalformed(PATH, number, f"{columns} columns for {len(cpus)} cores")
    for index, cpu in enumerate(cpus):
        yield SoftirqCount(
            cpu, *(counts[kind][index] if kind in counts else None for kind in KINDS)
        )


def header_cpus(path: str, line: str) -> list[int]:
    """The cores of a table's columns: ``CPU0 CPU2`` is 0 and 2.

    >>> header_cpus("/proc/interrupts", "      CPU0       CPU2  ")
    [0, 2]
    """
    names = line.split()
    if not names or not all(name.startswith("CPU") for name in names):
        raise SourceMalformed(path, 1, "no header with the cores")
    try:
        return [int(name[3:]) for name in names]
    except ValueError:
        raise SourceMalformed(path, 1, "a core without a number") from None
