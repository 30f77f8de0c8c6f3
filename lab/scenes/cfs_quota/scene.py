"""A service's CPU quota throttles it ten times a second, on a node with idle cores."""

from __future__ import annotations

import sys

from lab.stage import ACTORS, Stage

ID = "cfs_quota"
TITLE = "CFS quota throttling"
SECONDS = 95
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "quota_throttling",
    "chain": ["quota_throttling"],
    "present": ["quota_throttling"],
    "absent": [
        "saturated_core",
        "starved_napi",
        "zombie_memcgs",
        "direct_reclaim",
        "memory_pressure",
        "softirq_flood",
        "page_fault_storm",
    ],
    "named": ["limited"],
    "exit": 1,
}
LIVE = "quota_throttling"

PERCENT = 20
_UNIT = "lab-limited.service"


def play(stage: Stage) -> None:
    """Two workers that would use a core each, limited to a fifth of one together."""
    stage.wait(40)
    stage.note(f"two workers are limited to {PERCENT} % of a core")
    if stage.systemd:
        command = f"{sys.executable} -I -S {ACTORS / 'hog.py'} 100"
        stage.unit(
            _UNIT,
            f"[Service]\nCPUQuota={PERCENT}%\nExecStart=/bin/sh -c '{command} & exec {command}'\n",
        )
        stage.run("systemctl", "start", _UNIT)
    else:
        made = stage.cgroup("cpu", "limited")
        if (made / "cpu.cfs_quota_us").exists():
            (made / "cpu.cfs_quota_us").write_text(str(PERCENT * 1000))
        else:
            (made / "cpu.max").write_text(f"{PERCENT * 1000} 100000")
        for _ in range(2):
            stage.actor("hog", 100, inside=[made])
    stage.wait(50)
