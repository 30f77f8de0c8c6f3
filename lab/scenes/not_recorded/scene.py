"""Zombies and a NIC reset that the recorder could not see: the verdict must be unknown."""

from __future__ import annotations

from lab import ena
from lab.stage import PREFIX, Stage
from lab.zombie_maker import zombie_maker

ID = "not_recorded"
TITLE = "the evidence was not recorded"
SECONDS = 80
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": None,
    "chain": [],
    "present": [],
    "absent": [
        "zombie_memcgs",
        "nic_resets",
        "starved_napi",
        "saturated_core",
        "cgroup_churn",
        "direct_reclaim",
    ],
    "exit": 3,
}

#: No perf, no BPF, no tracefs, as in a container.
RECORDER = ("--no-trace", "--no-probe", "--no-ring")
STACKS = False
ZOMBIES = 700


def container_view(stage: Stage) -> list[str]:
    """Command prefix that gives the recorder a container's view of the node.

    A cgroup namespace rooted in its own cgroup; the kernel log, the journal and debugfs are hidden.
    """
    own = stage.cgroup("memory", "container")
    top = stage.layout.mount_point
    script = stage.folder / "container_view.sh"
    script.write_text(
        "set -e\n"
        f"mount --bind {own} {top}\n"
        "mount --bind /dev/null /dev/kmsg\n"
        "for each in /sys/kernel/debug /sys/kernel/tracing /run/log/journal /var/log/journal; do\n"
        "    [ ! -d $each ] || mount -t tmpfs -o ro none $each\n"
        "done\n"
        'exec "$@"\n'
    )
    enter = f'echo $$ > {own}/cgroup.procs && exec unshare -C -m sh {script} "$@"'
    return ["sh", "-c", enter, "sh"]


def play(stage: Stage) -> None:
    """Make the zombies and the reset, unseen by the recorder."""
    stage.wait(35)
    maker = stage.enter(zombie_maker(PREFIX))
    stage.note(f"{ZOMBIES} zombies are made")
    maker.make(ZOMBIES, "agent")
    for line in ena.silent_device(stage.queue.nic):
        stage.inject_kmsg(line)
    stage.wait(35)
