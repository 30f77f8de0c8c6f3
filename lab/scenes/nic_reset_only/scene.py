"""The device falls silent and is reset; a job dies of it, and no zombie is to blame."""

from __future__ import annotations

from lab import ena
from lab.network_job import NetworkJob
from lab.stage import Stage

ID = "nic_reset_only"
TITLE = "a NIC reset without zombies: the device stopped its keep-alive"
SECONDS = 85
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "nic_resets",
    "chain": ["nic_resets", "tcp_loss", "job_deaths"],
    "present": ["nic_resets", "tcp_loss", "job_deaths"],
    "absent": [
        "zombie_memcgs",
        "cgroup_churn",
        "crash_looping_unit",
        "saturated_core",
        "starved_napi",
        "softirq_flood",
        "conntrack_full",
    ],
    "exit": 1,
}


def play(stage: Stage) -> None:
    """Calm, the driver's words, the loss, the death, calm."""
    job = NetworkJob(stage)
    stage.wait(45)
    job.lose_link(ena.silent_device(stage.queue.nic), "job 17")
    stage.wait(20)
