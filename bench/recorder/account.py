"""The cost of a program with everything it starts: CPU, memory and bytes of the whole tree.

CPU comes from a separate cgroup, which also counts children that live for a millisecond or outlive
their parent: cpuacct (v1) or `cpu.stat` (v2, present without any controller). Kernel work in
interrupts on behalf of a program (perf's samples, BPF on a tracepoint) is charged to the
interrupted task and is not included: see `slowdown` and `flood`.

Memory is the sum of VmHWM, each process's own peak, over the processes alive at the same time,
sampled twice a second. Shared pages count once per process, so the sum is an upper bound.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO

from sexton.model.text import printable

_INTERVAL_S = 0.5
_GRACE_S = 15


@dataclass(frozen=True)
class Program:
    """A program to run for `seconds`; `tick` is called once a second while it does."""

    name: str
    argv: tuple[str, ...]
    seconds: float
    ends_itself: bool = True
    tick: Callable[[], None] | None = None
    cores: frozenset[int] | None = None
    deadline_s: float = 15
    ok_statuses: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class Cost:
    """The cost of a run; the window starts after the warm-up and ends with the program."""

    window_s: float
    cpu_s: float
    start_cpu_s: float
    peak_bytes: int
    steady_bytes: int
    written_bytes: int
    whole_s: float
    left_behind: int
    failure: str

    @property
    def share(self) -> float:
        """CPU as percent of one core after start-up, including all work at its end."""
        return 100 * self.cpu_s / self.window_s

    @property
    def written_per_s(self) -> float:
        return self.written_bytes / self.whole_s


class Account:
    """A cgroup for a program and everything it starts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._procs = directory / "cgroup.procs"

    def enter(self) -> None:
        self._procs.write_text("0")

    def cpu_s(self) -> float:
        usage = self.directory / "cpuacct.usage"
        if usage.exists():
            return int(usage.read_text()) / 1e9
        return usage_of((self.directory / "cpu.stat").read_text())

    def pids(self) -> list[int]:
        return [int(part) for part in self._procs.read_text().split()]

    def peak_bytes(self) -> int:
        return sum(high_water(_read(f"/proc/{pid}/status")) for pid in self.pids())

    def resident_bytes(self) -> int:
        return sum(resident(_read(f"/proc/{pid}/status")) for pid in self.pids())

    def written_bytes(self) -> int:
        return sum(written(_read(f"/proc/{pid}/io")) for pid in self.pids())


def usage_of(cpu_stat: str) -> float:
    """CPU seconds from v2's `cpu.stat`.

    >>> usage_of("usage_usec 2500000\\nuser_usec 2000000\\nsystem_usec 500000\\n")
    2.5
    """
    found = re.search(r"^usage_usec (\d+)$", cpu_stat, re.MULTILINE)
    if found is None:
        raise ValueError(f"no usage_usec in {cpu_stat!r}")
    return int(found[1]) / 1e6


def high_water(status: str) -> int:
    """Peak resident bytes from `/proc/PID/status`; a kernel thread or zombie has none.

    >>> high_water("Name:\\tatop\\nVmPeak:\\t  9000 kB\\nVmHWM:\\t    5120 kB\\n")
    5242880
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def resident(status: str) -> int:
    """Resident bytes from `/proc/PID/status`.

    >>> resident("Name:\\tatop\\nVmHWM:\\t  9000 kB\\nVmRSS:\\t    5120 kB\\n")
    5242880
    """
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def written(io: str) -> int:
    """Bytes sent to storage from `/proc/PID/io`, including waited-for children.

    >>> written("rchar: 9\\nwchar: 7\\nread_bytes: 0\\nwrite_bytes: 4096\\n")
    4096
    """
    found = re.search(r"^write_bytes: (\d+)$", io, re.MULTILINE)
    return int(found[1]) if found else 0


def size_of(path: Path) -> int:
    """Bytes in a file, or in all files below a directory."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def hierarchy() -> Path:
    """A hierarchy whose cgroups account CPU."""
    v1 = Path("/sys/fs/cgroup/cpuacct")
    return v1 if v1.is_dir() else Path("/sys/fs/cgroup")


@contextmanager
def account(name: str = "cost") -> Iterator[Account]:
    """A cgroup whose remaining processes are killed at the end."""
    directory = hierarchy() / f"sexton-bench-{name}-{os.getpid()}"
    directory.mkdir()
    ours = Account(directory)
    try:
        yield ours
    finally:
        _kill_all(ours)
        directory.rmdir()


class EndedEarly(Exception):
    """A program ended although it should run during a measurement."""


