"""Kernel log lines of the ENA driver when it resets its device, for machines without one.

The lines come from the incident (driver 2.11.0g) and from the driver's source. Interface and queue
are this machine's, so that they lead to the right core; the bus address is the incident's.
"""

from __future__ import annotations

BUS = "0000:20:03.0"
_DONE = (
    f"ena {BUS}: Device reset completed successfully,"
    " Driver info: Elastic Network Adapter (ENA) v2.11.0g"
)


def starved(nic: str, queue: int, waited_s: float) -> list[str]:
    """A queue whose poll was scheduled and did not run, then the reset."""
    return [
        f"ena {BUS} {nic}: TX q {queue} is paused for too long (threshold 5000000). Time since"
        f" last napi {int(waited_s * 1e6)} usec. napi scheduled: 1",
        f"ena {BUS} {nic}: napi handler hasn't been called for a long time but is scheduled",
        f"ena {BUS} {nic}: Trigger reset is on",
        _DONE,
    ]


def silent_device(nic: str) -> list[str]:
    """A device that stopped its keep-alive, then the reset: the node is not at fault."""
    return [
        f"ena {BUS} {nic}: Keep alive watchdog timeout.",
        f"ena {BUS} {nic}: Trigger reset is on",
        _DONE,
    ]
