"""A well-behaved realtime task: it runs a third of the time and sleeps for the rest."""

from __future__ import annotations

import sys

from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.stage import ACTORS, Stage

ID = "rt_calm"
TITLE = "a realtime task that sleeps in between"
SECONDS = 90
NEEDS = frozenset({"root"})
EXPECTED = {**IDLE, "absent": [*IDLE["absent"], "realtime_hog", "soft_lockups"]}
LIVE = None


def play(stage: Stage) -> None:
    """A third of a core at realtime priority, until the end."""
    stage.wait(40)
    core = stage.cores[-1]
    stage.note(f"a realtime task uses a third of core {core}")
    hog = [sys.executable, "-I", "-S", str(ACTORS / "hog.py"), "33"]
    stage.spawn("chrt", "-f", "50", *hog, core=core)
    stage.wait(45)
