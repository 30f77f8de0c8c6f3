"""Allocations must reclaim memory first, which saturates a core."""

from __future__ import annotations

from lab.stage import Stage

ID = "direct_reclaim"
TITLE = "direct reclaim"
SECONDS = 100
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "direct_reclaim",
    "chain": ["direct_reclaim", "saturated_core"],
    "present": ["direct_reclaim", "saturated_core"],
    "absent": [
        "zombie_memcgs",
        "cgroup_churn",
        "starved_napi",
        "nic_resets",
        "quota_throttling",
        "softirq_flood",
        "rstat_contention",
    ],
    "named": ["lab-reader["],
    "exit": 1,
}

LIMIT_BYTES = 16 << 20
BURST_S = 10


def play(stage: Stage) -> None:
    """Three bursts of reads through a page cache that is too small."""
    big = stage.folder / "sparse"
    with big.open("wb") as file:
        file.truncate(8 << 30)
    stage.wait(40)
    made = stage.limited_cgroup("reader", LIMIT_BYTES)
    for _ in range(3):
        stage.note("a reader reclaims page by page within its limit")
        reader = stage.prioritized_actor(
            "reader", big, BURST_S, core=stage.cores[-1], inside=[made]
        )
        stage.finish(reader, BURST_S + 60)
        stage.wait(5)
    stage.wait(10)
