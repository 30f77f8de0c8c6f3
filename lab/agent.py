"""An agent under systemd that starts tasks in cgroups of their own, and leaves them as zombies.

Each run makes a few cgroups below its own (``Delegate=yes``, as container agents have), has a
process in each write one page to a tmpfs, removes them and ends. Its own cgroup goes with it. The
tmpfs files stay, and with them every one of these memory cgroups. So a unit that restarts ten times
a minute leaves as many zombies as one that restarts a hundred times; which is what a lab under
software emulation needs. Where the files are on a disk instead, page cache holds the dead, and
reclaim can free them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lab.graveyard import DIGGER
from lab.stage import CannotPlay, Stage

#: Zombies of one run, beside the unit's own: many while a scene is prepared, so that it takes less
#: time, and few while it is played, so that the node is calm.
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
{python} -I -S {digger} {cgroup} "$run" task%d 0 $(cat {tasks}) 0
{after}
exit {status}
"""


class Agent:
    """A service of ours in a slice of ours; `parent` is the slice's memory cgroup, where the
    zombies are once the unit's own directory is gone. `disk` is a folder for the files that hold
    them, instead of a tmpfs."""

    def __init__(self, stage: Stage, name: str, status: int = 1, disk: Path | None = None) -> None:
        top = stage.layout.mount_point
        if top is None:
            raise CannotPlay(stage.layout.reason or "no memory hierarchy is mounted")
        self.stage = stage
        self.name = name
        self.parent = Path(top) / SLICE
        pins = stage.tmpfs("pins") if disk is None else disk
        digger = stage.folder / "digger.py"
        digger.write_text(DIGGER)
        self._tasks = stage.folder / "tasks"
        self.work(TASKS)
        self._script = stage.folder / "agent.sh"
        self._script.write_text(
            _SCRIPT.format(
                pins=pins,
                cgroup=self.parent / name,
                python=sys.executable,
                digger=digger,
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
        """What its unit starts."""
        return f"/bin/sh {self._script}"

    def install(self, service: str) -> None:
        """The unit; `service` is what its [Service] section says beside the command."""
        self.stage.unit(
            self.name,
            "[Unit]\nDescription=An agent of Sexton's lab that nobody needs\n"
            "StartLimitIntervalSec=0\n"
            f"[Service]\nSlice={SLICE}\nDelegate=yes\nMemoryAccounting=yes\n"
            f"ExecStart={self.command}\n{service}",
        )

    def work(self, tasks: int) -> None:
        """From the next run on so many; with none it only fails."""
        self._tasks.write_text(str(tasks))

    def restarts(self) -> int:
        """By systemd's own counter."""
        output = self.stage.run("systemctl", "show", "-p", "NRestarts", "--value", self.name)
        return int(output.strip() or 0)
