"""The incident's chain without injected lines: a walk over zombies starves a real NIC."""

from __future__ import annotations

from pathlib import Path

from lab.scenes.rt_hog.scene import expect_stall, stalls
from lab.scenes.stuck_nic.scene import NIC, PEER, PORT, bring_up, tell_peer
from lab.scenes.whole_chain.scene import disable_rt_throttling
from lab.scenes.whole_chain.scene import prepare as make_zombies
from lab.stage import CannotPlay, Stage
from lab.veth import veth_pair
from lab.vm.cable import PACE
from sexton.model.text import count

ID = "starved_nic"
TITLE = "crash loop → zombies → saturated core → starved NAPI → transmit queue timeout"
SECONDS = 150
NEEDS = frozenset({"root", "systemd", "cable"})
KERNEL = "preempt=none"
_CHAIN = ["crash_looping_unit", "zombie_memcgs", "saturated_core", "starved_napi", "nic_resets"]
EXPECTED = {
    "root": "crash_looping_unit",
    "chain": _CHAIN,
    # The walkers run at real-time priority: see README.
    "present": [*_CHAIN, "cgroup_churn", "realtime_hog"],
    # All else shares one core, and RCU waits: `expect_stall`.
    "possible": ["soft_lockups", "cpu_pressure", "contended_core"],
    "absent": [
        "memory_pressure",
        "page_fault_storm",
        "quota_throttling",
        "softirq_flood",
        "conntrack_full",
        "leaked_scopes",
        "rstat_contention",
    ],
    "named": ["lab-agent.service", "eth1"],
    "exit": 1,
}
#: Seconds and threads. The kernel's transmit watchdog fires after five seconds and checks every
#: five. A walk that frees nothing sleeps at the end of each round, 0.7 s here, and whatever waited
#: runs; with several threads another one walks then.
WALKS = ((3.0, 1), (12.0, 20))
#: Packets per second that the link takes and that are sent: the ring fills, and the queue stops
#: until the poll has emptied it.
LINK, SENT = 1_000, 2_000


def prepare(stage: Stage) -> None:
    """Start the crash loop before the recording."""
    make_zombies(stage)
    if "no zombies" in stage.props:
        raise CannotPlay("this kernel keeps no zombies: there is nothing to walk")


def play(stage: Stage) -> None:
    """Walks over the zombies on the core that serves the NIC, the second time for too long."""
    core = max(stage.cores)
    bring_up(stage)
    for irq in interrupts(NIC):
        Path(f"/proc/irq/{irq}/smp_affinity_list").write_text(str(core))
    tell_peer(PACE, LINK)
    disable_rt_throttling(stage)
    busy = stage.enter(veth_pair())
    busy.receive_on(core)
    stage.wait(45)
    where, other, before = stage.props["parent"], min(stage.cores), stalls(stage)
    for seconds, threads in WALKS:
        stage.note(f"a walk by {count(threads, 'thread')} on core {core}, which serves {NIC}")
        walk = (where, seconds, "fifo", threads)
        walker = stage.prioritized_actor("walker", *walk, core=core, may_die=True)
        # Bursts of packets for that core, so that its softirqs are deferred to ksoftirqd.
        bursts = (busy.address, 9, seconds + 90, 0.3)
        flood = stage.actor("flood", *bursts, namespace=busy.namespace, core=other)
        sender = stage.actor("sender", PEER, PORT, SENT, core=other)
        stage.finish(walker, seconds + 90)
        stage.end(flood)
        stage.end(sender)
        stage.note("the walk is over")
        stage.wait(14)
    expect_stall(stage, before)


def interrupts(nic: str) -> list[str]:
    """IRQ numbers of a virtio NIC."""
    device = Path(f"/sys/class/net/{nic}/device").resolve().name
    lines = Path("/proc/interrupts").read_text().splitlines()
    return [line.split(":")[0].strip() for line in lines if f"{device}-" in line]
