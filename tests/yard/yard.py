"""A real systemd as PID 1, in namespaces of its own, on this machine.

::

    with Yard() as yard:
        yard.install("crash.service", CRASH)
        yard.run("systemctl", "start", "crash.service")

It boots in about a second: own mount, PID, cgroup, UTS and IPC namespaces, a chroot to a
read-only bind of ``/``, a private ``/run``, ``/tmp``, ``/dev`` and private cgroup mounts, whose
roots are a cgroup of the yard's own in every hierarchy. The host sees processes and one
`sexton-test-…` directory per hierarchy, and after the end of the `with` neither. The network is
the host's: nothing in the yard uses it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

REPOSITORY = Path(__file__).parents[2]
SYSTEMD = Path("/lib/systemd/systemd")
#: This interpreter as a shell and a unit file take it: the path of a checkout may have spaces.
PYTHON = shlex.quote(sys.executable)
#: What our own programs need to see inside.
TREES = tuple(dict.fromkeys(map(str, (REPOSITORY, sys.prefix, sys.base_prefix))))
#: For a unit with PrivateTmp=, which hides a checkout that lies below one of these.
SEEN = "".join(
    f"BindReadOnlyPaths={shlex.quote(tree)}\n"
    for tree in TREES
    if tree.startswith(("/tmp/", "/var/tmp/"))
)

_TARGET = """\
[Unit]
Description=The yard is up
DefaultDependencies=no
Requires=dbus.socket dbus.service
After=dbus.socket dbus.service
"""

_BUS_SOCKET = """\
[Unit]
DefaultDependencies=no
[Socket]
ListenStream=/run/dbus/system_bus_socket
"""

_BUS = """\
[Unit]
DefaultDependencies=no
Requires=dbus.socket
[Service]
Type=notify
ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile \
--systemd-activation
"""

#: What socket activation or a dependency could pull in, and no test needs.
_MASKED = ("systemd-journald.service", "systemd-journald.socket", "systemd-udevd.service")


def why_not() -> str | None:
    """Why there can be no yard here, as a skip reason; `None` where there can."""
    if os.geteuid() != 0:
        return "the yard needs root (namespaces, mounts, cgroups)"
    needed = {
        "systemd": SYSTEMD.exists(),
        "dbus": shutil.which("dbus-daemon") is not None,
        "util-linux": shutil.which("unshare") is not None and shutil.which("nsenter") is not None,
    }
    missing = [package for package, there in needed.items() if not there]
    return f"not installed: apt-get install {' '.join(missing)}" if missing else None


class YardError(RuntimeError):
    """It did not come up, or a command in it failed."""


@dataclass(frozen=True)
class Hierarchy:
    """One cgroup mount of the host, and the yard's own directory in it."""

    mount_point: str
    fstype: str
    options: str
    own: Path


