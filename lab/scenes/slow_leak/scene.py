"""One zombie every ten seconds: nobody would notice for hours."""

from __future__ import annotations

from lab.stage import PREFIX, Stage
from lab.zombie_maker import zombie_maker

ID = "slow_leak"
TITLE = "a slow leak, one zombie every ten seconds"
SECONDS = 175
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "cgroup_churn",
    "chain": ["cgroup_churn", "zombie_memcgs"],
    "present": ["cgroup_churn", "zombie_memcgs"],
    "absent": [
        "saturated_core",
        "starved_napi",
        "nic_resets",
        "tcp_loss",
        "job_deaths",
        "direct_reclaim",
        "quota_throttling",
        "leaked_scopes",
        "memory_pressure",
    ],
    "named": ["/agent"],
    "exit": 1,
}
PAUSE_S = 10.0
_PLAYED_S = 135


def play(stage: Stage) -> None:
    """An agent restarts every ten seconds and leaves one zombie each time."""
    stage.wait(40)
    before = stage.dying_cgroups() or 0
    maker = stage.enter(zombie_maker(PREFIX))
    stage.note(f"an agent under {maker.path} starts to restart every {PAUSE_S:g} s")
    stage.end_later(maker.start(100_000, "agent", pause_s=PAUSE_S))
    stage.wait(_PLAYED_S)
    if (stage.dying_cgroups() or 0) - before < _PLAYED_S / PAUSE_S / 3:
        stage.expect_no_zombies("this kernel keeps no zombies: only slow cgroup churn remains")
