"""The same network card with the same traffic, and a peer that reads."""

from __future__ import annotations

from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.scenes.stuck_nic.scene import bring_up
from lab.stage import Stage

ID = "sound_nic"
TITLE = "a network card that sends"
SECONDS = 90
NEEDS = frozenset({"root", "cable"})
EXPECTED = {**IDLE, "absent": [*IDLE["absent"], "realtime_hog", "oom_kills"]}


def play(stage: Stage) -> None:
    """Traffic from beginning to end."""
    bring_up(stage)
    stage.note("traffic on the second card")
    stage.wait(85)
