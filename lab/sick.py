"""A sick node of our own: an ECS agent on a Kubernetes node, in a crash loop that nobody needs.

What the incident had, under a real systemd: ``kubelet.service`` (a sleeper), and ``ecs.service``,
enabled by the image, failing and started again for ever, each run leaving dead memory cgroups below
its slice. They are held by page cache, so that they can be freed. Beside them, under the same
parent, a neighbour that has cache and anonymous memory to lose, and swap to lose it to. Everything
is put away by the stage. Only ever in the lab's own machine: it plants units in ``/usr``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from pathlib import Path

from lab.agent import SLICE, Agent
from lab.stage import Stage

ECS, KUBELET, NEIGHBOUR = "ecs.service", "kubelet.service", "lab-neighbour.service"
VENDOR, ETC = Path("/usr/lib/systemd/system"), Path("/etc/systemd/system")
#: Where administrators' units are, which is all that a cure may change.
TREES = (
    "/etc/systemd/system",
    "/etc/systemd/system.control",
    "/run/systemd/system",
    "/run/systemd/system.control",
)
CACHE, ANON, SWAP = 64 << 20, 32 << 20, 64 << 20
#: So many a run while the dead are made, and while the node is watched: enough to be traced.
MANY_TASKS, WATCHED_TASKS = 64, 3
#: A link and a drop-in get a time that nobody would give them by chance.
_THEN_NS = 981_173_106_789_000_000

_SLEEPER = (
    "[Unit]\nDescription=kubelet: The Kubernetes Node Agent\n"
    "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
)
#: As the deb package of the ECS agent has it: it waits, so no start limit ever ends it.
_DEB = """\
[Unit]
Description=Amazon Elastic Container Service - container agent
Documentation=https://aws.amazon.com/documentation/ecs/
[Service]
Type=simple
Restart=on-failure
RestartSec=10s
EnvironmentFile=-/etc/ecs/ecs.config
ExecStart=/usr/libexec/amazon-ecs-init start
[Install]
WantedBy=multi-user.target
"""
_DROP_IN = "# The owner's own.\n[Service]\nEnvironment=ECS_LOGLEVEL=info\n"
#: It has cache, and memory of its own, of which it sends half to swap (21 is MADV_PAGEOUT).
_LIVING = """\
import contextlib, mmap, signal, sys
memory = mmap.mmap(-1, int(sys.argv[2]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for offset in range(0, len(memory), 4096):
    memory[offset] = 1
def settle(*_):
    with open(sys.argv[1], "rb") as file:
        while file.read(1 << 20):
            pass
    with contextlib.suppress(OSError):
        memory.madvise(21, 0, len(memory) // 2)
signal.signal(signal.SIGHUP, settle)
settle()
while True:
    signal.pause()
"""


class Sick:
    """See the module. Nothing is done before it is asked for."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.top = Path(stage.layout.mount_point or "/nonexistent")
        self.home = self.top / SLICE / NEIGHBOUR
        self._agent: Agent | None = None
        self._swaps = False

    # Units

    def plant_kubelet(self) -> None:
        """Enabled, and not started yet."""
        self._plant(KUBELET, _SLEEPER)
        self._enable(KUBELET)

    def plant_ecs(self) -> None:
        """As the deb package would: enabled, and not started yet. With a drop-in of the owner's."""
        self._plant(ECS, _DEB)
        self._enable(ECS)
        folder = ETC / f"{ECS}.d"
        folder.mkdir()
        self.stage.later(shutil.rmtree, folder, True)
        drop_in = folder / "10-owner.conf"
        drop_in.write_text(_DROP_IN)
        drop_in.chmod(0o640)
        os.utime(drop_in, ns=(_THEN_NS, _THEN_NS))

    def start(self) -> None:
        """The node as it was before it fell ill: kubelet, and somebody who has memory to lose."""
        self.stage.run("systemctl", "daemon-reload")
        self.stage.run("systemctl", "start", KUBELET)
        disk = Path(tempfile.mkdtemp(prefix="lab-pins-", dir="/var/tmp"))
        self.stage.later(shutil.rmtree, disk, True)
        self._agent = Agent(self.stage, ECS, disk=disk)
        self._start_neighbour()

    def fall_ill(self) -> None:
        """The agent, as the deb has it but quicker: emulation has no days to wait."""
        more = f"StartLimitIntervalSec=0\n[Service]\nSlice={SLICE}\nDelegate=yes\n"
        text = _DEB.replace("[Service]\n", f"{more}MemoryAccounting=yes\n")
        text = text.replace("RestartSec=10s", "RestartSec=300ms")
        text = text.replace("/usr/libexec/amazon-ecs-init start", self.agent.command)
        (VENDOR / ECS).write_text(text)
        self.stage.run("systemctl", "daemon-reload")
        self.stage.run("systemctl", "start", "--no-block", ECS)

    def loop_protected(self, name: str) -> None:
        """A unit that a node lives by, in a loop as well."""
        self._plant(
            name,
            "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/false\n"
            "Restart=always\nRestartSec=500ms\n",
        )
        self.stage.run("systemctl", "daemon-reload")
        self.stage.run("systemctl", "start", "--no-block", name)
        self.stage.until(f"{name} loops", lambda: self.restarts(name) >= 3, 60)

    def forget(self, name: str) -> None:
        """What `loop_protected` planted."""
        self.stage.run("systemctl", "stop", name, check=False)
        (VENDOR / name).unlink(missing_ok=True)
        self.stage.run("systemctl", "daemon-reload")
        self.stage.run("systemctl", "reset-failed", name, check=False)

    @property
    def agent(self) -> Agent:
        assert self._agent is not None, "start comes first"
        return self._agent

    def _plant(self, name: str, text: str) -> None:
        path = VENDOR / name
        if not path.exists():
            self.stage.later(self._uproot, name)
        path.write_text(text)

    def _enable(self, name: str) -> None:
        link = ETC / "multi-user.target.wants" / name
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(VENDOR / name)
        os.utime(link, ns=(_THEN_NS, _THEN_NS), follow_symlinks=False)

    def _uproot(self, name: str) -> None:
        self.stage.run("systemctl", "stop", name, check=False)
        for path in (VENDOR / name, ETC / name, ETC / "multi-user.target.wants" / name):
            path.unlink(missing_ok=True)
        self.stage.run("systemctl", "daemon-reload", check=False)

    # How it is

    def show(self, unit: str, name: str) -> str:
        return self.stage.run("systemctl", "show", "-p", name, "--value", unit).strip()

    def restarts(self, unit: str = ECS) -> int:
        return int(self.show(unit, "NRestarts") or 0)

    def runs(self, unit: str = ECS) -> bool:
        """Or waits to be started again."""
        return self.show(unit, "ActiveState") not in ("inactive", "failed")

    def dead(self) -> int:
        """Dead memory cgroups of the node, counted past any code that is under test: the lowest of
        three, for an ordinary removal takes a few milliseconds."""
        counts = []
        for _ in range(3):
            counts.append(self._dead_now())
            time.sleep(0.1)
        return min(counts)

    def _dead_now(self) -> int:
        if self.stage.layout.version == 2:
            return number_of(self.top / "cgroup.stat", "nr_dying_descendants")
        lines = Path("/proc/cgroups").read_text().splitlines()
        known = next(int(line.split()[2]) for line in lines if line.startswith("memory"))
        return known - sum(1 for _ in os.walk(self.top))

    def dead_at_most(self, most: int, within_s: float = 20) -> int:
        """The count once it is that low, or when it was waited for long enough: the kernel lets go
        of them in its own time."""
        end = time.monotonic() + within_s
        while (count := self.dead()) > most and time.monotonic() < end:
            time.sleep(0.5)
        return count

    def dig(self, number: int) -> int:
        """Let the agent leave dead ones until there are so many; then few a run."""
        self.agent.work(MANY_TASKS)
        self.stage.until(f"{number} zombies", lambda: self.dead() >= number, within_s=200)
        self.agent.work(WATCHED_TASKS)
        os.sync()
        return self.dead()

    # Somebody beside the dead

    def _start_neighbour(self) -> None:
        living, cache = self.stage.folder / "living.py", self.stage.folder / "cache"
        living.write_text(_LIVING)
        with cache.open("wb") as file:
            file.truncate(CACHE)  # a hole is page cache once it is read
        self.stage.unit(
            NEIGHBOUR,
            "[Unit]\nDescription=A neighbour of the dead\n"
            f"[Service]\nSlice={SLICE}\nMemoryAccounting=yes\n"
            f"ExecStart={sys.executable} -I -S {living} {cache} {ANON}\n",
        )
        self.stage.run("systemctl", "start", NEIGHBOUR)
        self._wait_for_neighbour()
        if self._is_v1 and self._swaps:
            self._squeeze()
            self.refresh_neighbour()

    def _squeeze(self) -> None:
        """v1 charges as swap only what has left the swap cache, too, which takes a need of memory:
        so much that its page cache is not enough."""
        limit = self.home / "memory.limit_in_bytes"
        with contextlib.suppress(OSError):  # the last of it may be too busy to go
            limit.write_text(str(ANON * 3 // 4))
        limit.write_text("-1")

    def refresh_neighbour(self) -> None:
        """Have it read its file again, and so its cache back, and half of it be in swap again."""
        os.kill(self.neighbour_pid(), signal.SIGHUP)
        self._wait_for_neighbour()

    def _wait_for_neighbour(self) -> None:
        self.stage.until("the neighbour's memory", self._is_settled, 60)

    def _is_settled(self) -> bool:
        has = self.neighbour()
        whole = has["anonymous"] + has["swapped"] > ANON * 0.9
        return has["cache"] > CACHE * 0.9 and whole and (has["swapped"] > 0) is self._swaps

    def neighbour_pid(self) -> int:
        return int(self.show(NEIGHBOUR, "MainPID") or 0)

    def neighbour(self) -> dict[str, int]:
        """Its page cache and its swap by its cgroup; its anonymous and its swapped memory by its
        process, too, for swap is accounted only where the kernel was told to. Bytes; 0 where it is
        gone."""
        try:
            cache = number_of(self.home / "memory.stat", "total_cache" if self._is_v1 else "file")
            status = Path(f"/proc/{self.neighbour_pid()}/status")
            anonymous = number_of(status, "RssAnon:") << 10
            swapped = number_of(status, "VmSwap:") << 10
            swap = self._swap_charged()
        except (FileNotFoundError, ProcessLookupError):
            cache = anonymous = swapped = swap = 0
        return {"cache": cache, "anonymous": anonymous, "swapped": swapped, "swap_charged": swap}

    def _swap_charged(self) -> int:
        if self._is_v1:
            return number_of(self.home / "memory.stat", "total_swap")
        current = self.home / "memory.swap.current"
        return int(current.read_text()) if current.exists() else 0

    @property
    def _is_v1(self) -> bool:
        return self.stage.layout.version == 1

    def swap_on(self) -> str:
        """A swap file, where this kernel takes one; else why not."""
        place = self.stage.folder / "swap"
        with place.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            for _ in range(SWAP >> 20):
                file.write(bytes(1 << 20))
        with contextlib.suppress(FileNotFoundError):
            self.stage.run("mkswap", place, check=False)
            self.stage.run("swapon", place, check=False)
            if str(place) in Path("/proc/swaps").read_text():
                self.stage.later(self._swap_off, place)
                self._swaps = True
                return ""
        return "no swap could be switched on"

    def _swap_off(self, place: Path) -> None:
        self.stage.run("swapoff", place, check=False)


def number_of(path: Path, name: str) -> int:
    """The number after a name, in a file of such lines; 0 where it is not there."""
    for line in path.read_text().splitlines():
        words = line.split()
        if words and words[0] == name:
            return int(words[1])
    return 0


def picture(trees: tuple[str, ...] = TREES) -> dict[str, str]:
    """Every entry of the units' directories: kind, mode, owner, time, and content or target. Of
    directories no times, since making and removing a file in one changes them."""
    found: dict[str, str] = {}
    for top in trees:
        for folder, folders, files in os.walk(top):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                found[path] = _entry(path)
        with contextlib.suppress(FileNotFoundError):
            found[top] = _entry(top)
    return found


def _entry(path: str) -> str:
    about = os.lstat(path)
    mode = f"{stat.filemode(about.st_mode)} {about.st_uid}:{about.st_gid}"
    if stat.S_ISLNK(about.st_mode):
        return f"{mode} {about.st_mtime_ns} -> {os.readlink(path)}"
    if stat.S_ISREG(about.st_mode):
        content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        return f"{mode} {about.st_mtime_ns} {content}"
    return mode


def tree_hash(entries: dict[str, str]) -> str:
    """One number for a `picture`."""
    lines = "\n".join(f"{path}\t{entry}" for path, entry in sorted(entries.items()))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What is not as it was, a line each."""
    return [
        f"{path}: {before.get(path, 'not there')} before, {after.get(path, 'not there')} after"
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]
