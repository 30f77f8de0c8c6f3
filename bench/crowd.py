"""A machine with many processes and many cgroups, under names of our own, cleaned up after."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def memory_root() -> Path:
    """Where memory cgroups are made on this machine: v1's hierarchy, else the unified one."""
    v1 = Path("/sys/fs/cgroup/memory")
    return v1 if v1.is_dir() else Path("/sys/fs/cgroup")


@contextmanager
def grove(cgroups: int) -> Iterator[Path]:
    """A tree of so many live cgroups: branches of a hundred leaves, as slices and pods are."""
    root = memory_root() / f"sexton-bench-{os.getpid()}"
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
    children: list[int] = []
    with grove(cgroups):
        try:
            for _ in range(processes):
                child = os.fork()
                if child == 0:
                    signal.pause()
                    os._exit(0)
                children.append(child)
            time.sleep(1)
            yield
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
            for child in children:
                os.waitpid(child, 0)
