"""A sick Kubernetes node: an ECS agent that nobody needs crash-loops and leaves zombies.

As in the incident, under a real systemd: ``kubelet.service`` (a sleep), and ``ecs.service``,
enabled by the image, which fails and restarts forever. Each run leaves dying memory cgroups below
its slice. Page cache holds them, so that they can be freed. Under the same parent runs a neighbour
with page cache and anonymous memory, half of it in swap. The stage cleans everything up. Only for
the lab's VM: it installs units in ``/usr``.
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
#: Directories of administrators' units: the only files that a fix may change.
TREES = (
    "/etc/systemd/system",
    "/etc/systemd/system.control",
    "/run/systemd/system",
    "/run/systemd/system.control",
)
CACHE, ANON, SWAP = 64 << 20, 32 << 20, 64 << 20
#: Zombies per run: many to make them fast, few while commands observe the node.
MANY_TASKS, WATCHED_TASKS = 64, 3
#: An mtime for a link and a drop-in that nothing else would set.
_THEN_NS = 981_173_106_789_000_000

_KUBELET_UNIT = (
    "[Unit]\nDescription=kubelet: The Kubernetes Node Agent\n"
    "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
)
#: From the ECS agent's deb: RestartSec=10s stays below the start limit, so it restarts forever.
_ECS_UNIT = """\
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
_DROP_IN = "# Added by the owner.\n[Service]\nEnvironment=ECS_LOGLEVEL=info\n"
#: Fills page cache and anonymous memory, and sends half of the latter to swap (21: MADV_PAGEOUT).
_NEIGHBOUR = """\
import contextlib, mmap, signal, sys
memory = mmap.mmap(-1, int(sys.argv[2]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for offset in range(0, len(memory), 4096):
    memory[offset] = 1
def check(*_):
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


class SickNode:
    """See the module. The constructor changes nothing."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.top = Path(stage.layout.mount_point or "/nonexistent")
        self.home = self.top / SLICE / NEIGHBOUR
        self._agent: Agent | None = None
        self._has_swap = False

    # Units

    def install_kubelet(self) -> None:
        """Enable kubelet without starting it."""
        self._install(KUBELET, _KUBELET_UNIT)
        self._enable(KUBELET)

    def install_ecs(self) -> None:
        """Install the agent as its deb would, enabled and not started, with a drop-in by the
        owner."""
        self._install(ECS, _ECS_UNIT)
        self._enable(ECS)
        folder = ETC / f"{ECS}.d"
        folder.mkdir()
        self.stage.at_end(shutil.rmtree, folder, True)
        drop_in = folder / "10-owner.conf"
        drop_in.write_text(_DROP_IN)
        drop_in.chmod(0o640)
        os.utime(drop_in, ns=(_THEN_NS, _THEN_NS))

    def start(self) -> None:
        """Start the healthy node: kubelet and the neighbour."""
        self.stage.run("systemctl", "daemon-reload")
        self.stage.run("systemctl", "start", KUBELET)
        disk = Path(tempfile.mkdtemp(prefix="lab-pins-", dir="/var/tmp"))
        self.stage.at_end(shutil.rmtree, disk, True)
        self._agent = Agent(self.stage, ECS, disk=disk)
        self._start_neighbour()

    def start_crash_loop(self) -> None:
        """Start the agent as in the deb, but with a faster restart to save time."""
        more = f"StartLimitIntervalSec=0\n[Service]\nSlice={SLICE}\nDelegate=yes\n"
        text = _ECS_UNIT.replace("[Service]\n", f"{more}MemoryAccounting=yes\n")
        text = text.replace("RestartSec=10s", "RestartSec=300ms")
        text = text.replace("/usr/libexec/amazon-ecs-init start", self.agent.command)
        (VENDOR / ECS).write_text(text)
        self.stage.run("systemctl", "daemon-reload")
        self.stage.run("systemctl", "start", "--no-block", ECS)

    def loop_protected(self, name: str) -> None:
        """Let a protected unit crash-loop too."""
        self._install(
            name,
            "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/false\n"
            "Restart=always\nRestartSec=500ms\n",
        )
        self.stage.run("systemctl", "daemon-reload")
        self.stage.run("systemctl", "start", "--no-block", name)
        self.stage.until(f"{name} loops", lambda: self.restarts(name) >= 3, 60)

    def remove_unit(self, name: str) -> None:
        """Remove what `loop_protected` installed."""
        self.stage.run("systemctl", "stop", name, check=False)
        (VENDOR / name).unlink(missing_ok=True)
        self.stage.run("systemctl", "daemon-reload")
        self.stage.run("systemctl", "reset-failed", name, check=False)

    @property
    def agent(self) -> Agent:
        assert self._agent is not None, "call start first"
        return self._agent

    def _install(self, name: str, text: str) -> None:
        path = VENDOR / name
        if not path.exists():
            self.stage.at_end(self._uninstall, name)
        path.write_text(text)

    def _enable(self, name: str) -> None:
        link = ETC / "multi-user.target.wants" / name
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(VENDOR / name)
        os.utime(link, ns=(_THEN_NS, _THEN_NS), follow_symlinks=False)

    def _uninstall(self, name: str) -> None:
        self.stage.run("systemctl", "stop", name, check=False)
        for path in (VENDOR / name, ETC / name, ETC / "multi-user.target.wants" / name):
            path.unlink(missing_ok=True)
        self.stage.run("systemctl", "daemon-reload", check=False)

    # State

    def show(self, unit: str, name: str) -> str:
        return self.stage.run("systemctl", "show", "-p", name, "--value", unit).strip()

    def restarts(self, unit: str = ECS) -> int:
        return int(self.show(unit, "NRestarts") or 0)

    def is_active(self, unit: str = ECS) -> bool:
        """Running, or waiting for a restart."""
        return self.show(unit, "ActiveState") not in ("inactive", "failed")

    def zombies(self) -> int:
        """Number of zombies on the node, without using code under test: the lowest of three counts,
        because an ordinary removal takes a few milliseconds."""
        counts = []
        for _ in range(3):
            counts.append(self._count_zombies())
            time.sleep(0.1)
        return min(counts)

    def _count_zombies(self) -> int:
        if self.stage.layout.version == 2:
            return number_of(self.top / "cgroup.stat", "nr_dying_descendants")
        lines = Path("/proc/cgroups").read_text().splitlines()
        known = next(int(line.split()[2]) for line in lines if line.startswith("memory"))
        return known - sum(1 for _ in os.walk(self.top))

    def wait_for_zombies(self, most: int, within_s: float = 20) -> int:
        """Wait until there are at most `most`, since the kernel releases them with a delay; returns
        the count."""
        end = time.monotonic() + within_s
        while (count := self.zombies()) > most and time.monotonic() < end:
            time.sleep(0.5)
        return count

    def dig(self, number: int) -> int:
        """Let the agent leave zombies until there are `number`, then only a few per run."""
        self.agent.set_tasks(MANY_TASKS)
        self.stage.until(f"{number} zombies", lambda: self.zombies() >= number, within_s=200)
        self.agent.set_tasks(WATCHED_TASKS)
        os.sync()
        return self.zombies()

    # The neighbour

    def _start_neighbour(self) -> None:
        living, cache = self.stage.folder / "living.py", self.stage.folder / "cache"
        living.write_text(_NEIGHBOUR)
        with cache.open("wb") as file:
            file.truncate(CACHE)  # a hole is page cache once it is read
        self.stage.unit(
            NEIGHBOUR,
            "[Unit]\nDescription=A neighbour of the zombies\n"
            f"[Service]\nSlice={SLICE}\nMemoryAccounting=yes\n"
            f"ExecStart={sys.executable} -I -S {living} {cache} {ANON}\n",
        )
        self.stage.run("systemctl", "start", NEIGHBOUR)
        self._wait_for_neighbour()
        if self._is_v1 and self._has_swap:
            self._squeeze()
            self.refresh_neighbour()

    def _squeeze(self) -> None:
        """v1 charges swap only for pages that left the swap cache. That takes memory pressure
        beyond what dropping page cache relieves."""
        limit = self.home / "memory.limit_in_bytes"
        with contextlib.suppress(OSError):  # EBUSY: some pages could not be reclaimed
            limit.write_text(str(ANON * 3 // 4))
        limit.write_text("-1")

    def refresh_neighbour(self) -> None:
        """Let it read its file again and swap half of its memory out again."""
        os.kill(self.neighbour_pid(), signal.SIGHUP)
        self._wait_for_neighbour()

    def _wait_for_neighbour(self) -> None:
        self.stage.until("the neighbour's memory", self._is_settled, 60)

    def _is_settled(self) -> bool:
        has = self.neighbour_memory()
        whole = has["anonymous"] + has["swapped"] > ANON * 0.9
        return has["cache"] > CACHE * 0.9 and whole and (has["swapped"] > 0) is self._has_swap

    def neighbour_pid(self) -> int:
        return int(self.show(NEIGHBOUR, "MainPID") or 0)

    def neighbour_memory(self) -> dict[str, int]:
        """Bytes, 0 if it is gone: page cache and charged swap from its cgroup, anonymous and
        swapped memory from its process, because not every kernel accounts swap per cgroup."""
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
        """Enable a swap file; returns why that failed, or an empty string."""
        place = self.stage.folder / "swap"
        with place.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            for _ in range(SWAP >> 20):
                file.write(bytes(1 << 20))
        with contextlib.suppress(FileNotFoundError):
            self.stage.run("mkswap", place, check=False)
            self.stage.run("swapon", place, check=False)
            if str(place) in Path("/proc/swaps").read_text():
                self.stage.at_end(self._swap_off, place)
                self._has_swap = True
                return ""
        return "swap could not be enabled"

    def _swap_off(self, place: Path) -> None:
        self.stage.run("swapoff", place, check=False)


def number_of(path: Path, name: str) -> int:
    """The value of `name` in a file of "name value" lines; 0 if absent."""
    for line in path.read_text().splitlines():
        words = line.split()
        if words and words[0] == name:
            return int(words[1])
    return 0


def unit_files(trees: tuple[str, ...] = TREES) -> dict[str, str]:
    """Every entry of the unit directories: type, mode, owner, mtime, and content hash or link
    target. No mtime for directories, because creating and removing a file changes it."""
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
    """One hash of all `unit_files`."""
    lines = "\n".join(f"{path}\t{entry}" for path, entry in sorted(entries.items()))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Differences, one line each."""
    return [
        f"{path}: {before.get(path, 'not there')} before, {after.get(path, 'not there')} after"
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]
