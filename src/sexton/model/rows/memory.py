"""Memory as the whole machine sees it."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class VmCounter(Row):
    """One line of `/proc/vmstat`; gauges (`nr_*`) and counters alike."""

    entity = ("name",)

    name: str
    value: int


@row
class Pressure(Row):
    """One line of `/proc/pressure/*`: `kind` is "some" or "full"."""

    entity = ("resource", "kind")

    resource: str
    kind: str
    avg10_percent: float
    avg60_percent: float
    avg300_percent: float
    total_us: int
