"""Network interfaces, queues, TCP and connection tracking."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class TcpCounters(Row):
    """TCP's own view of loss (`/proc/net/snmp` and `/proc/net/netstat`), since boot.

    `out_segments` does not count retransmits; `retransmitted_segments` does, including the
    `syn_retransmits` of connections that were never established.
    """

    in_segments: int
    out_segments: int
    retransmitted_segments: int
    established_resets: int | None
    attempt_fails: int | None
    timeouts: int | None
    aborts_on_timeout: int | None
    lost_retransmits: int | None
    listen_drops: int | None
    syn_retransmits: int | None = None


#: The source's message if the kernel does not track connections, so that no table can be full.
NOT_TRACKING = "connections are not tracked: nf_conntrack is not loaded"


@row
class Conntrack(Row):
    """The kernel's table of tracked connections (`nf_conntrack`) in one network namespace.

    `count` entries of at most `maximum` (0: no limit). `drops` are packets dropped because no
    entry was free, `early_drops` entries evicted from a full table to make room, and
    `insert_failed` entries that lost a race; since boot, `None` where not reported.
    """

    count: int
    maximum: int | None
    drops: int | None
    early_drops: int | None
    insert_failed: int | None


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
    """One network interface and its device.

    `physical`: a bus device backs it (a virtio or ENA function counts; veth, bridge and lo do not).
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
    `cpus` is the effective affinity if the kernel reports it, else the allowed one.
    """

    entity = ("nic", "irq")

    nic: str
    queue: int | None
    direction: str
    irq: int
    irq_name: str
    cpus: tuple[int, ...]
