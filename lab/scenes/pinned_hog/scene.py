"""A program legitimately computes on one core without a pause."""

from __future__ import annotations

from lab.stage import Stage

ID = "pinned_hog"
TITLE = "a CPU hog in user mode, pinned to one core"
SECONDS = 85
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": None,
    "chain": [],
    "present": [],
    "absent": [
        "saturated_core",
        "starved_napi",
        "quota_throttling",
        "softirq_flood",
        "page_fault_storm",
        "direct_reclaim",
        "zombie_memcgs",
        "soft_lockups",
    ],
    "exit": 0,
}


def play(stage: Stage) -> None:
    """40 s of calm, 30 s of the hog, calm again."""
    stage.wait(40)
    core = stage.cores[-1]
    stage.note(f"a hog in user mode takes core {core}")
    hog = stage.actor("hog", 100, core=core)
    stage.wait(30)
    stage.end(hog)
    stage.note("the hog is gone")
    stage.wait(12)
