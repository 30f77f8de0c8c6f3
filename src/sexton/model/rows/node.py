"""Which node this is, from local files."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class Node(Row):
    """Identity of the node; `None` is unknown. `isolated` cores are kept free of other tasks
    (isolcpus)."""

    hostname: str
    kernel: str
    cores: int | None
    boot_id: str | None
    uptime_s: float | None
    os: str | None
    zone: str | None
    region: str | None
    instance_type: str | None
    image: str | None
    vendor: str | None
    machine: str | None
    container: str | None
    isolated: tuple[int, ...] | None = None
