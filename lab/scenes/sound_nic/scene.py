"""The NIC and traffic of stuck_nic, with a peer that keeps reading."""

from __future__ import annotations

from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.scenes.stuck_nic.scene import bring_up
from lab.stage import Stage

ID = "sound_nic"
TITLE = "a NIC that sends"
SECONDS = 90
NEEDS = frozenset({"root", "cable"})
EXPECTED = {**IDLE, "absent": [*IDLE["absent"], "realtime_hog", "oom_kills"]}


def play(stage: Stage) -> None:
    """Send all the time."""
    bring_up(stage)
    stage.note("traffic on the second NIC")
    stage.wait(85)
