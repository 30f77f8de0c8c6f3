"""What a walking read would cost."""

from __future__ import annotations

import pytest

from sexton.errors import SourceAbsent
from sexton.sources.cgroupfs import estimate as module
from sexton.sources.cgroupfs.estimate import estimate
from sexton.sources.host import Host
from sexton.sources.reader import Directory, FileStatus

TOP = "/t"
TREE = [
    Directory("/", 1, 2),
    Directory("/slice", 2, 3),
    Directory("/slice/a", 3, 0),
    Directory("/slice/b", 4, 0),
    Directory("/slice/c", 5, 0),
    Directory("/big", 6, 0),
]
LEAF_S = 0.0001


class Kernel:
    """Reads that take as long as a kernel that walks (or does not) would take."""

    def __init__(self, clock: list[float], per_cgroup_s: float, dead: int = 0) -> None:
        self._clock = clock
        self._each = per_cgroup_s
        self._dead = dead
        self.read_files: list[str] = []

    def read(self, path: str, limit: int = 0) -> bytes:
        self.read_files.append(path)
        if path.endswith("memory.numa_stat"):
            below = {"/t": 6, "/t/slice": 4 + self._dead}.get(path.rpartition("/")[0], 1)
            self._clock[0] += LEAF_S + self._each * (below - 1)
            return b"total=0 N0=0\n"
        if path.endswith("cgroup.procs"):
            return b"7\n"
        if path.endswith("memory.usage_in_bytes"):
            own = 4096 * (self._dead + 3) if path == "/t/slice/memory.usage_in_bytes" else 4096
            return f"{own}\n".encode()
        if path.endswith("memory.kmem.usage_in_bytes"):
            return b"0\n"
        raise SourceAbsent(path)

    def names(self, path: str) -> list[str]:
        raise AssertionError(path)

    def link(self, path: str) -> str:
        raise AssertionError(path)

    def status(self, path: str) -> FileStatus:
        raise AssertionError(path)


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def guess(kernel: Kernel, total: int) -> module.Estimate:
    return estimate(Host(kernel, live=False), TOP, TREE, total, "memory.numa_stat")


def test_a_kernel_that_keeps_sums_costs_the_same_at_any_size(clock):
    found = guess(Kernel(clock, per_cgroup_s=0.0), total=70_000)
    assert (found.path, found.memcgs) == ("/slice", 4)
    assert found.estimate_s == pytest.approx(LEAF_S)


def test_a_kernel_that_walks_is_extrapolated_by_the_number_of_cgroups(clock):
    found = guess(Kernel(clock, per_cgroup_s=70e-6), total=68_680)
    assert found.estimate_s == pytest.approx(68_679 * 70e-6, rel=0.01)


def test_the_root_is_never_read_to_find_out(clock):
    kernel = Kernel(clock, per_cgroup_s=70e-6)
    guess(kernel, total=68_680)
    assert "/t/memory.numa_stat" not in kernel.read_files


def test_a_parent_that_may_hide_many_dead_is_not_timed(clock):
    kernel = Kernel(clock, per_cgroup_s=70e-6, dead=60_000)
    found = guess(kernel, total=68_680)
    assert "/t/slice/memory.numa_stat" not in kernel.read_files
    assert found.memcgs == 1
    assert found.estimate_s == pytest.approx(LEAF_S * 68_680)


def test_without_a_leaf_that_has_the_file_it_is_absent(clock):
    with pytest.raises(SourceAbsent):
        estimate(Host(Kernel(clock, 0.0), live=False), TOP, TREE, 10, "memory.none")
