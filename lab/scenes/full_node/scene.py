"""Page cache and one big process fill the node's memory, and nothing is killed."""

from __future__ import annotations

from pathlib import Path

from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.stage import CannotPlay, Stage

ID = "full_node"
TITLE = "no free memory, and healthy"
SECONDS = 100
NEEDS = frozenset({"root"})
EXPECTED = {**IDLE, "absent": [*IDLE["absent"], "oom_kills", "cpu_pressure", "cpu_steal"]}
LIVE = None


def total_mb() -> int:
    """The node's memory."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) >> 10
    raise CannotPlay("/proc/meminfo has no MemTotal")


def play(stage: Stage) -> None:
    """A process takes a quarter of the memory, and a file that is read slowly fills the rest."""
    if not stage.in_lab_vm:
        raise CannotPlay("it uses up the machine's memory: only in the lab's virtual machine")
    stage.wait(40)
    total = total_mb()
    stage.note("a process takes a quarter of the memory, and page cache the rest")
    stage.actor("eater", total // 4)
    read = stage.folder / "read"
    # A hole: its zeros are cached as any other page, and no disk is read.
    with read.open("wb") as file:
        file.truncate(2 * total << 20)
    stage.spawn(
        "sh", "-c", f'i=0; while dd if={read} bs=1M count=32 skip=$i of=/dev/null 2> /dev/null; do'
        f" i=$(( (i + 32) % {2 * total} )); sleep 0.5; done",
    )  # fmt: skip
    stage.wait(55)
