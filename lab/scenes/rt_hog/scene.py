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
    # RCU reports the stall only if its grace-period thread is not on the held core itself:
    # `expect_stall`.
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
    "named": ["lab-hog[", "realtime FIFO 50"],
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
    before = stalls(stage)
    core = stage.cores[-1]
    if stage.in_lab_vm:
        stage.at_end(_RT_RUNTIME.write_text, _RT_RUNTIME.read_text())
        _RT_RUNTIME.write_text("-1")
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
    expect_stall(stage, before, chain=["realtime_hog", "soft_lockups"])


def stalls(stage: Stage) -> int:
    """How often RCU has reported a stall, by the kernel log."""
    log = stage.run("dmesg")
    return log.count("stall on CPU") + log.count("detected stalls")


def expect_stall(stage: Stage, before: int, **more: object) -> None:
    """Expect it to be found, with `more`, if the kernel reported one since `before`."""
    if stalls(stage) > before:
        present = [*stage.expected["present"], "soft_lockups"]
        stage.adapt(
            "the kernel reported an RCU stall",
            present=present,
            possible=[name for name in stage.expected["possible"] if name != "soft_lockups"],
            **more,
        )
