"""`/proc/net/dev`: bytes, packets, errors and drops of each interface.

Documented in the kernel's Documentation/filesystems/proc.rst, "Network info". An excerpt::

    Inter-|   Receive                                                |  Transmit
     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs …
        lo:   31908     360    0    0    0     0          0         0    31908     360    0 …
      eth0: 8012345    6547    0    0    0     0          0         0   412345    4931    0 …

Quirks: old kernels print no space between the colon and the first number, so the line is cut at
its *last* colon: a name may contain one (alias `eth0:1`), the numbers cannot. The interfaces are
those of one network namespace, ours or (through ``--root``) that of the host's init.

>>> line = "  eth0:8012345 6547 1 2 0 0 0 0 412345 4931 3 4 0 0 0 0"
>>> [(row.name, row.rx_bytes, row.rx_dropped, row.tx_errors) for row in parse(line)]
[('eth0', 8012345, 2, 3)]
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceMalformed
from sexton.model.rows.net import NetDevice
from sexton.sources.registry import file_source

PATH = "{net}/dev"
_SHOWN = "/proc/net/dev"


@file_source(PATH, rows=(NetDevice,), period_s=1.0)
def parse(text: str) -> Iterator[NetDevice]:
    """One row per interface."""
    for number, line in enumerate(text.split("\n"), 1):
        name, colon, rest = line.rpartition(":")
        if not colon:  # the two lines of the header
            continue
        try:
            values = [int(column) for column in rest.split()]
        except ValueError:
            raise SourceMalformed(_SHOWN, number, "counters that are not numbers") from None
        if len(values) < 12:
            raise SourceMalformed(_SHOWN, number, f"{len(values)} counters, 16 expected")
        yield NetDevice(name.strip(" "), *values[:4], *values[8:12])
