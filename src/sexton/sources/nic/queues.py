"""Which interrupt and which cores serve each NIC queue.

`/sys/class/net/NIC/device/msi_irqs` lists them (Documentation/ABI/testing/sysfs-bus-pci); a virtio
device's are its PCI parent's. `/proc/interrupts` gives their names, `/proc/irq/N` their cores::

    /sys/class/net/eth0/device -> ../../../virtio2
    /sys/devices/pci0000:00/0000:00:03.0/msi_irqs/: 37 38 39
    38:   0  6547  PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
    /proc/irq/38/effective_affinity_list: 1

Names by driver: ``virtio2-input.0`` and ``-output.0`` (never the interface's name), ENA
``eth0-Tx-Rx-5`` and ``ena-mgmnt@pci:0000:20:03.0``, mlx5 ``mlx5_comp5@pci:0000:3b:00.0`` and
``mlx5_async0@…``, Intel ``eth0-TxRx-3``, ``i40e-eth0-TxRx-3``, ``ice-eth0-TxRx-3``, gve
``gve-ntfy-blk5@pci:…``, MANA ``mana_q5@pci:…``.

Quirks: some kernels around 6.4 number mlx5's completion vectors one too high. gve has one block per
queue *and* direction (`gve_tx_idx_to_ntfy`, `gve_rx_idx_to_ntfy` in gve.h): the first half of its
blocks transmit, the second receive. An interrupt keeps the interface's old name if that was changed
later: hence the join is by device and never by name. An interrupt whose name has no queue
(management, configuration) has queue `None`. An archive must keep sysfs' links for a virtio device,
whose parent cannot be found otherwise.

>>> queue_of("eth0-Tx-Rx-5"), queue_of("virtio2-input.0"), queue_of("mlx5_async0@pci:0000:3b:00.0")
((5, 'rxtx'), (0, 'rx'), (None, 'rxtx'))
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sexton.errors import SourceAbsent, SourceError
from sexton.host.reader import Files, text
from sexton.model.rows.net import NicQueue
from sexton.sources.nic.devices import PATH as NETWORK
from sexton.sources.nic.devices import bus_of, physical
from sexton.sources.procfs.interrupts import PATH as INTERRUPTS
from sexton.sources.procfs.interrupts import parse as parse_interrupts
from sexton.sources.procfs.irq_affinity import irq_cpus
from sexton.sources.registry import Reading, source

PATH = "/sys/class/net/*/device/msi_irqs"
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(form, re.ASCII), direction)
    for form, direction in (
        (r"virtio\d{1,6}-input(?:\.(\d{1,5}))?$", "rx"),
        (r"virtio\d{1,6}-output(?:\.(\d{1,5}))?$", "tx"),
        (r"mlx5_comp(\d{1,5})(?:@|$)", "rxtx"),
        (r"mana_q(\d{1,5})(?:@|$)", "rxtx"),
        (r"[^@\n]{1,48}-(?:Tx-?Rx|TxRx|tx-?rx|fp|TX-RX)-(\d{1,5})$", "rxtx"),
        (r"[^@\n]{1,48}-(?:rx|Rx|RX)-(\d{1,5})$", "rx"),
        (r"[^@\n]{1,48}-(?:tx|Tx|TX)-(\d{1,5})$", "tx"),
    )
)
_GVE_BLOCK = re.compile(r"(?:gve-ntfy-blk|[^@\n]{1,48}-ntfy-block\.)(\d{1,5})(?:@|$)", re.ASCII)


@source(PATH, rows=(NicQueue,), period_s=0.0)
class Queues(Reading):
    """Every interrupt of every physical interface."""

    def collect(self) -> list[NicQueue]:
        files = self._files
        nics = physical(self._host)
        if not nics:
            raise SourceAbsent(PATH, "no physical interface")
        names = {
            int(row.irq): row.name
            for row in parse_interrupts(text(files, INTERRUPTS))
            if row.irq.isdecimal()
        }
        rows = [row for nic in nics for row in _queues(files, nic, names)]
        if not rows:
            raise SourceAbsent(PATH, f"{', '.join(nics)}: no interrupts found")
        return rows


def queue_of(name: str, gve_blocks: int = 0) -> tuple[int | None, str]:
    """The queue in an interrupt's name, and its direction."""
    for form, direction in _FORMS:
        found = form.match(name)
        if found is not None:
            return int(found[1] or 0), direction
    found = _GVE_BLOCK.match(name)
    if found is not None and gve_blocks >= 2:
        block, half = int(found[1]), gve_blocks // 2
        return (block, "tx") if block < half else (block - half, "rx")
    return None, "rxtx"


def _queues(files: Files, nic: str, names: dict[int, str]) -> Iterator[NicQueue]:
    interrupts = _interrupts(files, nic)
    blocks = sum(1 for irq in interrupts if _GVE_BLOCK.match(names.get(irq, "")))
    for irq in interrupts:
        name = names.get(irq, "")
        if name:  # a vector that the driver reserved and never used has no name
            queue, direction = queue_of(name, blocks)
            yield NicQueue(nic, queue, direction, irq, name, irq_cpus(files, irq))


def _interrupts(files: Files, nic: str) -> list[int]:
    """The device's interrupts; those of a virtio device belong to its PCI parent."""
    device = f"{NETWORK}/{nic}/device"
    places = [f"{device}/msi_irqs"]
    if bus_of(files, device) == "virtio":
        places.append(f"{device}/../msi_irqs")
    for place in places:
        try:
            listed = files.names(place)
        except SourceError:
            continue
        return sorted(int(name) for name in listed if name.isdecimal() and len(name) < 10)
    try:
        return [int(text(files, f"{device}/irq"))]  # a line interrupt, no MSI
    except (SourceError, ValueError):
        return []
