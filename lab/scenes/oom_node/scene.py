"""The whole node runs out of memory, and the kernel kills the biggest process."""

from __future__ import annotations

from pathlib import Path

from lab.scenes.full_node.scene import total_mb
from lab.stage import CannotPlay, Stage

ID = "oom_node"
TITLE = "the node runs out of memory"
SECONDS = 110
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "memory_pressure",
    "chain": ["memory_pressure", "oom_kills"],
    # While it thrashes, every core allocates and reclaims in the kernel.
    "present": [
        "memory_pressure",
        "oom_kills",
        "saturated_core",
        "direct_reclaim",
        "page_fault_storm",
    ],
    "possible": ["cpu_pressure"],
    "absent": [
        "zombie_memcgs",
        "starved_napi",
        "nic_resets",
        "quota_throttling",
        "cpu_steal",
        "softirq_flood",
    ],
    "named": ["the node ran out of memory", "lab-eater["],
    "exit": 1,
}
LIVE = "oom_kills"


def play(stage: Stage) -> None:
    """One process allocates more than the node's memory."""
    if not stage.in_lab_vm:
        raise CannotPlay("it uses up the machine's memory: only in the lab's virtual machine")
    stage.wait(40)
    stage.note("a process allocates more memory than the node has")
    eater = stage.actor("eater", total_mb(), may_die=True)
    # The biggest process is killed first; make sure that it is this one.
    Path(f"/proc/{eater.pid}/oom_score_adj").write_text("1000")
    stage.until("the OOM killer kills it", lambda: eater.poll() is not None, 240)
    stage.wait(20)
