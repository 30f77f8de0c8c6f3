"""A realtime task computes on one core without a pause, and RT throttling is disabled."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.stage import ACTORS, Stage

ID = "rt_hog"
TITLE = "a realtime task that holds a core in user mode"
SECONDS = 150
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "realtime_hog",
    "chain": ["realtime_hog"],
    "present": ["realtime_hog"],
    "absent": [
        "saturated_core",
        "zombie_memcgs",
        "nic_resets",
        "quota_throttling",
        "direct_reclaim",
        "memory_pressure",
        "oom_kills",
        "softirq_flood",
        "page_fault_storm",
    ],
    "exit": 1,
}
LIVE = "realtime_hog"
_UNIT = "lab-audio.service"
_BRAKE = Path("/proc/sys/kernel/sched_rt_runtime_us")


def play(stage: Stage) -> None:
    """40 s of calm; then the task holds the core to the end. RCU complains after 21 s of it.

    On a machine that is not its own the brake stays on: the task gets 95 % of the core, and RCU is
    content.
    """
    stage.wait(40)
    core = stage.cores[-1]
    if stage.in_lab_vm:
        before = _BRAKE.read_text()
        _BRAKE.write_text("-1")
        stage.at_end(_BRAKE.write_text, before)
    hog = f"{sys.executable} -I -S {ACTORS / 'hog.py'} 100"
    stage.note(f"a realtime task takes core {core}")
    if stage.systemd:
        stage.unit(
            _UNIT,
            "[Service]\nCPUSchedulingPolicy=fifo\nCPUSchedulingPriority=50\n"
            f"CPUAffinity={core}\nExecStart={hog}\n",
        )
        stage.run("systemctl", "start", _UNIT)
    else:
        stage.spawn("chrt", "-f", "50", *hog.split(), core=core)
    stage.wait(100)
