"""What the network says of itself."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class TcpCounters(Row):
    """TCP's own view of loss (`/proc/net/snmp` and `/proc/net/netstat`), since boot."""

    in_segments: int
    out_segments: int
    retransmitted_segments: int
    established_resets: int
    attempt_fails: int
    timeouts: int | None
    aborts_on_timeout: int | None
    lost_retransmits: int | None
    listen_drops: int | None


@row
class NetDevice(Row):
    """One interface's counters (`/proc/net/dev`)."""

    entity = ("name",)

    name: str
    rx_bytes: int
    rx_packets: int
    rx_errors: int
    rx_dropped: int
    tx_bytes: int
    tx_packets: int
    tx_errors: int
    tx_dropped: int


@row
class Nic(Row):
    """One network interface and what stands behind it.

    `physical` is true where a bus device backs it (a virtio or ENA function counts; veth, bridge
    and lo do not).
    """

    entity = ("name",)

    name: str
    physical: bool
    driver: str | None
    driver_version: str | None
    bus_address: str | None
    state: str | None


@row
class NicCounter(Row):
    """One `ethtool -S` counter."""

    entity = ("nic", "counter")
    unsigned = ("value",)

    nic: str
    counter: str
    value: int


@row
class NicQueue(Row):
    """Queue → interrupt → cores, joined through the device's own interrupts.

    `direction` is "rx", "tx" or "rxtx"; `queue` is `None` for interrupts that serve no queue.
    `cpus` is the effective affinity where the kernel tells it, else the allowed one.
    """

    entity = ("nic", "irq")

    nic: str
    queue: int | None
    direction: str
    irq: int
    irq_name: str
    cpus: tuple[int, ...]