class Yard:
    """See the module. `cgroups` maps "memory", "systemd", "unified", … to the yard's own
    directory of that hierarchy, as the host sees it."""

    def __init__(self, deadline_s: float = 180.0) -> None:
        self.deadline_s = deadline_s
        self.boot_s = 0.0
        self.pid = 0
        self.cgroups: dict[str, Path] = {}
        self._hierarchies: list[Hierarchy] = []
        self._base: Path | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Yard:
        reason = why_not()
        if reason is not None:
            raise YardError(reason)
        started = time.monotonic()
        try:
            self._boot()
        except BaseException:  # leave nothing behind, whatever it was
            self.close()
            raise
        self.boot_s = time.monotonic() - started
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, *argv: str, deadline_s: float = 180.0, check: bool = True) -> str:
        """Run a program inside, as root, in the repository; its standard output."""
        done = subprocess.run(
            [*self._enter(), *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=deadline_s,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )
        output = done.stdout.decode("utf-8", "surrogateescape")
        if check and done.returncode != 0:
            errors = done.stderr.decode("utf-8", "replace")
            raise YardError(f"{' '.join(argv)}: exit {done.returncode}\n{output}{errors}")
        return output

    def programs(self) -> list[str]:
        """The names of the processes inside; one that ends while it is asked has none."""
        return self.run("sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null || true").split()

    def python(self, code: str, deadline_s: float = 180.0) -> str:
        """Run Python inside with this interpreter, its packages and this checkout."""
        return self.run(sys.executable, "-B", "-c", code, deadline_s=deadline_s)

    def install(self, name: str, text: str) -> None:
        """Write a unit into the yard's private /run and make systemd know it."""
        root = Path(f"/proc/{self.pid}/root")
        (root / "run/systemd/system" / name).write_text(text)
        self.run("systemctl", "daemon-reload")

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """`systemctl show` of some properties: the oracle of our own client."""
        text = self.run("systemctl", "show", unit, "-p", ",".join(properties))
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def wait(self, what: str, true: Callable[[], bool], deadline_s: float = 180.0) -> None:
        """Until `true()`, or `YardError`."""
        end = time.monotonic() + deadline_s
        while not true():
            if time.monotonic() > end:
                raise YardError(f"not within {deadline_s:g} s: {what}")
            time.sleep(0.05)

    def close(self) -> None:
        """Kill its PID 1 (which ends everything in it), then remove its cgroups and files."""
        if self._child is not None:
            self._end(self._child)
            self._child = None
        self.pid = 0
        for hierarchy in self._hierarchies:
            _remove(hierarchy.own)
        self._hierarchies = []
        if self._base is not None:
            shutil.rmtree(self._base)
            self._base = None

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """`unshare` reaps its PID 1 and ends by itself; where that was never told, it goes first,
        and the kernel ends PID 1 for it."""
        if child.poll() is not None:
            return
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=10)
        child.kill()
        child.wait()

    def _enter(self) -> list[str]:
        # -a does not change the root directory: -r does.
        return ["nsenter", "-t", str(self.pid), "-a", "-r", f"--wd={REPOSITORY}"]

    def _boot(self) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="yard-"))
        self._hierarchies = list(_hierarchies(f"sexton-test-{os.getpid()}-{self._base.name}"))
        for hierarchy in self._hierarchies:
            _create(hierarchy.own)
            self.cgroups[Path(hierarchy.mount_point).name] = hierarchy.own
        self._write(self._base)
        join = "".join(f'echo $$ >"{item.own}/cgroup.procs"\n' for item in self._hierarchies)
        # Joined before the cgroup namespace is made: its roots are then the yard's own. Should
        # this process be killed, the kernel ends `unshare`, and that its child: no yard is left.
        unshare = "setpriv --pdeathsig KILL unshare -m -p -f -C -u -i --kill-child"
        script = f'set -e\n{join}exec {unshare} sh "$@"'
        errors = (self._base / "errors").open("wb")
        self._child = subprocess.Popen(
            ["sh", "-c", script, "sh", str(Path(__file__).with_name("boot.sh")),
             str(self._base), *TREES],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD": str(SYSTEMD)},
            start_new_session=True,
        )  # fmt: skip
        errors.close()
        self.wait("the namespaces", self._began, self.deadline_s)
        self.wait("systemd", self._up, self.deadline_s)

    def _write(self, base: Path) -> None:
        units = base / "units"
        for directory in (units, base / "root"):
            directory.mkdir()
        (units / "yard.target").write_text(_TARGET)
        (units / "dbus.socket").write_text(_BUS_SOCKET)
        (units / "dbus.service").write_text(_BUS)
        for name in _MASKED:
            (units / name).write_bytes(b"")  # an empty unit file is a masked one
        (base / "machine-id").write_text(os.urandom(16).hex() + "\n")
        (base / "hierarchies").write_text(
            "".join(f"{item.mount_point} {item.fstype} {item.options}\n"
                    for item in self._hierarchies)
        )  # fmt: skip

    def _began(self) -> bool:
        written = self._alive() / "pid"
        if written.exists():
            self.pid = int(written.read_text())
        return self.pid != 0

    def _up(self) -> bool:
        self._alive()
        return self.run("systemctl", "is-active", "yard.target", check=False).strip() == "active"

    def _alive(self) -> Path:
        assert self._child is not None
        assert self._base is not None
        status = self._child.poll()
        if status is not None:
            errors = (self._base / "errors").read_text(errors="replace")
            raise YardError(f"PID 1 ended with {status}: {errors}")
        return self._base


def _hierarchies(name: str) -> Iterator[Hierarchy]:
    """The host's cgroup mounts below /sys/fs/cgroup, or the one that is /sys/fs/cgroup."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount_point = left.split()[4]
        fstype, _, options = right.split()[:3]
        if fstype not in ("cgroup", "cgroup2") or not mount_point.startswith("/sys/fs/cgroup"):
            continue
        kept = [item for item in options.split(",") if item not in ("rw", "ro", "xattr")]
        if any(item.startswith("name=") for item in kept):
            kept.insert(0, "none")
        yield Hierarchy(mount_point, fstype, ",".join(kept) or "rw", Path(mount_point) / name)


def _create(own: Path) -> None:
    own.mkdir()
    for name in ("cpuset.cpus", "cpuset.mems"):  # v1: a new cpuset takes no task while empty
        if (own / name).exists() and not (own / name).read_text().strip():
            (own / name).write_text((own.parent / name).read_text())


def _remove(own: Path) -> None:
    """Leaves first; a directory is busy for some milliseconds after its last process."""
    if not own.exists():
        return
    for directory in sorted((path for path in own.rglob("*") if path.is_dir()), reverse=True):
        _rmdir(directory)
    _rmdir(own)


def _rmdir(directory: Path, deadline_s: float = 180.0) -> None:
    end = time.monotonic() + deadline_s
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return