@contextmanager
def running(program: Program, ours: Account) -> Iterator[None]:
    """Run the program in the account during another measurement, then end it."""
    with tempfile.TemporaryFile() as errors:
        child = _spawn(program, ours, errors)
        early = False
        try:
            yield
            early = _has_exited(child, 0)
        finally:
            if not _has_exited(child, 0):
                os.kill(child, signal.SIGTERM)
            if not _has_exited(child, _GRACE_S):
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        if early:
            code = os.waitstatus_to_exitcode(status)
            raise EndedEarly(f"{program.name} exited early with {code}{_last_error(errors)}")


@dataclass
class _Observed:
    """Samples of a running program."""

    peak_bytes: int = 0
    resident: list[int] = field(default_factory=list)
    written_bytes: int = 0
    start_at: float = 0
    start_cpu_s: float = 0
    stopping: bool = False


def cost(program: Program, warm_up_s: float) -> Cost:
    """Run the program to its end and sum up its cost."""
    with account() as ours, tempfile.TemporaryFile() as errors:
        own_peak = high_water(_read("/proc/self/status"))
        began = time.monotonic()
        child = _spawn(program, ours, errors)
        observed = _observe(program, ours, (child, began, warm_up_s))
        # A zombie process still has the bytes that it and its waited-for children wrote.
        wrote = max(observed.written_bytes, written(_read(f"/proc/{child}/io")))
        _, status, usage = os.wait4(child, 0)
        ended = time.monotonic() - began
        # Before exec the child was a copy of this process, and its peak includes that.
        known = usage.ru_maxrss * 1024 if usage.ru_maxrss * 1024 > own_peak * 1.05 else 0
        failure = _failure(program, status, observed.stopping, ended)
        return Cost(
            window_s=ended - observed.start_at,
            cpu_s=ours.cpu_s() - observed.start_cpu_s,
            start_cpu_s=observed.start_cpu_s,
            peak_bytes=max(observed.peak_bytes, known),
            steady_bytes=int(median(observed.resident)) if observed.resident else 0,
            written_bytes=wrote,
            whole_s=ended,
            left_behind=len(ours.pids()),
            failure=failure and failure + _last_error(errors),
        )


def _observe(program: Program, ours: Account, run: tuple[int, float, float]) -> _Observed:
    """Sample until the program exits; a server gets SIGTERM, and SIGKILL if it does not exit."""
    child, began, warm_up_s = run
    late = program.deadline_s if program.ends_itself else 0
    observed = _Observed()
    warm, ticked = warm_up_s == 0, 0
    while not _has_exited(child, _INTERVAL_S):
        now = time.monotonic() - began
        if not warm and now >= warm_up_s:
            warm, observed.start_at, observed.start_cpu_s = True, now, ours.cpu_s()
        if program.tick and now >= ticked + 1 and not observed.stopping:
            ticked = int(now)
            program.tick()
        observed.peak_bytes = max(observed.peak_bytes, ours.peak_bytes())
        observed.resident += [ours.resident_bytes()] if warm else []
        observed.written_bytes = max(observed.written_bytes, ours.written_bytes())
        if not observed.stopping and now >= program.seconds + late:
            observed.stopping = True
            os.kill(child, signal.SIGTERM)
        elif observed.stopping and now >= program.seconds + late + _GRACE_S:
            os.kill(child, signal.SIGKILL)
    return observed


def _failure(program: Program, status: int, expected: bool, ended: float) -> str:
    code = os.waitstatus_to_exitcode(status)
    if program.ends_itself and expected:
        return f"did not exit within {ended:.0f} s"
    if ended < program.seconds * 0.9:
        return f"exited after {ended:.1f} s of {program.seconds:.0f} with {code}"
    if program.ends_itself and code not in program.ok_statuses:
        return f"exit code {code}"
    return ""


def _last_error(errors: IO[bytes]) -> str:
    """The program's last error line."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").split("\n")
    complaints = [line.strip() for line in lines if line.strip()]
    return f": {printable(complaints[-1][:200])}" if complaints else ""


def _spawn(program: Program, ours: Account, errors: IO[bytes]) -> int:
    """Start it in the account; returns after exec."""
    reading, writing = os.pipe()  # closed by exec
    child = os.fork()
    if child:
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        return child
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        ours.enter()
        if program.cores:
            os.sched_setaffinity(0, program.cores)
        null = os.open(os.devnull, os.O_RDWR)
        for source, handle in ((null, 0), (null, 1), (errors.fileno(), 2)):
            os.dup2(source, handle)
        os.execvp(program.argv[0], program.argv)
    finally:
        os._exit(127)


def _has_exited(child: int, within_s: float) -> bool:
    handle = os.pidfd_open(child)
    try:
        return bool(select.select([handle], [], [], within_s)[0])
    finally:
        os.close(handle)


def _kill_all(ours: Account) -> None:
    for _ in range(100):
        pids = ours.pids()
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:  # exited since it was listed
        return ""
