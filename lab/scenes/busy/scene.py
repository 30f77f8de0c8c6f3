"""Busy cores, connections and disk writes on a healthy node."""

from __future__ import annotations

from lab.network_job import PORT
from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.stage import Stage

ID = "busy"
TITLE = "busy and healthy"
SECONDS = 90
NEEDS = frozenset({"root"})
EXPECTED = IDLE
LIVE = None

SHARE = 70


def play(stage: Stage) -> None:
    """A worker per core in user mode, a job on loopback connections, some disk writes."""
    stage.wait(40)
    stage.note("the load starts")
    for core in stage.cores:
        stage.actor("hog", SHARE, core=core)
    stage.actor("server", "127.0.0.1", PORT)
    written = stage.folder / "written"
    stage.spawn(
        "sh",
        "-c",
        f"while :; do dd if=/dev/zero of={written} bs=64k count=64 conv=fsync 2> /dev/null;"
        " sleep 1; done",
    )
    stage.wait(2)
    stage.actor("job", "127.0.0.1", PORT, 20, 10)
    stage.wait(40)
