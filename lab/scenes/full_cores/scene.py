"""A batch job uses every core to the full, one worker each: busy, and nobody waits for long."""

from __future__ import annotations

from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.stage import Stage

ID = "full_cores"
TITLE = "every core full, and well"
SECONDS = 90
NEEDS = frozenset({"root"})
EXPECTED = {**IDLE, "absent": [*IDLE["absent"], "oom_kills", "cpu_pressure", "cpu_steal"]}


def play(stage: Stage) -> None:
    """A worker per core that never sleeps, free to move."""
    stage.wait(40)
    stage.note("as many workers as cores")
    workers = [stage.actor("hog", 100) for _ in stage.cores]
    stage.wait(45)
    for worker in workers:  # an emulated machine takes minutes to finish the recording beside them
        stage.end(worker)
