"""A service needs more memory than its limit: it is OOM-killed, restarted and killed again."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.stage import ACTORS, Stage

ID = "oom_loop"
TITLE = "repeated OOM kills in a cgroup"
SECONDS = 110
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "oom_kills",
    "chain": ["oom_kills", "crash_looping_unit"],
    "present": ["oom_kills", "crash_looping_unit"],
    "absent": [
        "zombie_memcgs",
        "memory_pressure",
        "saturated_core",
        "starved_napi",
        "nic_resets",
        "quota_throttling",
        "cpu_pressure",
        "cpu_steal",
        "softirq_flood",
        "page_fault_storm",
    ],
    "named": ["lab-eater[", "limit 40.0 MiB"],
    "exit": 1,
}
LIVE = "oom_kills"

LIMIT_MB = 40
_UNIT = "lab-eater.service"
_WHAT = f"a worker that needs {2 * LIMIT_MB} MB is limited to {LIMIT_MB}"


def play(stage: Stage) -> None:
    """A worker that needs twice its limit."""
    stage.wait(40)
    if stage.systemd:
        start_unit(stage)
        stage.wait(60)
        return
    stage.note(_WHAT)
    stage.adapt(
        "no service manager here: the lab restarts the worker",
        chain=["oom_kills"],
        present=["oom_kills"],
    )
    made = stage.limited_cgroup("eater", LIMIT_MB << 20)
    for _ in range(6):
        killed = stage.actor("eater", 2 * LIMIT_MB, inside=[made], may_die=True)
        killed.wait(timeout=60)
        stage.wait(5)
    stage.wait(20)


def start_unit(stage: Stage, pins: Path | None = None) -> None:
    """Start the worker as a unit that systemd restarts; `pins` as in `lab/actors/eater.py`."""
    stage.note(_WHAT)
    words = [sys.executable, "-I", "-S", ACTORS / "eater.py", 2 * LIMIT_MB, "lab-eater"]
    if pins is not None:
        words.append(pins)
    stage.unit(
        _UNIT,
        f"[Service]\nMemoryMax={LIMIT_MB}M\nRestart=always\nRestartSec=2\n"
        f"StartLimitIntervalSec=0\nExecStart={' '.join(map(str, words))}\n",
    )
    stage.run("systemctl", "start", _UNIT)
