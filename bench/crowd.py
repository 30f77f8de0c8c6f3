"""Many processes and many cgroups on this machine, cleaned up afterwards."""

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
    """Where this machine has its memory cgroups: v1's hierarchy, else the unified one."""
    v1 = Path("/sys/fs/cgroup/memory")
    return v1 if v1.is_dir() else Path("/sys/fs/cgroup")


@contextmanager
def cgroup_tree(cgroups: int, under: Path | None = None) -> Iterator[Path]:
    """A tree of live cgroups: branches with a hundred leaves each, like slices and pods."""
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
    """Many sleeping processes and many live cgroups."""
    with cgroup_tree(cgroups), children(processes, _sleep):
        time.sleep(1)
        yield


@contextmanager
def busy_processes(processes: int, share: float, cores: set[int]) -> Iterator[None]:
    """Processes that each use about `share` of a core, pinned to `cores`."""

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
    """Fork children that do `work`; they are killed at the end, or when we die."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()
    made: list[int] = []
    try:
        for _ in range(number):
            child = os.fork()
            if child == 0:
                # Whatever happens here, the child must not run the parent's cleanup.
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
