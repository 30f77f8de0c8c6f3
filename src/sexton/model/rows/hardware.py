"""Memory modules, GPUs, heat and fabric ports."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class MemoryModule(Row):
    """Errors of one memory module since boot, by the memory controller (EDAC).

    `label` is the board's name for the slot, "" for what the controller could not locate.
    """

    entity = ("controller", "label")

    controller: int
    label: str
    corrected: int
    uncorrected: int


@row
class Gpu(Row):
    """A GPU that has a driver; `model` is `None` if the driver does not report it."""

    entity = ("bus",)

    bus: str
    driver: str
    model: str | None


@row
class CoreThrottle(Row):
    """How often a core and its package were throttled because of heat, since boot; the times are
    the kernel's totals, `None` before 5.6."""

    entity = ("cpu",)

    cpu: int
    core_events: int
    package_events: int
    core_ms: int | None
    package_ms: int | None


@row
class FabricPort(Row):
    """A port of an InfiniBand, RoCE or EFA device: "ACTIVE", "DOWN", …"""

    entity = ("device", "port")

    device: str
    port: int
    state: str


@row
class FabricCounter(Row):
    """One error counter of a port, since its driver was loaded."""

    entity = ("device", "port", "name")

    device: str
    port: int
    name: str
    value: int
