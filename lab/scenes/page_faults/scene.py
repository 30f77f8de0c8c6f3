"""A program touches new pages as fast as it can: page faults keep a core in the kernel."""

from __future__ import annotations

from lab.stage import Stage

ID = "page_faults"
TITLE = "a page-fault storm"
SECONDS = 90
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "page_fault_storm",
    "chain": ["page_fault_storm", "saturated_core"],
    "present": ["page_fault_storm", "saturated_core"],
    "absent": [
        "zombie_memcgs",
        "cgroup_churn",
        "direct_reclaim",
        "quota_throttling",
        "softirq_flood",
        "starved_napi",
        "nic_resets",
    ],
    "named": ["lab-faulter["],
    "exit": 1,
}

STORM_S = 25


def play(stage: Stage) -> None:
    """Calm, the storm, calm."""
    stage.wait(40)
    core = stage.cores[-1]
    stage.note(f"a storm of page faults on core {core}")
    storm = stage.prioritized_actor("faulter", STORM_S, core=core)
    stage.finish(storm, STORM_S + 60)
    stage.note("the storm is over")
    stage.wait(20)
