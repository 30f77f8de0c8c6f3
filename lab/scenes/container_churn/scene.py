"""An agent re-creates its container forever: no restart in systemd, a zombie each time."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from lab.stage import PREFIX, SceneFailed, Stage
from lab.zombie_maker import zombie_maker

ID = "container_churn"
TITLE = "containers that die and are re-created by runc; NRestarts stays 0"
SECONDS = 100
NEEDS = frozenset({"root", "runc"})
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
        "defunct_processes",
    ],
    "named": ["/sexton-lab-"],
    "exit": 1,
}
LIVE = "cgroup_churn"
#: Under emulation runc takes seconds per container: 10 s would show only two.
WATCH_S = 40

ZOMBIES = 800
PAUSE_S = 1.5
_UNIT = "lab-ecs-agent.service"


def prepare(stage: Stage) -> None:
    """Make zombies of earlier containers, under the same parent and with the same kind of name."""
    before = stage.dying_cgroups() or 0
    maker = stage.enter(zombie_maker(PREFIX))
    maker.made = 1000  # four digits plus 60, so that every name has 64
    maker.make(max(ZOMBIES, 5 * stage.live_cgroups() // 2), f"%d{'c0ffee' * 10}")
    stage.remove_at_end(maker.parent.name)
    stage.substitute("the earlier zombies were made the same way without runc, to save time")
    stage.props["pins"] = maker.pins
    stage.props["agent"] = _agent(stage, maker.path, maker.pins)
    if (stage.dying_cgroups() or 0) - before < ZOMBIES / 3:
        stage.adapt(
            "this kernel keeps no zombies: only the churn of containers remains",
            root="cgroup_churn",
            chain=["cgroup_churn"],
            present=["cgroup_churn"],
        )


def play(stage: Stage) -> None:
    """Run one container after another."""
    stage.wait(40)
    stage.note("the agent starts to re-create its container")
    if stage.systemd:
        stage.unit(_UNIT, f"[Service]\nExecStart=/bin/sh {stage.props['agent']}\nDelegate=yes\n")
        stage.run("systemctl", "start", _UNIT)
    else:
        stage.spawn("sh", stage.props["agent"])
    stage.wait(60)
    if not (written := len(list(stage.props["pins"].glob("*.*")))):
        raise SceneFailed(f"no container ran: {stage.actor_output()[-400:]}")
    stage.note(f"{written} containers have run")


def _agent(stage: Stage, parent: str, pins: Path) -> Path:
    """A shell loop around ``runc run``, with the machine's root file system, read-only, as
    image."""
    bundle = stage.folder / "bundle"
    bundle.mkdir()
    # Not below the stage's folder, which is deleted: that would follow a mount left behind.
    root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}-rootfs-"))
    stage.at_end(_umount, stage, root)
    stage.run("mount", "--bind", "/", root)
    stage.run("mount", "-o", "remount,bind,ro", root)
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "cwd": "/",
            "args": ["/bin/sh", "-c", "echo x > /mnt/$$.$(cat /proc/sys/kernel/random/uuid)"],
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "user": {"uid": 0, "gid": 0},
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            {"destination": "/mnt", "type": "none", "source": str(pins), "options": ["bind", "rw"]},
        ],
        "linux": {
            "cgroupsPath": f"{parent}/ID",
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
        },
    }
    (bundle / "template.json").write_text(json.dumps(config))
    state = stage.folder / "runc"
    script = stage.folder / "agent.sh"
    make_id = f"{sys.executable} -I -S -c 'import secrets; print(secrets.token_hex(32))'"
    script.write_text(
        f"export XDG_RUNTIME_DIR={stage.folder}\n"
        f"cd {bundle}\n"
        "while :; do\n"
        f"    id=$({make_id})\n"
        '    sed "s:/ID:/$id:" template.json > config.json\n'
        f'    runc --root {state} run "$id" < /dev/null\n'
        f"    sleep {PAUSE_S}\n"
        "done\n"
    )
    return script


def _umount(stage: Stage, root: Path) -> None:
    stage.run("umount", "-l", root, check=False)
    root.rmdir()
