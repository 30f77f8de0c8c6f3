"""The same agent as in slow_leak, but the kernel can free its cgroups."""

from __future__ import annotations

from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.scenes.slow_leak.scene import PAUSE_S
from lab.stage import PREFIX, Stage
from lab.zombie_maker import zombie_maker

ID = "slow_churn"
TITLE = "an agent that restarts every ten seconds and leaves no zombies"
SECONDS = 170
NEEDS = frozenset({"root"})
EXPECTED = {**IDLE, "absent": [*IDLE["absent"], "cgroup_churn"]}
_ROUNDS = 13


def play(stage: Stage) -> None:
    """Each run's file, the last page of its cgroup, is deleted within a second."""
    stage.wait(40)
    maker = stage.enter(zombie_maker(PREFIX))
    stage.note(f"an agent under {maker.path} starts to restart every {PAUSE_S:g} s")
    stage.end_later(maker.start(100_000, "agent", pause_s=PAUSE_S))
    for _ in range(int(_ROUNDS * PAUSE_S)):
        stage.wait(1)
        maker.free()
