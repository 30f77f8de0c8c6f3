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
    # RCU reports the stall only if its grace-period thread is not on the held core itself.
    "possible": ["soft_lockups"],
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
_RT_RUNTIME = Path("/proc/sys/kernel/sched_rt_runtime_us")


def play(stage: Stage) -> None:
    """40 s of calm; then the task holds the core until the end. After 21 s RCU reports a stall.

    Outside the lab's VM RT throttling stays on: the task gets 95 % of the core, and RCU does not
    stall.
    """
    stage.wait(40)
    core = stage.cores[-1]
    if stage.in_lab_vm:
        before = _RT_RUNTIME.read_text()
        _RT_RUNTIME.write_text("-1")
        stage.at_end(_RT_RUNTIME.write_text, before)
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
