"""`/proc/vmstat`: memory counters: free pages, reclaim, faults, compaction.

The names are `vmstat_text` in the kernel's mm/vmstat.c; proc.rst mentions the file only in passing.
An excerpt::

    nr_free_pages 5914213
    pgscan_direct 0
    allocstall_normal 0
    compact_stall 0

Quirks: names starting with `nr_` are gauges (pages, not bytes), nearly all others count since
boot. Names differ between kernels (`allocstall` became `allocstall_dma`, `_normal`, …): a missing
name is unknown, not zero.

>>> [(row.name, row.value) for row in parse("nr_free_pages 5914213\\npgscan_direct 0\\n")]
[('nr_free_pages', 5914213), ('pgscan_direct', 0)]
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceMalformed
from sexton.model.rows.memory import VmCounter
from sexton.sources.registry import file_source

PATH = "/proc/vmstat"


@file_source(PATH, rows=(VmCounter,), period_s=1.0)
def parse(text: str) -> Iterator[VmCounter]:
    """One row per line."""
    for number, line in enumerate(text.splitlines(), 1):
        name, _, value = line.partition(" ")
        if not name:
            continue
        try:
            yield VmCounter(name, int(value))
        except ValueError:
            raise SourceMalformed(PATH, number, "not a name and a number") from None
