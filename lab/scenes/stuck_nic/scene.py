"""A NIC stops sending, and the kernel's transmit watchdog reports it."""

from __future__ import annotations

import socket

from lab.stage import Stage
from lab.vm.cable import ETHERTYPE, STOP, order_frame

ID = "stuck_nic"
TITLE = "a NIC that stops sending"
SECONDS = 120
NEEDS = frozenset({"root", "cable"})
EXPECTED = {
    "root": "nic_resets",
    "chain": ["nic_resets"],
    "present": ["nic_resets"],
    "absent": [
        "saturated_core",
        "starved_napi",
        "zombie_memcgs",
        "quota_throttling",
        "direct_reclaim",
        "memory_pressure",
        "oom_kills",
        "softirq_flood",
        "page_fault_storm",
        "realtime_hog",
    ],
    "named": ["eth1", "transmit watchdog"],
    "exit": 1,
}
NIC, ADDRESS, PEER, PORT = "eth1", "10.77.0.1", "10.77.0.2", 9
_STUCK_S = 40


def bring_up(stage: Stage) -> None:
    """Configure the second NIC and start a sender on it."""
    stage.run("ip", "link", "set", NIC, "up")
    stage.run("ip", "address", "add", f"{ADDRESS}/24", "dev", NIC)
    stage.at_end(stage.run, "ip", "link", "set", NIC, "down")
    stage.run("ip", "neighbour", "replace", PEER, "lladdr", "02:00:00:00:00:02", "dev", NIC)
    stage.actor("sender", PEER, PORT, 400)


def tell_peer(order: bytes, number: int) -> None:
    """Send an order frame to the peer (`lab.vm.cable`)."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE)) as raw:
        raw.bind((NIC, 0))
        raw.send(order_frame(order, number))


def play(stage: Stage) -> None:
    """40 s of traffic; then the peer stops reading for 40 s and resumes."""
    bring_up(stage)
    stage.wait(40)
    stage.note(f"the peer of {NIC} stops reading for {_STUCK_S} s")
    tell_peer(STOP, _STUCK_S)
    stage.wait(_STUCK_S + 5)
    stage.note("the peer reads again")
    stage.wait(10)
