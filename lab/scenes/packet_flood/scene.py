"""Small packets arrive faster than their core can process them: softirq, not a cgroup walk."""

from __future__ import annotations

from lab.stage import CannotPlay, Stage
from lab.veth import veth_pair

ID = "packet_flood"
TITLE = "a packet flood with ksoftirqd"
SECONDS = 90
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "softirq_flood",
    "chain": ["softirq_flood", "saturated_core"],
    "present": ["softirq_flood", "saturated_core"],
    "absent": [
        "zombie_memcgs",
        "cgroup_churn",
        "nic_resets",
        "direct_reclaim",
        "quota_throttling",
        "page_fault_storm",
        "rstat_contention",
    ],
    "named": ["held in softirq"],
    "exit": 1,
}

PORT = 9009
#: Each gets a copy of every packet, which is work for the receiving core, not the sender.
SOCKETS = 24
FLOOD_S = 25


def play(stage: Stage) -> None:
    """Flood from the namespace to sockets here that nobody reads."""
    if len(stage.cores) < 2:
        raise CannotPlay("it needs two cores: one to send and one to receive")
    made = stage.enter(veth_pair())
    core, other = stage.cores[-1], stage.cores[0]
    made.receive_on(core)
    stage.actor("sink", PORT, SOCKETS)
    stage.wait(40)
    stage.note(f"packets flood core {core}")
    flood = stage.prioritized_actor(
        "flood", made.broadcast, PORT, FLOOD_S, namespace=made.namespace, core=other
    )
    stage.finish(flood, FLOOD_S + 60)
    stage.note("the flood is over")
    stage.wait(20)
