"""`/proc/net/softnet_stat`: packets processed and dropped by each core.

Written by `softnet_seq_show` (net/core/net-procfs.c): one line per online core, in hexadecimal::

    0000000a 00000000 00000000 00000000 … 00000000 00000000 00000000 00000000
    0000255a 00000000 00000003 00000000 … 00000000 00000000 00000001 00000000

Columns, from 0: packets processed, packets dropped because the backlog was full, rounds that ran
out of budget or time (`time_squeeze`), six unused, (9) wake-ups by receive packet steering, (10)
flow limit drops, (11) the backlog's length now, (12) **the core's number**.

Quirks: offline cores have no line. Older kernels end after column 8, 9 or 10: there the line number
is used as the core's number, which is right as long as no lower core is offline; the columns they
lack are `None`. The numbers are node-wide, not per network namespace, 32 bits
wide, and wrap.

>>> rows = parse("0000255a 00000001 00000003" + " 00000000" * 9 + " 00000007\\n")
>>> [(row.cpu, row.processed, row.dropped, row.time_squeeze) for row in rows]
[(7, 9562, 1, 3)]
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceMalformed
from sexton.model.rows.cpu import SoftnetCpu
from sexton.sources.registry import file_source

PATH = "{net}/softnet_stat"
_SHOWN = "/proc/net/softnet_stat"


@file_source(PATH, rows=(SoftnetCpu,), period_s=1.0)
def parse(text: str) -> Iterator[SoftnetCpu]:
    """One row per online core."""
    for number, line in enumerate(text.splitlines(), 1):
        columns = line.split()
        if not columns:
            continue
        try:
            values = [int(column, 16) for column in columns[:13]]
        except ValueError:
            raise SourceMalformed(_SHOWN, number, "not hexadecimal numbers") from None
        if max(values) >> 32 or min(values) < 0:
            raise SourceMalformed(_SHOWN, number, "more than the 32 bits of a counter")
        if len(values) < 3:
            raise SourceMalformed(_SHOWN, number, f"{len(values)} columns, at least 3 expected")
        processed, dropped, squeezed = values[:3]
        rps, flow_limit, backlog, cpu = (
            values[column] if column < len(values) else None for column in range(9, 13)
        )
        place = number - 1 if cpu is None else cpu
        yield SoftnetCpu(place, processed, dropped, squeezed, rps, flow_limit, backlog)
