"""Two agents leave zombies at the same time, one twice as many as the other."""

from __future__ import annotations

from lab.stage import PREFIX, Stage
from lab.zombie_maker import zombie_maker

ID = "two_leakers"
TITLE = "two agents that leak at the same time"
SECONDS = 100
NEEDS = frozenset({"root"})
#: The one that leaks twice as fast comes first.
NAMES = ("backup", "scraper")
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
    "named": [f"{PREFIX}-{name}" for name in NAMES],
    "exit": 1,
}
LIVE = "cgroup_churn"
PAUSES_S = (0.5, 1.0)


def play(stage: Stage) -> None:
    """Start both at the same time."""
    stage.wait(40)
    before = stage.dying_cgroups() or 0
    for name, pause_s in zip(NAMES, PAUSES_S, strict=True):
        maker = stage.enter(zombie_maker(f"{PREFIX}-{name}"))
        stage.note(f"an agent under {maker.path} starts to restart every {pause_s:g} s")
        stage.end_later(maker.start(100_000, "agent", pause_s=pause_s))
    stage.wait(60)
    if (stage.dying_cgroups() or 0) - before < 60 / PAUSES_S[0] / 3:
        stage.expect_no_zombies("this kernel keeps no zombies: only cgroup churn remains")
