"""A batch job uses every core fully, one worker each: busy, but nothing waits for long."""

from __future__ import annotations

from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.stage import Stage

ID = "full_cores"
TITLE = "every core fully used, and healthy"
SECONDS = 90
NEEDS = frozenset({"root"})
EXPECTED = {**IDLE, "absent": [*IDLE["absent"], "oom_kills", "cpu_pressure", "cpu_steal"]}


def play(stage: Stage) -> None:
    """As many unpinned busy workers as cores."""
    stage.wait(40)
    stage.note("as many workers as cores")
    workers = [stage.actor("hog", 100) for _ in stage.cores]
    stage.wait(45)
    for worker in workers:  # beside them an emulated machine takes minutes to finish the recording
        stage.end(worker)
