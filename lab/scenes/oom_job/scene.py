"""A job reaches the memory limit of its cgroup, is OOM-killed, and its death is marked."""

from __future__ import annotations

import signal

from lab.stage import SceneFailed, Stage

ID = "oom_job"
TITLE = "a job is OOM-killed"
SECONDS = 90
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "oom_kills",
    "chain": ["oom_kills", "job_deaths"],
    "present": ["oom_kills", "job_deaths"],
    "absent": [
        "zombie_memcgs",
        "cgroup_churn",
        "crash_looping_unit",
        "memory_pressure",
        "saturated_core",
        "starved_napi",
        "nic_resets",
        "tcp_loss",
        "quota_throttling",
        "cpu_pressure",
        "cpu_steal",
        "softirq_flood",
        "page_fault_storm",
    ],
    "named": ["lab-trainer[", "limit 96.0 MiB"],
    "exit": 1,
}
LIMIT_MB = 96


def play(stage: Stage) -> None:
    """Calm, a job that needs twice its limit, its death, calm."""
    stage.wait(40)
    home = stage.limited_cgroup("job-17", LIMIT_MB << 20)
    stage.note(f"job 17 needs {2 * LIMIT_MB} MB, and its cgroup is limited to {LIMIT_MB}")
    job = stage.actor("eater", 2 * LIMIT_MB, "lab-trainer", inside=[home], may_die=True)
    stage.until("the job dies", lambda: job.poll() is not None, 120)
    if job.returncode != -signal.SIGKILL:
        raise SceneFailed(f"the job was not killed: exit status {job.returncode}")
    # As a scheduler reports it.
    stage.mark(f"job 17 died: exit code {128 + signal.SIGKILL}")
    stage.wait(20)
