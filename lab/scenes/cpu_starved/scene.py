"""A neighbour starts six busy workers per core, and everything else waits for CPU."""

from __future__ import annotations

import sys

from lab.stage import ACTORS, Stage

ID = "cpu_starved"
TITLE = "CPU starvation by a neighbour"
SECONDS = 110
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "cpu_pressure",
    "chain": ["cpu_pressure"],
    "present": ["cpu_pressure"],
    "absent": [
        "saturated_core",
        "zombie_memcgs",
        "nic_resets",
        "quota_throttling",
        "direct_reclaim",
        "memory_pressure",
        "oom_kills",
        "cpu_steal",
        "softirq_flood",
        "page_fault_storm",
    ],
    "named": ["lab-neighbour.service"],
    "exit": 1,
}

WORKERS = 6
_UNIT = "lab-neighbour.service"


def play(stage: Stage) -> None:
    """Start the workers, in a unit if systemd runs."""
    stage.wait(40)
    number = WORKERS * len(stage.cores)
    stage.note(f"{number} workers compete for {len(stage.cores)} cores")
    hog = f"{sys.executable} -I -S {ACTORS / 'hog.py'} 100"
    workers = []
    if stage.systemd:
        every = f"for i in $(seq {number}); do {hog} & done; wait"
        # On cgroup v1 a unit has a cgroup with CPU time only if that is accounted for.
        command = f"/bin/sh -c '{every.replace('$', '$$')}'"
        stage.unit(_UNIT, f"[Service]\nCPUAccounting=yes\nExecStart={command}\n")
        stage.run("systemctl", "start", _UNIT)
    else:
        stage.adapt("no service manager here: the workers are in no unit", named=["lab-hog"])
        workers = [stage.actor("hog", 100) for _ in range(number)]
    stage.wait(45)
    for each in workers:  # so that the recorder can finish
        stage.end(each)
    if stage.systemd:
        stage.run("systemctl", "stop", _UNIT)
    stage.wait(10)
