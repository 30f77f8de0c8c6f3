"""What a program costs with everything it starts: CPU, memory and bytes, of the whole tree.

CPU comes from a cgroup of our own, which also counts children that live for a millisecond or
outlive their parent: cpuacct (v1) or `cpu.stat` (v2, there without any controller). What the kernel
does in interrupts on behalf of a program (perf's samples, BPF on a tracepoint) is
charged to the task that was interrupted, and is not in here: see `slowdown` and `flood`.

Memory is the sum of VmHWM, each process's own peak, over the processes alive at once, looked at
twice a second; pages they share count once for each, so the sum errs against the program.
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

_LOOK_S = 0.5
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
    patience_s: float = 15
    fine: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class Cost:
    """What a run cost; the window begins when the warm-up is over and ends with the program."""

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
        """CPU as percent of one core, once started, all that it does at its end counted in."""
        return 100 * self.cpu_s / self.window_s

    @property
    def written_per_s(self) -> float:
        return self.written_bytes / self.whole_s


class Account:
    """One cgroup that a program and whatever it starts live in."""

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
    """Bytes sent towards storage from `/proc/PID/io`, children waited for included.

    >>> written("rchar: 9\\nwchar: 7\\nread_bytes: 0\\nwrite_bytes: 4096\\n")
    4096
    """
    found = re.search(r"^write_bytes: (\d+)$", io, re.MULTILINE)
    return int(found[1]) if found else 0


def size_of(path: Path) -> int:
    """Bytes kept in a file or in all files under a directory."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def hierarchy() -> Path:
    """Where a cgroup that accounts CPU can be made."""
    v1 = Path("/sys/fs/cgroup/cpuacct")
    return v1 if v1.is_dir() else Path("/sys/fs/cgroup")


@contextmanager
def account() -> Iterator[Account]:
    """A cgroup of our own; what is still in it at the end is killed."""
    directory = hierarchy() / f"sexton-bench-cost-{os.getpid()}"
    directory.mkdir()
    ours = Account(directory)
    try:
        yield ours
    finally:
        _empty(ours)
        directory.rmdir()


class EndedEarly(Exception):
    """A program that was to run while something else is measured has ended before."""


@contextmanager
def running(program: Program, ours: Account) -> Iterator[None]:
    """Runs the program inside the account while something else is measured, then ends it."""
    with tempfile.TemporaryFile() as errors:
        child = _spawn(program, ours, errors)
        early = False
        try:
            yield
            early = _over(child, 0)
        finally:
            if not _over(child, 0):
                os.kill(child, signal.SIGTERM)
            if not _over(child, _GRACE_S):
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        if early:
            code = os.waitstatus_to_exitcode(status)
            raise EndedEarly(f"{program.name} ended too early with {code}{_last_words(errors)}")


@dataclass
class _Looks:
    """What was seen of a program while it ran."""

    peak_bytes: int = 0
    resident: list[int] = field(default_factory=list)
    written_bytes: int = 0
    start_at: float = 0
    start_cpu_s: float = 0
    stopping: bool = False


def cost(program: Program, warm_up_s: float) -> Cost:
    """Runs the program to its end and adds up what it took."""
    with account() as ours, tempfile.TemporaryFile() as errors:
        own_peak = high_water(_read("/proc/self/status"))
        began = time.monotonic()
        child = _spawn(program, ours, errors)
        looks = _look_on(program, ours, (child, began, warm_up_s))
        # A zombie still tells what it and the children it waited for have written.
        wrote = max(looks.written_bytes, written(_read(f"/proc/{child}/io")))
        _, status, usage = os.wait4(child, 0)
        ended = time.monotonic() - began
        # Before exec the child was a copy of us, and the kernel remembers that peak too.
        known = usage.ru_maxrss * 1024 if usage.ru_maxrss * 1024 > own_peak * 1.05 else 0
        failure = _failure(program, status, looks.stopping, ended)
        return Cost(
            window_s=ended - looks.start_at,
            cpu_s=ours.cpu_s() - looks.start_cpu_s,
            start_cpu_s=looks.start_cpu_s,
            peak_bytes=max(looks.peak_bytes, known),
            steady_bytes=int(median(looks.resident)) if looks.resident else 0,
            written_bytes=wrote,
            whole_s=ended,
            left_behind=len(ours.pids()),
            failure=failure and failure + _last_words(errors),
        )


def _look_on(program: Program, ours: Account, run: tuple[int, float, float]) -> _Looks:
    """Until the program is over; a server is asked to end, and one that will not end is killed."""
    child, began, warm_up_s = run
    late = program.patience_s if program.ends_itself else 0
    looks = _Looks()
    warm, ticked = warm_up_s == 0, 0
    while not _over(child, _LOOK_S):
        now = time.monotonic() - began
        if not warm and now >= warm_up_s:
            warm, looks.start_at, looks.start_cpu_s = True, now, ours.cpu_s()
        if program.tick and now >= ticked + 1 and not looks.stopping:
            ticked = int(now)
            program.tick()
        looks.peak_bytes = max(looks.peak_bytes, ours.peak_bytes())
        looks.resident += [ours.resident_bytes()] if warm else []
        looks.written_bytes = max(looks.written_bytes, ours.written_bytes())
        if not looks.stopping and now >= program.seconds + late:
            looks.stopping = True
            os.kill(child, signal.SIGTERM)
        elif looks.stopping and now >= program.seconds + late + _GRACE_S:
            os.kill(child, signal.SIGKILL)
    return looks


def _failure(program: Program, status: int, expected: bool, ended: float) -> str:
    code = os.waitstatus_to_exitcode(status)
    if program.ends_itself and expected:
        return f"did not end by itself within {ended:.0f} s"
    if ended < program.seconds * 0.9:
        return f"ended after {ended:.1f} s of {program.seconds:.0f} with {code}"
    if program.ends_itself and code not in program.fine:
        return f"exit code {code}"
    return ""


def _last_words(errors: IO[bytes]) -> str:
    """The last line a program complained with."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return f": {printable(said[-1][:200])}" if said else ""


def _spawn(program: Program, ours: Account, errors: IO[bytes]) -> int:
    """Starts it inside the account; comes back when it has become the program."""
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


def _over(child: int, within_s: float) -> bool:
    handle = os.pidfd_open(child)
    try:
        return bool(select.select([handle], [], [], within_s)[0])
    finally:
        os.close(handle)


def _empty(ours: Account) -> None:
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
    except OSError:  # gone between the list and the look
        return ""
