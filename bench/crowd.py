"""A machine with many processes and many cgroups, under names of our own, cleaned up after."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def memory_root() -> Path:
    """Where memory cgroups are made on this machine: v1's hierarchy, else the unified one."""
    v1 = Path("/sys/fs/cgroup/memory")
    return v1 if v1.is_dir() else Path("/sys/fs/cgroup")


@contextmanager
def grove(cgroups: int, under: Path | None = None) -> Iterator[Path]:
    """A tree of so many live cgroups: branches of a hundred leaves, as slices and pods are."""
    root = (under or memory_root()) / f"sexton-bench-{os.getpid()}"
    made = [root]
    root.mkdir()
    try:
        branch = root
        for number in range(cgroups - 1):
            if number % 101 == 0:
                branch = root / f"branch-{number}"
                branch.mkdir()
                made.append(branch)
            else:
                leaf = branch / f"leaf-{number}"
                leaf.mkdir()
                made.append(leaf)
        yield root
    finally:
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir()


@contextmanager
def crowd(processes: int, cgroups: int) -> Iterator[None]:
    """So many sleeping processes beside so many live cgroups."""
    with grove(cgroups), children(processes, _sleep):
        time.sleep(1)
        yield


@contextmanager
def burning(processes: int, share: float, cores: set[int]) -> Iterator[None]:
    """A few processes that each take about `share` of a core, kept on `cores`."""

    def burn() -> None:
        os.sched_setaffinity(0, cores)
        while True:
            until = time.perf_counter() + share / 10
            while time.perf_counter() < until:
                pass
            time.sleep((1 - share) / 10)

    with children(processes, burn):
        yield


@contextmanager
def children(number: int, work: Callable[[], object]) -> Iterator[list[int]]:
    """Forks so many children that do `work`; they go when this ends, or when we are killed."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()
    made: list[int] = []
    try:
        for _ in range(number):
            child = os.fork()
            if child == 0:
                # Whatever happens in here, this copy of us must not clean up what the parent made.
                try:
                    for number in (signal.SIGINT, signal.SIGTERM):
                        signal.signal(number, signal.SIG_DFL)
                    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                    if os.getppid() == parent:
                        work()
                finally:
                    os._exit(0)
            made.append(child)
        yield made
    finally:
        for child in made:
            os.kill(child, signal.SIGKILL)
        for child in made:
            os.waitpid(child, 0)


def _sleep() -> None:
    signal.pause()
