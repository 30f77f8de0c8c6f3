"""The NIC stops its keep-alive and is reset, and a job dies; no zombies are involved."""

from __future__ import annotations

from lab import ena
from lab.network_job import NetworkJob
from lab.stage import Stage

ID = "nic_reset_only"
TITLE = "a NIC reset without zombies: the device stopped sending keep-alives"
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
    "named": ["keep-alives"],
    "exit": 1,
}


def play(stage: Stage) -> None:
    """Calm, the driver's log lines, packet loss, the job's death, calm."""
    job = NetworkJob(stage)
    stage.wait(45)
    job.lose_link(ena.silent_device(stage.queue.nic), "job 17")
    stage.wait(20)
