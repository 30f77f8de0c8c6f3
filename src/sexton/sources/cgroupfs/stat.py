"""`cgroup.stat`: live and dying descendants of each cgroup (v2 only).

Documented in the kernel's Documentation/admin-guide/cgroup-v2.rst, "Core Interface Files". An
excerpt of ``/sys/fs/cgroup/system.slice/cgroup.stat`` on 6.1 while one of its units crash-loops::

    nr_descendants 8
    nr_dying_descendants 62

and some lines of the same on 6.12, which counts per controller as well::

    nr_descendants 9
    nr_subsys_memory 10
    nr_dying_descendants 55
    nr_dying_subsys_memory 55
    nr_dying_subsys_pids 0

Quirks: a dying cgroup counts at each of its *live* ancestors. A restarted unit's own directory is
gone (or is a new one), so its zombies count at the slice above: the deepest live directory with
dying descendants is the nearest owner these files can name. Reading it walks nothing. v1 has no
such file. The per-controller rows exist for controllers bound to v2 only, since about 6.12.

The tree is descended only where something is dying: the root, its children, and then the children
of those with dying descendants, at most `MOST_READS` files.

>>> parse("nr_descendants 8\\nnr_dying_descendants 62\\n", "/system.slice")
CgroupStat(path='/system.slice', descendants=8, dying=62, dying_memory=None)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.reader import text, walk
from sexton.model.rows.cgroup import CgroupStat
from sexton.sources.cgroupfs.layout import MemoryReading, mount_point
from sexton.sources.registry import source

PATH = "cgroup.stat"
PATTERN = f"/sys/fs/cgroup/**/{PATH}"
MOST_READS = 2_000
_WANTED = frozenset({"nr_descendants", "nr_dying_descendants", "nr_dying_subsys_memory"})


def parse(content: str, path: str) -> CgroupStat:
    """The row of the cgroup at `path`."""
    found = flat_keyed(content, _WANTED, f"{path}/{PATH}")
    try:
        descendants, dying = found["nr_descendants"], found["nr_dying_descendants"]
    except KeyError as missing:
        raise SourceMalformed(f"{path}/{PATH}", 0, f"no {missing.args[0]}") from None
    return CgroupStat(path, descendants, dying, found.get("nr_dying_subsys_memory"))


def flat_keyed(content: str, wanted: Collection[str], path: str) -> dict[str, int]:
    """The `wanted` numbers of the kernel's "flat keyed" format, a name and a number per line."""
    found = {}
    for number, line in enumerate(content.split("\n"), 1):
        key, _, value = line.partition(" ")
        if key not in wanted:
            continue
        try:
            found[key] = int(value)
        except ValueError:
            raise SourceMalformed(path, number, f"{key} is not followed by a number") from None
    return found


@source(PATTERN, rows=(CgroupStat,), period_s=5.0, deadline_s=2.0)
class Stats(MemoryReading):
    """A row for the root, its children, and every directory below with dying descendants."""

    def collect(self) -> Iterator[CgroupStat]:
        if self._layout.version == 1:
            raise SourceAbsent(PATTERN, "memory is on cgroup v1, which has no such file")
        return self._descend(mount_point(self._layout, PATTERN))

    def _descend(self, top: str) -> Iterator[CgroupStat]:
        yield parse(text(self._files, f"{top}/{PATH}"), "/")
        reads = 1
        pending = deque([""])
        while pending:
            above = pending.popleft()
            for path, children in self._children(top, above):
                if reads == MOST_READS:
                    return
                reads += 1
                try:
                    row = parse(text(self._files, f"{top}{path}/{PATH}"), path)
                except SourceAbsent:  # removed since
                    continue
                if not above or row.dying or children:
                    yield row
                if row.dying and children:
                    pending.append(path)

    def _children(self, top: str, above: str) -> list[tuple[str, int]]:
        """Path and number of children of each directory right under `above`."""
        try:
            found = list(walk(self._files, f"{top}{above}", depth=1))
        except SourceAbsent:  # removed since
            return []
        return [(f"{above}{path}", children) for path, _, children in found[1:]]
