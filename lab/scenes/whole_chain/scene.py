"""The whole chain: crash loop, zombies, a walk that saturates a core, NAPI, reset, a dead job."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from lab import ena
from lab.agent import FEW_TASKS, TASKS, Agent
from lab.network_job import NetworkJob
from lab.stage import PREFIX, Stage
from lab.zombie_maker import zombie_maker

ID = "whole_chain"
TITLE = "crash loop → zombies → saturated core → starved NAPI → NIC reset → dead job"
SECONDS = 125
NEEDS = frozenset({"root"})
_CHAIN = [
    "crash_looping_unit",
    "zombie_memcgs",
    "saturated_core",
    "starved_napi",
    "nic_resets",
    "tcp_loss",
    "job_deaths",
]
#: Not direct_reclaim: the substitute walker is reclaim and may be reported so, but not as the root.
_OTHERS = [
    "memory_pressure",
    "page_fault_storm",
    "quota_throttling",
    "softirq_flood",
    "conntrack_full",
    "leaked_scopes",
    "rstat_contention",
]
EXPECTED = {
    "root": "crash_looping_unit",
    "chain": _CHAIN,
    # Every restart creates and removes the cgroups of the agent's tasks.
    "present": [*_CHAIN, "cgroup_churn"],
    "absent": _OTHERS,
    # In a virtual machine the walker is a FIFO task; on a slow one its walks are long enough.
    "possible": ["realtime_hog"],
    "named": ["lab-agent.service", "lab-walker["],
    "exit": 1,
}
LIVE = "crash_looping_unit"

UNIT = "lab-agent.service"
ZOMBIES = 750
#: With more zombies a walk takes longer, until the driver resets the NIC.
WALKS_S = (3.0, 4.0, 9.0)
RESET_AFTER_S = 6.6
_RT_RUNTIME = Path("/proc/sys/kernel/sched_rt_runtime_us")


def prepare(stage: Stage) -> None:
    """Start the crash loop before the recording."""
    before = stage.dying_cgroups() or 0
    if stage.systemd:
        agent = Agent(stage, UNIT)
        agent.install("Restart=always\nRestartSec=100ms\n")
        stage.run("systemctl", "start", "--no-block", UNIT)
        stage.until(
            "enough restarts", lambda: agent.restarts() * (TASKS + 1) >= ZOMBIES, within_s=400
        )
        agent.set_tasks(FEW_TASKS)
        stage.props["parent"] = agent.parent
    else:
        maker = stage.enter(zombie_maker(PREFIX))
        maker.make(max(ZOMBIES, 5 * stage.live_cgroups() // 2), UNIT)
        stage.end_later(maker.start(100_000, UNIT, pause_s=0.12))
        stage.props["parent"] = maker.parent
        _without_systemd(stage)
    left = (stage.dying_cgroups() or 0) - before
    stage.note(f"{left} zombies made before the recording starts")
    if left < ZOMBIES / 3:
        _without_zombies(stage)


def play(stage: Stage) -> None:
    """Three walks over the zombies; the third outlasts the driver's timeout."""
    core = stage.queue.cpus[0]
    job = NetworkJob(stage, core)
    disable_rt_throttling(stage)
    stage.wait(45)
    if "no zombies" in stage.props:
        job.lose_link(ena.silent_device(stage.queue.nic), "job 17")
        stage.wait(20)
        return
    for seconds in WALKS_S[:-1]:
        walker = _start_walk(stage, job, seconds)
        stage.finish(walker, seconds + 60)
        stage.note("the walk is over")
        stage.wait(14)
    began = time.monotonic()
    walker = _start_walk(stage, job, WALKS_S[-1])
    time.sleep(RESET_AFTER_S)
    waited_s = time.monotonic() - began
    job.lose_link(ena.starved(stage.queue.nic, stage.queue.queue or 0, waited_s), "job 17")
    stage.finish(walker, 60)
    stage.wait(20)


def _start_walk(stage: Stage, job: NetworkJob, seconds: float) -> subprocess.Popen[bytes]:
    core = stage.queue.cpus[0]
    stage.note(f"a zombie walk holds core {core} for {seconds:g} s")
    how = ("fifo",) if stage.in_lab_vm else ()
    walker = stage.prioritized_actor(
        "walker", stage.props["parent"], seconds, *how, core=core, may_die=True
    )
    if stage.in_lab_vm:
        link = job.link
        stage.actor("flood", link.address, 9, 0.5, namespace=link.namespace, core=stage.other_core)
    return walker


def disable_rt_throttling(stage: Stage) -> None:
    """Turn RT throttling off in the lab's VM. Before 6.5 a softirq deferred to ksoftirqd waits for
    it; the walker at real-time priority blocks it, as a walk without reschedule points did in the
    incident."""
    if stage.in_lab_vm:
        before = _RT_RUNTIME.read_text()
        stage.at_end(_RT_RUNTIME.write_text, before)
        _RT_RUNTIME.write_text("-1")
        stage.substitute(
            "the walker runs at real-time priority, so that ksoftirqd waits behind it as it did"
            " behind a walk without reschedule points; since 6.5 softirqs do not wait for it"
        )


def _without_systemd(stage: Stage) -> None:
    chain = ["cgroup_churn", *_CHAIN[1:]]
    stage.live_root = "cgroup_churn"
    stage.substitute("no systemd here: the lab restarts the agent every 0.12 s")
    stage.adapt(
        "without systemd the crash loop shows as cgroup churn",
        root="cgroup_churn",
        chain=chain,
        present=chain,
    )


def _without_zombies(stage: Stage) -> None:
    """Since 7.1 dying cgroups pass their pages to their parent and are freed: nothing to walk."""
    stage.props["no zombies"] = True
    chain = ["nic_resets", "tcp_loss", "job_deaths"]
    stage.adapt(
        "this kernel keeps no zombies: no walk, no saturated core, only the reset and its loss",
        root="nic_resets",
        chain=chain,
        present=[*chain, "crash_looping_unit"] if stage.systemd else chain,
        absent=[*_OTHERS, "zombie_memcgs", "saturated_core", "starved_napi"],
        named=[UNIT] if stage.systemd else [],
    )
