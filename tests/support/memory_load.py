"""Loads on the memory of this machine, for real, each in a cgroup and processes of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Reads a file again and again, in pieces, as a copy would.
READ = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
while True:
    while os.read(file, 1 << 20):
        pass
    os.lseek(file, 0, os.SEEK_SET)
"""
#: Takes memory page by page and gives it back, as an allocator without any patience would; on one
#: core, and before whatever else wants it. The kernel itself writes, so that all of it is faults.
FAULT = """
import mmap, os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
if sys.argv[2] == "first":
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
memory = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
zeros = open("/dev/zero", "rb", buffering=0)
while True:
    zeros.readinto(memory)
    memory.madvise(mmap.MADV_DONTNEED)
"""
#: Reads a cgroup's statistics as fast as it can, on one core, and lets the next of its kind go
#: first after each: every switch is processor time that all cgroups above have to be told.
STATS = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[2])})
file = os.open(sys.argv[1], os.O_RDONLY)
page = [bytearray(4096)]
while True:
    os.preadv(file, page, 0)
    os.sched_yield()
"""


def memory_cgroup() -> contextlib.AbstractContextManager[Path]:
    """A memory cgroup of our own."""
    return _own(_hierarchy())


def unified_cgroup() -> contextlib.AbstractContextManager[Path]:
    """A cgroup of our own on v2, where every one has a `cpu.stat`."""
    for top in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (top / "cgroup.stat").exists():
            return _own(top)
    pytest.skip("no cgroup v2 hierarchy is mounted here")


@contextlib.contextmanager
def far_below(place: Path, depth: int) -> Iterator[Path]:
    """A cgroup so many levels below another, without a process again when it is left."""
    levels = [place]
    try:
        for _ in range(depth):
            levels.append(levels[-1] / "d")
            levels[-1].mkdir()
        yield levels[-1]
    finally:
        for level in reversed(levels[1:]):
            _remove(level)


@contextlib.contextmanager
def _own(top: Path) -> Iterator[Path]:
    """With its processes ended and its directory gone afterwards."""
    place = top / f"sexton-test-{os.getpid()}"
    place.mkdir()
    try:
        yield place
    finally:
        for pid in (place / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        _remove(place)


def _remove(place: Path) -> None:
    for _ in range(100):  # busy for a moment after its last process
        with contextlib.suppress(OSError):
            place.rmdir()
        if not place.exists():
            break
        time.sleep(0.05)


def _hierarchy() -> Path:
    first = Path("/sys/fs/cgroup/memory")
    if (first / "memory.limit_in_bytes").exists() or (first / "cgroup.procs").exists():
        return first
    unified = Path("/sys/fs/cgroup")
    enabled = unified / "cgroup.subtree_control"
    if enabled.exists() and "memory" in enabled.read_text().split():
        return unified
    pytest.skip("no memory controller to make a cgroup in")


def limit(place: Path, number: int) -> None:
    """Give the cgroup so many bytes and no more."""
    for name in ("memory.limit_in_bytes", "memory.max"):
        if (place / name).exists():
            (place / name).write_text(str(number))
            return
    pytest.skip("this cgroup takes no limit")


@contextlib.contextmanager
def running(program: str, *arguments: str, place: Path | None = None) -> Iterator[int]:
    """A Python program that runs until we are done, in a cgroup if one is given; its pid."""

    def move() -> None:
        if place is not None:
            (place / "cgroup.procs").write_text("0")

    child = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        preexec_fn=move,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # the scheduler shares a core among sessions: one each
    )
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()
