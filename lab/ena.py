"""What the ENA driver says when it resets its device, word for word, for a machine without one.

The lines are those of the incident (driver 2.11.0g) and of the driver's source; the interface and
the queue are this machine's own, so that they lead to its own core. The bus address is the
incident's.
"""

from __future__ import annotations

BUS = "0000:20:03.0"
_DONE = (
    f"ena {BUS}: Device reset completed successfully,"
    " Driver info: Elastic Network Adapter (ENA) v2.11.0g"
)


def starved(nic: str, queue: int, waited_s: float) -> list[str]:
    """A queue whose poll was asked for and did not run, and the reset that follows."""
    return [
        f"ena {BUS} {nic}: TX q {queue} is paused for too long (threshold 5000000). Time since"
        f" last napi {int(waited_s * 1e6)} usec. napi scheduled: 1",
        f"ena {BUS} {nic}: napi handler hasn't been called for a long time but is scheduled",
        f"ena {BUS} {nic}: Trigger reset is on",
        _DONE,
    ]


def silent_device(nic: str) -> list[str]:
    """A device that stopped its keep-alive: nothing on the node is to blame."""
    return [
        f"ena {BUS} {nic}: Keep alive watchdog timeout.",
        f"ena {BUS} {nic}: Trigger reset is on",
        _DONE,
    ]
