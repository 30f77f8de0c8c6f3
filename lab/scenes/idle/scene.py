"""Nothing happens."""

from __future__ import annotations

from lab.stage import Stage

ID = "idle"
TITLE = "idle and healthy"
SECONDS = 75
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": None,
    "chain": [],
    "present": [],
    "absent": [
        "zombie_memcgs",
        "cgroup_churn",
        "crash_looping_unit",
        "leaked_scopes",
        "saturated_core",
        "starved_napi",
        "nic_resets",
        "tcp_loss",
        "job_deaths",
        "direct_reclaim",
        "memory_pressure",
        "page_fault_storm",
        "quota_throttling",
        "softirq_flood",
        "conntrack_full",
        "rstat_contention",
        "soft_lockups",
        "defunct_processes",
    ],
    "exit": 0,
}
LIVE = None


def play(stage: Stage) -> None:
    """Wait."""
    stage.wait(70)
