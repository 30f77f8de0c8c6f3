"""The two agents of two_leakers, but the kernel can free their cgroups."""

from __future__ import annotations

from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.scenes.two_leakers.scene import NAMES, PAUSES_S
from lab.stage import PREFIX, Stage
from lab.zombie_maker import zombie_maker

ID = "two_tenants"
TITLE = "two agents that restart often and leave no zombies"
SECONDS = 100
NEEDS = frozenset({"root"})
EXPECTED = {**IDLE, "absent": [*IDLE["absent"], "cgroup_churn"]}


def play(stage: Stage) -> None:
    """Delete each run's file within half a second."""
    stage.wait(40)
    makers = []
    for name, pause_s in zip(NAMES, PAUSES_S, strict=True):
        maker = stage.enter(zombie_maker(f"{PREFIX}-{name}"))
        stage.note(f"an agent under {maker.path} starts to restart every {pause_s:g} s")
        stage.end_later(maker.start(100_000, "agent", pause_s=pause_s))
        makers.append(maker)
    for _ in range(120):
        stage.wait(0.5)
        for maker in makers:
            maker.free()
