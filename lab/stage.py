"""Where a scene is played: what it may use, and what is put away after it.

A scene is `lab/scenes/<id>/scene.py`: a module with `ID`, `TITLE`, `SECONDS`, `NEEDS`, `EXPECTED`
and ``play(stage)``; where something has to be there before the recording begins, also
``prepare(stage)``; where what it made goes on to the end, `LIVE`, the cause that a live diagnosis
must name then (`None`: that all is well); where the kernel needs it, `KERNEL`, words for its
command line. Whatever it makes it makes through the stage, which puts
it away in the reverse order at the end, after a failure and after Ctrl-C alike: processes by their
ids, cgroups, mounts, units, namespaces.
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

from lab.graveyard import remove
from lab.patience import own_machine
from lab.recorder import FACILITY
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
_Thing = TypeVar("_Thing")


class CannotPlay(Exception):
    """This machine cannot show that scene; the text says why."""


class SceneFailed(Exception):
    """Something the scene needs died or did not come."""


class Stage:
    """See the module. `pace` scales waits: 1.0 as written, less for a quick rehearsal."""

    def __init__(self, out: Path, expected: Mapping[str, Any], pace: float = 1.0) -> None:
        self.out = out
        self.expected = dict(expected)
        self.pace = pace
        #: Lines put into the kernel's log that no driver here said.
        self.injected: list[str] = []
        #: What stands in for something that cannot be had here, in words.
        self.substitutes: list[str] = []
        #: Why `expected` is not the scene's own.
        self.adapted: list[str] = []
        #: What truly happened when: UNIX time and words.
        self.moments: list[tuple[float, str]] = []
        #: What a live diagnosis must name after the scene: see `lab.play`.
        self.live_root: str | None = None
        #: What `prepare` leaves for `play`.
        self.props: dict[str, Any] = {}
        self.layout: Layout = read_layout(open_host())
        self._stack = ExitStack()
        self._needed: list[subprocess.Popen[bytes]] = []
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}-"))
        self._stack.callback(_delete, self.folder)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None and self.out.is_dir():  # what the actors said is gone with them
            (self.out / "actors.log").write_text(self.said())
        self._stack.__exit__(*error)

    # What this machine is

    @property
    def systemd(self) -> bool:
        return _UNITS.is_dir()

    @property
    def hierarchy(self) -> str:
        """How the node is set up; an unused cgroup2 mount beside v1 makes no hybrid."""
        known = self.layout.hierarchy
        return "v1" if known == "hybrid" and not self.systemd else known

    @property
    def own_machine(self) -> bool:
        return own_machine()

    @cached_property
    def cores(self) -> list[int]:
        return sorted(os.sched_getaffinity(0))

    @cached_property
    def queue(self) -> NicQueue:
        """A queue of a physical NIC that one core serves: the side that transmits first."""
        try:
            rows = list(Queues(open_host()).collect())
        except SourceError as error:
            raise CannotPlay(f"no NIC whose queues could be read: {error}") from error
        fit = [row for row in rows if row.queue is not None and len(row.cpus) == 1]
        fit.sort(key=lambda row: ("tx" not in row.direction, row.nic, row.queue))
        if not fit:
            raise CannotPlay("no NIC queue here is served by one core alone")
        return fit[0]

    @property
    def other_core(self) -> int:
        """A core that does not serve the NIC's queue, where there is one."""
        return next(
            (core for core in reversed(self.cores) if core != self.queue.cpus[0]), self.cores[0]
        )

    def dying(self) -> int | None:
        """Dead memory cgroups of the node."""
        row = next(iter(Census(open_host()).collect()))
        return row.dying if isinstance(row, CgroupCensus) else None

    def live(self) -> int:
        """Live ones."""
        row = next(iter(Census(open_host()).collect()))
        return (row.live or 0) if isinstance(row, CgroupCensus) else 0

    # What is told of it afterwards

    def moment(self, words: str) -> None:
        """Write down what happens now: the truth that a diagnosis is held against."""
        self.moments.append((time.time(), words))
        print(f"lab: {words}", file=sys.stderr, flush=True)

    def mark(self, text: str) -> None:
        """As ``sexton recording mark``."""
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        leave_mark(self.out, remark_now(text, boot_id))
        self.moment(f"marked: {text}")

    def kmsg(self, line: str) -> None:
        """Put a line into the kernel's log that nothing here would say, and own up to it."""
        with open("/dev/kmsg", "wb", buffering=0) as log:
            log.write(f"<{FACILITY << 3 | _ERROR}>{line}\n".encode())
        self.injected.append(line)
        self.moment(f"injected: {line}")

    def substitute(self, words: str) -> None:
        self.substitutes.append(words)

    def adapt(self, why: str, **changes: Any) -> None:
        """This machine cannot show all of it: expect something else, and say why."""
        self.adapted.append(why)
        self.expected |= changes
        print(f"lab: {why}", file=sys.stderr, flush=True)

    # Time

    def wait(self, seconds: float) -> None:
        """Let it go on; fails where something died that had to live."""
        end = time.monotonic() + seconds * self.pace
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
            for popen in self._needed:
                if popen.poll() not in (None, 0):
                    raise SceneFailed(f"{popen.args!r} ended with {popen.returncode}")

    def until(self, what: str, true: Callable[[], bool], within_s: float) -> None:
        """Until `true()`, or `SceneFailed`."""
        end = time.monotonic() + within_s
        while not true():
            if time.monotonic() > end:
                raise SceneFailed(f"not within {within_s:g} s: {what}")
            time.sleep(0.1)

    # Processes

    def run(self, *argv: str | Path, check: bool = True) -> str:
        """Run to its end; its standard output."""
        words = " ".join(map(str, argv))
        try:
            ended = subprocess.run(
                list(map(str, argv)), capture_output=True, text=True, timeout=300, check=False
            )
        except subprocess.TimeoutExpired:
            raise SceneFailed(f"{words}: no end within five minutes") from None
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
        """Start it, on a core, in cgroups, in a network namespace; it is ended after the scene.

        It dies with us whatever ends us.
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
        self.adopt(started)
        if not may_die:
            self._needed.append(started)
        return started

    def actor(self, name: str, *args: object, **how: Any) -> subprocess.Popen[bytes]:
        """Start one of `lab/actors`; `how` as in `spawn`."""
        words = [sys.executable, "-I", "-S", str(ACTORS / f"{name}.py"), *map(str, args)]
        return self.spawn(*words, **how)

    def hold(self, name: str, *args: object, **how: Any) -> subprocess.Popen[bytes]:
        """Start an actor that is to have its core to itself, whatever else is on it."""
        started = self.actor(name, *args, **how)
        with contextlib.suppress(OSError):  # gone already, or a kernel without autogroups
            os.setpriority(os.PRIO_PROCESS, started.pid, -20)
            # A session is weighed as a whole: without this its inner ranks would mean nothing.
            Path(f"/proc/{started.pid}/autogroup").write_text("-20")
        return started

    def adopt(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """End it after the scene, with its session where it leads one."""
        self._stack.callback(self.end, process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End it now."""
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
        """Let it come to its end; `SceneFailed` where that is none."""
        try:
            status = process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            raise SceneFailed(f"{process.args!r} did not end within {within_s:g} s") from None
        if status:
            raise SceneFailed(f"{process.args!r} ended with {status}: {self.said()[-400:]}")

    def said(self) -> str:
        """What the actors printed so far."""
        log = self.folder / "actors.log"
        return log.read_text(errors="replace") if log.exists() else ""

    # Things that are put away

    def open(self, thing: AbstractContextManager[_Thing]) -> _Thing:
        """Enter it now, leave it after the scene."""
        return self._stack.enter_context(thing)

    def later(self, do: Callable[..., object], *args: object) -> None:
        """Do it after the scene."""
        self._stack.callback(do, *args)

    def tmpfs(self, name: str) -> Path:
        """A tmpfs of our own."""
        place = self.folder / name
        place.mkdir()
        self.run("mount", "-t", "tmpfs", "-o", "mode=755", PREFIX, place)
        self._stack.callback(self.run, "umount", "-l", place, check=False)
        return place

    def cgroup(self, controller: str, name: str = "") -> Path:
        """A cgroup of our own with that controller: on v1 in its hierarchy, else on v2."""
        top = self._hierarchy_of(controller)
        made = top / f"{PREFIX}-{os.getpid()}{name and '-'}{name}"
        if not made.is_dir():
            made.mkdir()
            self._stack.callback(remove, made)
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
            handed = top / "cgroup.subtree_control"
            if controller not in handed.read_text().split():
                with contextlib.suppress(OSError):  # refused where a process lives in the root
                    handed.write_text(f"+{controller}")
                    self._stack.callback(_forget, handed, controller)
            if controller in handed.read_text().split():
                return top
        raise CannotPlay(f"no cgroup hierarchy here gives its children a {controller} controller")

    def sweep(self, name: str) -> None:
        """Remove a cgroup of ours from every hierarchy after the scene: runc makes it in all."""
        for mount in cgroup_mounts(open_host()):
            self._stack.callback(_remove_if_there, Path(mount.mount_point) / name)

    def unit(self, name: str, text: str) -> None:
        """Let systemd know a unit of ours; stopped and forgotten after the scene."""
        path = _UNITS / name
        if path.exists():
            raise CannotPlay(f"{path} is there already")
        self._stack.callback(self._forget_unit, name, path)
        path.write_text(text)
        self.run("systemctl", "daemon-reload")

    def _forget_unit(self, name: str, path: Path) -> None:
        self.run("systemctl", "stop", name, check=False)
        path.unlink(missing_ok=True)
        self.run("systemctl", "daemon-reload", check=False)
        self.run("systemctl", "reset-failed", name, check=False)


def _forget(handed: Path, controller: str) -> None:
    with contextlib.suppress(OSError):
        handed.write_text(f"-{controller}")


def _remove_if_there(directory: Path) -> None:
    if directory.is_dir():
        remove(directory)


def _delete(folder: Path) -> None:
    """Not through a mount that stayed: it may be somebody's files."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    if any(line.split()[4].startswith(f"{folder}/") for line in mounts):
        print(f"lab: {folder} is left, something is still mounted in it", file=sys.stderr)
        return
    shutil.rmtree(folder, ignore_errors=True)
