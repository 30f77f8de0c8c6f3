"""Real zombies beside a real neighbour, and a made-up kernel with memory on v2."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab import zombie_maker as lab
from lab.zombie_maker import CannotMakeZombies, ZombieMaker
from sexton.cure.writer import DONE, REFUSED, DryWriter, WriteLimits, WriteResult
from sexton.host.host import Host, open_host

#: Not `sexton-…`, which is protected as our own.
PREFIX = "test-sexton"


@contextlib.contextmanager
def zombies(number: int, pin: str) -> Iterator[ZombieMaker]:
    """So many under a parent of their own."""
    with contextlib.ExitStack() as stack:
        try:
            maker = stack.enter_context(lab.zombie_maker(PREFIX, pin))
        except CannotMakeZombies as reason:
            pytest.skip(str(reason))
        maker.make(number)
        os.sync()  # a dirty page cannot be reclaimed
        yield maker


@dataclass
class FakeKernel(DryWriter):
    """A v2 tree under a directory, and a writer whose `memory.reclaim` frees what it would.

    Every zombie holds one page; of `stuck` ones it cannot be had. The living give up the
    `living_pay`th part of each bite as well, and `swaps` of their anonymous bytes go to swap with
    each. Before 6.11 the kernel takes no `swappiness=`.
    """

    root: Path = Path()
    parent: str = "/system.slice"
    dying: int = 0
    stuck: int = 0
    live_file: int = 64 << 20
    knows_swappiness: bool = True
    lazy: int = 0
    living_pay: int = 64
    swaps: int = 0
    swapped: int | None = 0
    held_by_inodes: int = 0
    bites: list[str] = field(default_factory=list)

    @property
    def host(self) -> Host:
        return open_host(str(self.root))

    def build(self) -> FakeKernel:
        mounted = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        for path, content in {
            "proc/1/mountinfo": mounted,
            "proc/cgroups": "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t0\t99\t1\n",
            "proc/swaps": "Filename Type Size Used Priority\n/swap file 1000 200 -2\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            "sys/fs/cgroup/cgroup.procs": "",
        }.items():
            self._write(path, content)
        (self.root / "proc/1/ns").mkdir()
        (self.root / "proc/1/ns/cgroup").symlink_to("cgroup:[4026531835]")
        for child in ("/a.service", ""):
            self._write(f"sys/fs/cgroup{self.parent}{child}/cgroup.procs", "")
        self._write(f"sys/fs/cgroup{self.parent}/memory.reclaim", "")
        self.show()
        return self

    def show(self) -> None:
        """Write down what the kernel would say."""
        held = (self.dying + self.stuck + self.held_by_inodes) * 4096
        whole = held + self.live_file + (8 << 20)
        there = self.dying + self.stuck + self.held_by_inodes
        for path, number in ((self.parent, there), ("", there)):
            text = f"nr_descendants 2\nnr_dying_descendants {number}\n"
            self._write(f"sys/fs/cgroup{path}/cgroup.stat", text)
        top = f"sys/fs/cgroup{self.parent}"
        self._write(f"{top}/memory.current", f"{whole}\n")
        self._write(f"{top}/a.service/memory.current", f"{self.live_file + (8 << 20)}\n")
        stat = f"anon {(8 << 20) - (self.swapped or 0)}\nfile {self.live_file}\nshmem 0\n"
        self._write(f"{top}/a.service/memory.stat", stat)
        if self.swapped is not None:  # a kernel that does not account swap has no such file
            self._write(f"{top}/a.service/memory.swap.current", f"{self.swapped}\n")
        self._write(f"{top}/a.service/cgroup.stat", "nr_descendants 0\nnr_dying_descendants 0\n")

    def make_and_remove_cgroup(self, path: str) -> None:
        super().make_and_remove_cgroup(path)
        self.dying, self.held_by_inodes = self.dying + self.held_by_inodes, 0
        self.show()

    def write_control(self, path: str, value: str, terms: WriteLimits) -> WriteResult:
        self.bites.append(value)
        amount, _, option = value.partition(" ")
        if option and not self.knows_swappiness:
            return WriteResult(REFUSED, errno.EINVAL, 0.0, 0.0)
        if terms.keep_going is not None and not terms.keep_going():
            return WriteResult("stopped", 0, 0.001, 0.0)
        if self.lazy:
            self.lazy -= 1
            return WriteResult(DONE, 0, 0.001, 0.001)
        pages = int(amount) // 4096
        freed = min(self.dying, pages)
        self.dying -= freed
        self.live_file -= min(self.live_file, int(amount) // self.living_pay)
        self.swapped = None if self.swapped is None else self.swapped + self.swaps
        self.show()
        if not freed:
            return WriteResult(REFUSED, errno.EAGAIN, 0.001, 0.001)
        return WriteResult(DONE, 0, freed * 20e-6, freed * 20e-6)

    def _write(self, path: str, content: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
