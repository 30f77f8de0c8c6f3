"""A timer starts a short job every second; each run leaves zombies."""

from __future__ import annotations

from lab.agent import FEW_TASKS, TASKS, Agent
from lab.stage import Stage

ID = "timer_zombies"
TITLE = "a systemd timer whose job leaves zombies, with no restart and no failure"
SECONDS = 100
NEEDS = frozenset({"root", "systemd"})
EXPECTED = {
    "root": "cgroup_churn",
    "chain": ["cgroup_churn", "zombie_memcgs"],
    "present": ["cgroup_churn", "zombie_memcgs"],
    "absent": [
        "crash_looping_unit",
        "saturated_core",
        "starved_napi",
        "nic_resets",
        "leaked_scopes",
    ],
    "named": ["lab-sweep.service"],
    "exit": 1,
}
LIVE = "cgroup_churn"

NAME = "lab-sweep"
ZOMBIES = 600


def prepare(stage: Stage) -> None:
    """Run the job several times before the recording."""
    before = stage.dying_cgroups() or 0
    job = Agent(stage, f"{NAME}.service", status=0)
    job.install("Type=oneshot\n")
    for _ in range(ZOMBIES // (TASKS + 1) + 1):
        stage.run("systemctl", "start", job.name)
    job.set_tasks(FEW_TASKS)
    stage.unit(f"{NAME}.timer", "[Timer]\nOnActiveSec=0\nOnUnitActiveSec=1s\nAccuracySec=50ms\n")
    if (stage.dying_cgroups() or 0) - before < ZOMBIES / 3:
        stage.expect_no_zombies(
            "this kernel keeps no zombies: only a timer that runs a job remains"
        )


def play(stage: Stage) -> None:
    """Start the timer and wait."""
    stage.wait(40)
    stage.note("the timer is started")
    stage.run("systemctl", "start", f"{NAME}.timer")
    stage.wait(60)
