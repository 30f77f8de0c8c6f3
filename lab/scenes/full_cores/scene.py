"""A batch job uses every core to the full, one worker each: busy, and nobody waits for long."""

from __future__ import annotations

from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.stage import Stage

ID = "full_cores"
TITLE = "every core full, and well"
SECONDS = 90
NEEDS = frozenset({"root"})
EXPECTED = {**IDLE, "absent": [*IDLE["absent"], "oom_kills", "cpu_pressure", "cpu_steal"]}
LIVE = None


def play(stage: Stage) -> None:
    """A worker per core that never sleeps, free to move."""
    stage.wait(40)
    stage.moment("as many workers as cores")
    for _ in stage.cores:
        stage.actor("hog", 100)
    stage.wait(45)
