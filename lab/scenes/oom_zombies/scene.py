"""A unit is OOM-killed and restarted again and again, and each run leaves a dying cgroup."""

from __future__ import annotations

from lab.scenes.oom_loop.scene import start_unit
from lab.stage import Stage

ID = "oom_zombies"
TITLE = "OOM kill → restart → zombie"
SECONDS = 130
NEEDS = frozenset({"root", "systemd"})
_CHAIN = ["oom_kills", "crash_looping_unit", "zombie_memcgs"]
EXPECTED = {
    "root": "oom_kills",
    "chain": _CHAIN,
    # Every restart removes the unit's cgroup.
    "present": [*_CHAIN, "cgroup_churn"],
    "absent": [
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
    "named": ["lab-eater[", "limit 40.0 MiB", "lab-eater.service"],
    "exit": 1,
}
LIVE = "oom_kills"


def play(stage: Stage) -> None:
    """The worker of `oom_loop`, which writes a page to tmpfs before it is killed."""
    stage.wait(40)
    before = stage.dying_cgroups() or 0
    pins = stage.tmpfs("pins")
    start_unit(stage, pins)
    stage.wait(80)
    runs = sum(1 for _ in pins.iterdir())
    left = (stage.dying_cgroups() or 0) - before
    stage.note(f"{runs} runs left {left} dying cgroups")
    if left < runs / 2:
        stage.adapt(
            "this kernel keeps no zombies: only the kills and restarts remain",
            chain=_CHAIN[:-1],
            present=_CHAIN[:-1],
            absent=["zombie_memcgs", *stage.expected["absent"]],
        )
