"""What a scene uses to act on the machine, and the cleanup after it.

A scene is a module `lab/scenes/<id>/scene.py` with `ID`, `TITLE`, `SECONDS`, `NEEDS`, `EXPECTED`
and ``play(stage)``. Optional: ``prepare(stage)``, run before the recording starts; `LIVE`, the
cause that a live diagnosis must name if the scene is still active at its end (`None`: healthy);
`KERNEL`, extra kernel command-line arguments. A scene creates everything through the stage, which
removes it in reverse order at the end, after a failure and after Ctrl-C: processes by PID, cgroups,
mounts, units, namespaces.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from lab.deadlines import in_lab_vm
from lab.recorder import FACILITY
from lab.zombie_maker import remove
from sexton.errors import SourceError
from sexton.host.host import open_host
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.net import NicQueue
from sexton.sources.cgroupfs.census import Census
from sexton.sources.cgroupfs.layout import Layout, cgroup_mounts, read_layout, v1_mounts
from sexton.sources.nic.queues import Queues
from sexton.store.pins import leave_mark, remark_now

PREFIX = "sexton-lab"
ACTORS = Path(__file__).with_name("actors")
_ERROR = 3
_UNITS = Path("/run/systemd/system")
_T = TypeVar("_T")


class CannotPlay(Exception):
    """This machine cannot play the scene; the text says why."""


class SceneFailed(Exception):
    """Something the scene needs died or did not appear in time."""


class Stage:
    """See the module. `pace` scales waits: 1.0 as written, less for a quick run."""

    def __init__(self, out: Path, expected: Mapping[str, Any], pace: float = 1.0) -> None:
        self.out = out
        self.expected = dict(expected)
        self.pace = pace
        #: Lines written to the kernel log that no driver here printed.
        self.injected: list[str] = []
        #: Descriptions of what replaces something this machine does not have.
        self.substitutes: list[str] = []
        #: Why `expected` differs from the scene's.
        self.adapted: list[str] = []
        #: What happened when: UNIX time and description.
        self.moments: list[tuple[float, str]] = []
        #: The cause that a live diagnosis must name: see `lab.play`.
        self.live_root: str | None = None
        #: Values that `prepare` passes to `play`.
        self.props: dict[str, Any] = {}
        self.layout: Layout = read_layout(open_host())
        self._stack = ExitStack()
        self._needed: list[subprocess.Popen[bytes]] = []
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}-"))
        self._stack.callback(_delete, self.folder)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None and self.out.is_dir():  # the original is deleted below
            (self.out / "actors.log").write_text(self.actor_output())
        self._stack.__exit__(*error)

    # The machine

    @property
    def systemd(self) -> bool:
        return _UNITS.is_dir()

    @property
    def hierarchy(self) -> str:
        """The cgroup hierarchy; an unused cgroup2 mount beside v1 does not count as hybrid."""
        known = self.layout.hierarchy
        return "v1" if known == "hybrid" and not self.systemd else known

    @property
    def in_lab_vm(self) -> bool:
        return in_lab_vm()

    @cached_property
    def cores(self) -> list[int]:
        return sorted(os.sched_getaffinity(0))

    @cached_property
    def queue(self) -> NicQueue:
        """A queue of a physical NIC that a single core serves; transmit queues first."""
        try:
            rows = list(Queues(open_host()).collect())
        except SourceError as error:
            raise CannotPlay(f"cannot read the queues of any NIC: {error}") from error
        fit = [row for row in rows if row.queue is not None and len(row.cpus) == 1]
        fit.sort(key=lambda row: ("tx" not in row.direction, row.nic, row.queue))
        if not fit:
            raise CannotPlay("no NIC queue here is served by a single core")
        return fit[0]

    @property
    def other_core(self) -> int:
        """A core that does not serve the NIC's queue, if there is one."""
        return next(
            (core for core in reversed(self.cores) if core != self.queue.cpus[0]), self.cores[0]
        )

    def dying_cgroups(self) -> int | None:
        """Number of dying memory cgroups on the node."""
        row = next(iter(Census(open_host()).collect()))
        return row.dying if isinstance(row, CgroupCensus) else None

    def live_cgroups(self) -> int:
        """Number of live memory cgroups on the node."""
        row = next(iter(Census(open_host()).collect()))
        return (row.live or 0) if isinstance(row, CgroupCensus) else 0

    # scene.json

    def note(self, words: str) -> None:
        """Log an event with its time; diagnoses are compared with these events."""
        self.moments.append((time.time(), words))
        print(f"lab: {words}", file=sys.stderr, flush=True)

    def mark(self, text: str) -> None:
        """Leave a mark, as ``sexton recording mark`` does."""
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        leave_mark(self.out, remark_now(text, boot_id))
        self.note(f"marked: {text}")

    def inject_kmsg(self, line: str) -> None:
        """Write a line to the kernel log that no driver here would print; scene.json lists it."""
        with open("/dev/kmsg", "wb", buffering=0) as log:
            log.write(f"<{FACILITY << 3 | _ERROR}>{line}\n".encode())
        self.injected.append(line)
        self.note(f"injected: {line}")

    def substitute(self, words: str) -> None:
        self.substitutes.append(words)

    def adapt(self, why: str, **changes: Any) -> None:
        """Change the expected diagnosis, because this machine cannot show the whole scene."""
        self.adapted.append(why)
        self.expected |= changes
        print(f"lab: {why}", file=sys.stderr, flush=True)

    def expect_no_zombies(self, why: str) -> None:
        """Expect a healthy node, because this kernel keeps no zombies."""
        self.live_root = None
        named = {"named": []} if "named" in self.expected else {}
        absent = ["zombie_memcgs", "cgroup_churn", *self.expected["absent"]]
        self.adapt(why, root=None, chain=[], present=[], absent=absent, exit=0, **named)

    # Time

    def wait(self, seconds: float) -> None:
        """Wait; fails if a process that must keep running died."""
        end = time.monotonic() + seconds * self.pace
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
            for popen in self._needed:
                if popen.poll() not in (None, 0):
                    raise SceneFailed(f"{popen.args!r} exited with status {popen.returncode}")

    def until(self, what: str, true: Callable[[], bool], within_s: float) -> None:
        """Wait until `true()`; `SceneFailed` after `within_s`."""
        end = time.monotonic() + within_s
        while not true():
            if time.monotonic() > end:
                raise SceneFailed(f"not within {within_s:g} s: {what}")
            time.sleep(0.1)

    # Processes

    def run(self, *argv: str | Path, check: bool = True) -> str:
        """Run a command to its end; returns its standard output."""
        words = " ".join(map(str, argv))
        try:
            ended = subprocess.run(
                list(map(str, argv)), capture_output=True, text=True, timeout=300, check=False
            )
        except subprocess.TimeoutExpired:
            raise SceneFailed(f"{words}: did not end within five minutes") from None
        if check and ended.returncode:
            raise SceneFailed(f"{words}: exit {ended.returncode}: {ended.stderr.strip()[-400:]}")
        return ended.stdout

    def spawn(
        self,
        *argv: str | Path,
        core: int | None = None,
        inside: Iterable[Path] = (),
        namespace: str | None = None,
        may_die: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a process on a core, in cgroups, in a network namespace; killed after the scene.

        The kernel kills it if we die.
        """
        command = ["setpriv", "--pdeathsig", "KILL"]
        if core is not None:
            command += ["taskset", "-c", str(core)]
        if namespace is not None:
            command += ["nsenter", f"--net=/run/netns/{namespace}"]
        join = "".join(f'echo $$ > "{path}/cgroup.procs" && ' for path in inside)
        command += ["sh", "-c", f'{join}exec "$@"', "sh", *map(str, argv)]
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "actors.log").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.end_later(started)
        if not may_die:
            self._needed.append(started)
        return started

    def actor(self, name: str, *args: object, **how: Any) -> subprocess.Popen[bytes]:
        """Start one of `lab/actors`; `how` are arguments of `spawn`."""
        words = [sys.executable, "-I", "-S", str(ACTORS / f"{name}.py"), *map(str, args)]
        return self.spawn(*words, **how)

    def prioritized_actor(self, name: str, *args: object, **how: Any) -> subprocess.Popen[bytes]:
        """Start an actor at the highest nice priority, so that it gets all of its core."""
        started = self.actor(name, *args, **how)
        with contextlib.suppress(OSError):  # already gone, or a kernel without autogroups
            os.setpriority(os.PRIO_PROCESS, started.pid, -20)
            # Sessions compete as a whole (autogroup): without this a nice value has little effect.
            Path(f"/proc/{started.pid}/autogroup").write_text("-20")
        return started

    def end_later(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Kill it after the scene, with its process group if it leads one."""
        self._stack.callback(self.end, process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill it now."""
        if process in self._needed:
            self._needed.remove(process)
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(process.pid) == process.pid:
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
        process.wait()

    def finish(self, process: subprocess.Popen[bytes], within_s: float) -> None:
        """Wait for it to exit; `SceneFailed` if it fails or does not exit in time."""
        try:
            status = process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            raise SceneFailed(f"{process.args!r} did not exit within {within_s:g} s") from None
        if status:
            raise SceneFailed(
                f"{process.args!r} exited with status {status}: {self.actor_output()[-400:]}"
            )

    def actor_output(self) -> str:
        """Everything the actors printed so far."""
        log = self.folder / "actors.log"
        return log.read_text(errors="replace") if log.exists() else ""

    # Things to clean up

    def enter(self, thing: AbstractContextManager[_T]) -> _T:
        """Enter a context manager now, leave it after the scene."""
        return self._stack.enter_context(thing)

    def at_end(self, do: Callable[..., object], *args: object) -> None:
        """Call `do` after the scene."""
        self._stack.callback(do, *args)

    def tmpfs(self, name: str) -> Path:
        """Mount a tmpfs."""
        place = self.folder / name
        place.mkdir()
        self.run("mount", "-t", "tmpfs", "-o", "mode=755", PREFIX, place)
        self._stack.callback(self.run, "umount", "-l", place, check=False)
        return place

    def cgroup(self, controller: str, name: str = "") -> Path:
        """Make a cgroup with that controller: in its v1 hierarchy if there is one, else on v2."""
        top = self._hierarchy_of(controller)
        made = top / f"{PREFIX}-{os.getpid()}{name and '-'}{name}"
        if not made.is_dir():
            made.mkdir()
            self._stack.callback(remove, made)
        return made

    def limited_cgroup(self, name: str, limit_bytes: int) -> Path:
        """Make a cgroup with a memory limit."""
        made = self.cgroup("memory", name)
        limit = "memory.limit_in_bytes" if self.layout.version == 1 else "memory.max"
        (made / limit).write_text(str(limit_bytes))
        return made

    def _hierarchy_of(self, controller: str) -> Path:
        mounts = cgroup_mounts(open_host())
        first = v1_mounts(mounts, controller)
        if first:
            return Path(min((mount.mount_point for mount in first), key=len))
        for mount in mounts:
            top = Path(mount.mount_point)
            if mount.fstype != "cgroup2" or not (top / "cgroup.controllers").exists():
                continue
            if controller not in (top / "cgroup.controllers").read_text().split():
                continue
            delegated = top / "cgroup.subtree_control"
            if controller not in delegated.read_text().split():
                with contextlib.suppress(OSError):  # refused if the root has processes
                    delegated.write_text(f"+{controller}")
                    self._stack.callback(_disable_controller, delegated, controller)
            if controller in delegated.read_text().split():
                return top
        raise CannotPlay(f"no cgroup hierarchy here delegates the {controller} controller")

    def remove_at_end(self, name: str) -> None:
        """Remove a cgroup from every hierarchy after the scene; runc creates it in each."""
        for mount in cgroup_mounts(open_host()):
            self._stack.callback(_remove_if_present, Path(mount.mount_point) / name)

    def unit(self, name: str, text: str) -> None:
        """Install a systemd unit; stopped and removed after the scene."""
        path = _UNITS / name
        if path.exists():
            raise CannotPlay(f"{path} already exists")
        self._stack.callback(self._remove_unit, name, path)
        path.write_text(text)
        self.run("systemctl", "daemon-reload")

    def _remove_unit(self, name: str, path: Path) -> None:
        self.run("systemctl", "stop", name, check=False)
        path.unlink(missing_ok=True)
        self.run("systemctl", "daemon-reload", check=False)
        self.run("systemctl", "reset-failed", name, check=False)


def _disable_controller(delegated: Path, controller: str) -> None:
    with contextlib.suppress(OSError):
        delegated.write_text(f"-{controller}")


def _remove_if_present(directory: Path) -> None:
    if directory.is_dir():
        remove(directory)


def _delete(folder: Path) -> None:
    """Delete the folder, unless something is still mounted in it: that could be other files."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    if any(line.split()[4].startswith(f"{folder}/") for line in mounts):
        print(f"lab: {folder} not deleted: something is still mounted in it", file=sys.stderr)
        return
    shutil.rmtree(folder, ignore_errors=True)
