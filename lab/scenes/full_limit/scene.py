"""A service fills its memory limit, half of it with page cache: no OOM kill."""

from __future__ import annotations

from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.stage import Stage

ID = "full_limit"
TITLE = "a cgroup at its memory limit, and healthy"
SECONDS = 90
NEEDS = frozenset({"root"})
EXPECTED = {
    **IDLE,
    # It reclaims its own page cache now and then: a note, but not a problem of the node.
    "absent": [
        *(each for each in IDLE["absent"] if each not in ("direct_reclaim", "memory_pressure")),
        "oom_kills",
        "cpu_pressure",
        "cpu_steal",
    ],
}
LIVE = None

LIMIT_MB = 64


def play(stage: Stage) -> None:
    """A worker that uses half of its limit, and files that fill the rest."""
    stage.wait(40)
    made = stage.limited_cgroup("full", LIMIT_MB << 20)
    stage.note("a worker uses half of its limit, and files fill the rest")
    stage.actor("eater", LIMIT_MB // 2, inside=[made])
    written = stage.folder / "written"
    stage.spawn(
        "sh",
        "-c",
        f"for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of={written} bs=1M count={LIMIT_MB // 4}"
        " oflag=append conv=notrunc 2> /dev/null; sleep 4; done; sleep 600",
        inside=[made],
    )
    stage.wait(45)
