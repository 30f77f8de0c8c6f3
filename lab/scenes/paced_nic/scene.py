"""The NIC, link and traffic of starved_nic, with a busy program instead of a walk on its core."""

from __future__ import annotations

from pathlib import Path

from lab.scenes.idle.scene import EXPECTED as IDLE
from lab.scenes.starved_nic.scene import LINK, SENT, interrupts
from lab.scenes.stuck_nic.scene import NIC, PEER, PORT, bring_up, tell_peer
from lab.stage import Stage
from lab.vm.cable import PACE

ID = "paced_nic"
TITLE = "a NIC that sends more than its link takes, served by a busy core, and healthy"
SECONDS = 100
NEEDS = frozenset({"root", "cable"})
KERNEL = "preempt=none"
EXPECTED = {**IDLE, "absent": [*IDLE["absent"], "realtime_hog", "oom_kills"]}


def play(stage: Stage) -> None:
    """40 s of calm; then the queue stops and starts all the time, beside a hog on its core."""
    core = max(stage.cores)
    bring_up(stage)
    for irq in interrupts(NIC):
        Path(f"/proc/irq/{irq}/smp_affinity_list").write_text(str(core))
    tell_peer(PACE, LINK)
    stage.wait(40)
    stage.note(f"a hog in user mode takes core {core}, which serves {NIC}, and {NIC} sends")
    hog = stage.actor("hog", 100, core=core)
    sender = stage.actor("sender", PEER, PORT, SENT, core=min(stage.cores))
    stage.wait(45)
    for process in (sender, hog):
        stage.end(process)
    stage.wait(5)
