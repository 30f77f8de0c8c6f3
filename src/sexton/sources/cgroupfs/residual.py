"""Memory still charged to dead children of live cgroups.

It is the parent's total less its own pages and its live children's.

Documented in the kernel's Documentation/admin-guide/cgroup-v1/memory.rst, "stat file", and
Documentation/admin-guide/cgroup-v2.rst, `memory.current`. On v1 ``memory.stat`` has every number
twice, local and hierarchical; here on 6.1 for ``/system.slice``, where a unit crash-loops::

    cache 0
    rss 0
    shmem 0
    total_cache 21254144
    total_rss 6475776
    total_shmem 8126464

What is not in its live children's `total_cache` and `total_rss` is still charged to dead ones.

Quirks: (1) `memory.stat` walks all descendants on old kernels, and it is read in this process, on
any core. So it is read only if `sexton.sources.cgroupfs.estimate` found, in a child, that even at
the root it takes no longer than `MOST_READ_S`, and for no longer than `MOST_S` in all. Otherwise
the plain counters are used, `memory.usage_in_bytes` less `memory.kmem.usage_in_bytes`, whose gap is
an *upper bound*: it includes the parent's own pages and pre-charged batches. (2) v2 has
hierarchical numbers only: `memory.current` of the parent less its children's is an upper bound,
too, which includes kernel memory and pages reparented from dead ones; a parent without processes
has few pages of its own. (3) With `memory.use_hierarchy` 0 a v1 parent counts only itself: no row.
(4) The counters are not read at one instant; a small or negative gap is noise and gives no row.
(5) The kernel may flush `memory.stat` late; on 6.18 no lag was seen in 6 rounds of 200. (6) It is
read at the start and at the end of a window, to distinguish new bytes from old ones.

>>> parse("cache 4096\\nrss 0\\ntotal_cache 12288\\ntotal_rss 8192\\n", "/a")
Usage(local=4096, hierarchical=20480)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceError, SourceMalformed, SourceSkipped
from sexton.host.reader import Directory, text
from sexton.model.rows.cgroup import CgroupResidual
from sexton.sources.cgroupfs import census, stat
from sexton.sources.cgroupfs.estimate import PAGE, estimates, number, pages_bytes
from sexton.sources.cgroupfs.layout import HOST_VIEW, MemoryReading, mount_point
from sexton.sources.registry import source

FILE = "memory.stat"
MOST_PARENTS = 2_000
#: With fewer dying on the whole node their owners do not matter, unless the command is about them:
#: a healthy node is spared a read in every directory.
WORTH = 500
#: Reads of one collection: each is some ten microseconds where nothing walks.
MOST_READS = 4_000
#: The most that one read of `memory.stat` may cost by estimate, and all of them as measured.
MOST_READ_S = 0.02
MOST_S = 0.1
EXACT = "memory.stat: hierarchical less local less live children"
V1_BOUND = "memory.usage_in_bytes less kernel memory less live children (upper bound)"
V2_BOUND = "memory.current less live children (upper bound: includes its own pages)"
V2_EMPTY = "memory.current less live children (it has no process of its own)"
_WANTED = frozenset({"cache", "rss", "total_cache", "total_rss"})


class Usage(NamedTuple):
    """Bytes of page cache and anonymous memory of a v1 cgroup, alone and with all below it."""

    local: int
    hierarchical: int


def parse(content: str, path: str) -> Usage:
    """A v1 `memory.stat`."""
    found = stat.flat_keyed(content, _WANTED, f"{path}/{FILE}")
    missing = _WANTED - found.keys()
    if missing:
        raise SourceMalformed(f"{path}/{FILE}", 0, f"no {min(missing)}")
    local = found["cache"] + found["rss"]
    return Usage(local, found["total_cache"] + found["total_rss"])


@source(
    "/sys/fs/cgroup/**/memory.stat",
    rows=(CgroupResidual,),
    period_s=3600,  # at the start and at the end of a window
    deadline_s=4.0,
    grant=HOST_VIEW,
)
class Residuals(MemoryReading):
    """A row per live cgroup whose dead children still have memory charged to them."""

    def collect(self) -> Iterator[CgroupResidual]:
        top = mount_point(self._layout, FILE)
        counted, walked = census.recent(self._host, self._layout)
        if walked.count > len(walked.kept):
            raise SourceSkipped(FILE, f"{walked.count:,} directories are too many to sum")
        if not self._host.thorough and counted.dying is not None and counted.dying < WORTH:
            return iter(())
        families = _families(walked.kept)
        if self._layout.version == 2:
            return self._second(top, families)
        return self._first(top, families, cheap=self._is_cheap())

    def _is_cheap(self) -> bool:
        """Is one read, even at the root, certainly fast? False if unknown."""
        if self._host.moment is not None:  # an archive costs the node nothing
            return True
        try:
            found = estimates(self._host, self._layout)
        except SourceError:
            return False
        return any(guess.file == FILE and guess.most_s <= MOST_READ_S for guess in found)

    def _first(
        self, top: str, families: dict[str, list[str]], *, cheap: bool
    ) -> Iterator[CgroupResidual]:
        """v1: exact where that is cheap, else by the plain counters."""
        reads = MOST_READS
        # Everything below a directory with use_hierarchy has it too, so one read is usually enough.
        flat = not self._is_hierarchical(top, "/")

        @cache  # a directory is read as a child and as a parent
        def usage(path: str) -> Usage:
            return parse(text(self._files, f"{top}{path}/{FILE}"), path)

        started = time.monotonic()
        for path, children in families.items():
            reads -= 1 + len(children)
            if reads < 0:
                return
            exact = cheap and time.monotonic() - started < MOST_S
            try:
                if flat and not self._is_hierarchical(top, path):
                    continue
                if exact:
                    own, below = usage(path), sum(usage(child).hierarchical for child in children)
                    held = own.hierarchical - own.local - below
                else:
                    held = self._gap(top, path, children)
            except SourceAbsent:  # removed since
                continue
            if held >= PAGE:
                yield CgroupResidual(path, held, EXACT if exact else V1_BOUND)

    def _is_hierarchical(self, top: str, path: str) -> bool:
        try:
            return text(self._files, f"{top}{path}/memory.use_hierarchy", 64).strip() != "0"
        except SourceAbsent:
            return True

    def _gap(self, top: str, path: str, children: Sequence[str]) -> int:
        if path == "/" or (not children and self._has_processes(top, path)):
            return 0  # the root's counter is of another kind; a leaf's pages are its own
        gap = pages_bytes(self._host, f"{top}{path}")
        return gap - sum(pages_bytes(self._host, f"{top}{child}") for child in children)

    def _second(self, top: str, families: dict[str, list[str]]) -> Iterator[CgroupResidual]:
        """v2: wherever `cgroup.stat` counts dying descendants."""
        reads = MOST_READS
        for path, children in families.items():
            if path == "/":  # has no memory.current
                continue
            reads -= 3 + len(children)
            if reads < 0:
                return
            try:
                dying = stat.parse(text(self._files, f"{top}{path}/{stat.PATH}"), path).dying
                if not dying:
                    continue
                held = number(self._host, f"{top}{path}/memory.current") - sum(
                    number(self._host, f"{top}{child}/memory.current") for child in children
                )
                busy = self._has_processes(top, path)
            except SourceAbsent:  # removed since, or the controller is off below
                continue
            if held >= PAGE:
                yield CgroupResidual(path, held, V2_BOUND if busy else V2_EMPTY)

    def _has_processes(self, top: str, path: str) -> bool:
        return bool(text(self._files, f"{top}{path}/cgroup.procs").strip())


def _families(tree: Sequence[Directory]) -> dict[str, list[str]]:
    """Each directory with its live children: parents first, then leaves."""
    families: dict[str, list[str]] = {
        path: [] for path, _, _ in sorted(tree, key=lambda directory: directory.children == 0)
    }
    for path in families:
        if path != "/":
            above = path.rpartition("/")[0] or "/"
            if above in families:
                families[above].append(path)
    return dict(list(families.items())[:MOST_PARENTS])
