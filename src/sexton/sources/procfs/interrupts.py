"""`/proc/interrupts`: interrupts per line and core since boot.

Written by `show_interrupts` (kernel/irq/proc.c) and the architecture's `arch_show_interrupts`.
An excerpt::

               CPU0       CPU1
      4:          0        905   IO-APIC   4-edge      ttyS0
     36:          0     142463 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
    LOC:      98363     101618   Local timer interrupts
    ERR:          0

Quirks: only online cores have a column, so the header gives the cores' numbers and they may have
holes. A device's line continues with the chip, the hardware number and trigger, and after two
spaces the drivers' names, with commas if the line is shared: `name` is only those (and "" if the
line is unused: it then ends in padding). A named line (`LOC`, `RES`, …) has a
description instead. `ERR` and `MIS` (`Err` on arm) are one number for the whole machine and no
core's: not kept. With 256 cores and 2,000 lines the file has megabytes; hence the long period.
Newer kubelets mask it in pods with ``/dev/null``: then ``/host/interrupts`` is read, where the
chart mounts the node's.

>>> text = '''           CPU0       CPU2
...  36:          0     142463 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
... LOC:      98363     101618   Local timer interrupts
... ERR:          0
... '''
>>> [(row.irq, row.name, row.cpus, row.counts) for row in parse(text)][0]
('36', 'virtio1-req.0', (0, 2), (0, 142463))
>>> [row.name for row in parse(text)][1:]
['Local timer interrupts']
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceMalformed
from sexton.model.rows.cpu import Interrupt
from sexton.sources.procfs.softirqs import header_cpus
from sexton.sources.registry import file_source

PATH = "/proc/interrupts"
#: One number for the whole machine.
_TOTALS = frozenset({"ERR", "MIS", "Err"})


@file_source(
    PATH,
    rows=(Interrupt,),
    period_s=5.0,
    grant="in a pod: mount the node's /proc/interrupts at /host/interrupts, as the chart does",
)
def parse(text: str) -> Iterator[Interrupt]:
    """One row per line that counts by core."""
    lines = text.split("\n")
    cpus = tuple(header_cpus(PATH, lines[0]))
    width = len(cpus)
    for number, line in enumerate(lines[1:], 2):
        irq, colon, rest = line.partition(":")
        irq = irq.strip()
        if not colon or irq in _TOTALS:
            continue
        columns = rest.split(None, width)
        try:
            counts = tuple(map(int, columns[:width]))
        except ValueError:
            counts = ()
        if len(counts) == width:
            label = columns[width] if len(columns) > width else ""
            yield Interrupt(irq, _name(irq, label), cpus, counts)
        elif irq.isdecimal():
            raise SourceMalformed(PATH, number, f"interrupt {irq} lacks counts for {width} cores")


def _name(irq: str, label: str) -> str:
    """The drivers of a device's line, or the description of a named one."""
    if not irq.isdecimal():
        return label.strip()
    return "" if label.endswith(" ") else label.rpartition("  ")[2].strip()
