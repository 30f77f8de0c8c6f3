"""Zombies pile up without harm yet: no saturated core, no starved poll."""

from __future__ import annotations

from lab.stage import PREFIX, Stage
from lab.zombie_maker import zombie_maker

ID = "zombies_only"
TITLE = "zombies without starvation"
SECONDS = 90
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
    ],
    "named": ["/agent"],
    "exit": 1,
}
LIVE = "cgroup_churn"

ZOMBIES = 700
PAUSE_S = 0.1
AT_ONCE = 100


def play(stage: Stage) -> None:
    """A process restarts until zombies outnumber live cgroups, then a while longer."""
    stage.wait(40)
    before = stage.dying_cgroups() or 0
    maker = stage.enter(zombie_maker(PREFIX))
    number = max(ZOMBIES, 5 * stage.live_cgroups() // 2)
    stage.note(f"an agent under {maker.path} restarts {number} times")
    # Not all at once, or the recorder's trace buffer would lose events; and not one by one, because
    # the kernel delays the first move of a process to another cgroup.
    while maker.made < number:
        maker.make(AT_ONCE, "agent")
        stage.wait(1.0)
    stage.note(f"it keeps restarting every {PAUSE_S} s")
    stage.end_later(maker.start(100_000, "agent", pause_s=PAUSE_S))
    if (stage.dying_cgroups() or 0) - before < number / 3:
        stage.expect_no_zombies("this kernel keeps no zombies: only cgroup churn remains")
    stage.wait(40)
