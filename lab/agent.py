"""A systemd service that runs each task in its own cgroup and leaves the cgroups as zombies.

Each run creates a few cgroups below its own (``Delegate=yes``, as container agents do). In each, a
process writes one page to a tmpfs. Then the run removes the cgroups and exits; systemd removes the
unit's cgroup. The tmpfs files stay and pin all of these memory cgroups. So ten restarts a minute
leave as many zombies as a hundred would otherwise, which a lab under software emulation needs. With
the files on a disk instead, page cache holds the zombies, and reclaim can free them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lab.stage import CannotPlay, Stage
from lab.zombie_maker import MAKE_ZOMBIES

#: Zombies per run, besides the unit's own cgroup: many while a scene is prepared, to save time; few
#: while it is played, to keep the node calm.
TASKS, FEW_TASKS = 24, 2
SLICE = "lab.slice"

_SCRIPT = """\
[ "$(cat {tasks})" -gt 0 ] || exit {status}
run=$(mktemp -d {pins}/XXXXXX)
echo agent > "$run/own"
if [ -e {cgroup}/cgroup.controllers ]; then
    mkdir {cgroup}/agent
    echo 0 > {cgroup}/agent/cgroup.procs
    echo +memory > {cgroup}/cgroup.subtree_control
fi
{python} -I -S {maker} {cgroup} "$run" task%d 0 $(cat {tasks}) 0
{after}
exit {status}
"""


class Agent:
    """The service in a separate slice. `parent` is the slice's memory cgroup, under which the
    zombies are. `disk` is a folder for the pinning files, instead of a tmpfs."""

    def __init__(self, stage: Stage, name: str, status: int = 1, disk: Path | None = None) -> None:
        top = stage.layout.mount_point
        if top is None:
            raise CannotPlay(stage.layout.reason or "no memory hierarchy is mounted")
        self.stage = stage
        self.name = name
        self.parent = Path(top) / SLICE
        pins = stage.tmpfs("pins") if disk is None else disk
        maker = stage.folder / "maker.py"
        maker.write_text(MAKE_ZOMBIES)
        self._tasks = stage.folder / "tasks"
        self.set_tasks(TASKS)
        self._script = stage.folder / "agent.sh"
        self._script.write_text(
            _SCRIPT.format(
                pins=pins,
                cgroup=self.parent / name,
                python=sys.executable,
                maker=maker,
                tasks=self._tasks,
                status=status,
                # A dirty page cannot be reclaimed, and the kernel would take half a minute.
                after=":" if disk is None else f'sync -f "{disk}"',
            )
        )
        stage.unit(SLICE, "[Slice]\nMemoryAccounting=yes\n")
        stage.run("systemctl", "start", SLICE)

    @property
    def command(self) -> str:
        """The unit's ExecStart command."""
        return f"/bin/sh {self._script}"

    def install(self, service: str) -> None:
        """Install the unit; `service` is the rest of its [Service] section."""
        self.stage.unit(
            self.name,
            "[Unit]\nDescription=An agent of Sexton's lab that nobody needs\n"
            "StartLimitIntervalSec=0\n"
            f"[Service]\nSlice={SLICE}\nDelegate=yes\nMemoryAccounting=yes\n"
            f"ExecStart={self.command}\n{service}",
        )

    def set_tasks(self, tasks: int) -> None:
        """Set the number of tasks from the next run on; with 0 it only exits."""
        self._tasks.write_text(str(tasks))

    def restarts(self) -> int:
        """systemd's restart counter."""
        output = self.stage.run("systemctl", "show", "-p", "NRestarts", "--value", self.name)
        return int(output.strip() or 0)
