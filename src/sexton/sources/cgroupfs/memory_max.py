"""`memory.max`: limit, use and OOM kills of each limited cgroup.

Documented in the kernel's Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files", and in
Documentation/admin-guide/cgroup-v1/memory.rst. The files of one cgroup on v2::

    memory.max 41943040     memory.current 40841216     memory.events low 0
                                                                      high 0
                                                                      max 111
                                                                      oom 3
                                                                      oom_kill 3

and on v1 (6.18), where `memory.oom_control` counts kills since 4.13::

    memory.limit_in_bytes 41943040      memory.oom_control oom_kill_disable 0
    memory.usage_in_bytes 81920                            under_oom 0
    memory.failcnt 111                                     oom_kill 3

Quirks: no limit is ``max`` on v2 and about 2**63 on v1; such cgroups and the root give no row. Use
includes page cache, so a cgroup that reads many files may be at its limit and healthy.
`hits` is how often it was reached (`max` of `memory.events`, `memory.failcnt`). On v2 the kernel
counts kills of all cgroups below too; on v1 only those of a cgroup's own processes, so those of
cgroups without a limit are added to the nearest one above them that has it. None of these files
makes the kernel walk. At most `MOST_READS` cgroups are looked at, and `MOST_ROWS` of those with a
limit are kept: the fullest. A cgroup without a limit is looked at again only in every tenth
reading: most have none and never get one.

>>> parse(Files("40M", "8192", "low 0\\nmax 7\\noom 1\\noom_kill 1\\n"), "/a")
Traceback (most recent call last):
sexton.errors.SourceMalformed: /a/memory.max: line 1: not a number of bytes
>>> parse(Files("41943040\\n", "8192\\n", "low 0\\nmax 7\\noom 1\\noom_kill 1\\n"), "/a")
CgroupMemory(path='/a', limit_bytes=41943040, used_bytes=8192, hits=7, killed=1)
>>> parse(Files("max\\n", "8192\\n", ""), "/a") is None
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.reader import text
from sexton.model.rows.cgroup import CgroupMemory
from sexton.sources.cgroupfs import census
from sexton.sources.cgroupfs.layout import MemoryReading, mount_point
from sexton.sources.cgroupfs.stat import flat_keyed
from sexton.sources.registry import source

PATH = "/sys/fs/cgroup/**/memory.max"
MOST_READS = 2_000
MOST_ROWS = 300
#: Readings after which every cgroup is looked at again.
_LOOK_AGAIN = 10
#: Limit, use, events, and (v1) how often the limit was reached.
_V2 = ("memory.max", "memory.current", "memory.events", "")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", "memory.failcnt")
_WANTED = frozenset({"max", "oom_kill"})
#: v1's "no limit" is the largest number of whole pages in 63 bits; no machine has a tenth of it.
_UNLIMITED = 1 << 59


class Files(NamedTuple):
    """What the files of one cgroup say; `failcnt` is v1's."""

    limit: str
    used: str
    events: str
    failcnt: str | None = None


def parse(files: Files, path: str) -> CgroupMemory | None:
    """The row of the cgroup at `path`; `None` if it has no limit."""
    limit = _limit(files.limit, path)
    if limit is None:
        return None
    events = flat_keyed(files.events, _WANTED, f"{path}/memory.events")
    hits = events.get("max")
    if files.failcnt is not None:
        hits = _number(files.failcnt, f"{path}/memory.failcnt")
    used = _number(files.used, f"{path}/memory.current")
    return CgroupMemory(path, limit, used, hits, events.get("oom_kill"))


def _limit(content: str, path: str) -> int | None:
    if content.strip() == "max":
        return None
    limit = _number(content, f"{path}/memory.max")
    return None if limit >= _UNLIMITED else limit


def _number(content: str, path: str) -> int:
    digits = content.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise SourceMalformed(path, 1, "not a number of bytes")
    return int(digits)


# A thousand small files: once a minute is what the recorder's budget has room for, and the kernel
# log reports kills at once.
@source(PATH, rows=(CgroupMemory,), period_s=60.0, deadline_s=2.0)
class Limits(MemoryReading):
    """A row per cgroup that has a limit."""

    _readings = 0

    @cached_property
    def _unlimited(self) -> set[tuple[str, int]]:
        """Path and inode of cgroups without a limit."""
        return set()

    def collect(self) -> Iterator[CgroupMemory]:
        top = mount_point(self._layout, PATH)
        _, walked = census.recent(self._host, self._layout)
        names = _V2 if self._layout.version == 2 else _V1
        if self._readings % _LOOK_AGAIN == 0:
            self._unlimited.clear()
        self._readings += 1
        every = ((path, inode) for path, inode, _ in walked.kept if path != "/")
        below = list(islice(every, MOST_READS))
        found = {row.path: row for row in self._rows(top, below, names)}
        if names is _V1:
            for path, _ in below:
                self._add_kills(top, path, found)
        fullest = sorted(found.values(), key=lambda row: -row.used_bytes / max(row.limit_bytes, 1))
        return iter(fullest[:MOST_ROWS])

    def _add_kills(self, top: str, path: str, found: dict[str, CgroupMemory]) -> None:
        """Add the kills counted in a cgroup without a limit to the nearest above it that has one:
        it was that limit, or one further up."""
        if path in found:
            return
        above = path.rpartition("/")[0]
        while above and above not in found:
            above = above.rpartition("/")[0]
        before = found[above].killed if above else None
        if before is None:
            return
        try:
            events = text(self._files, f"{top}{path}/{_V1[2]}")
        except SourceAbsent:
            return
        killed = flat_keyed(events, _WANTED, f"{path}/{_V1[2]}").get("oom_kill")
        if killed:
            found[above] = replace(found[above], killed=before + killed)

    def _rows(
        self, top: str, below: Iterable[tuple[str, int]], names: tuple[str, ...]
    ) -> Iterator[CgroupMemory]:
        seen = anything = False
        for path, inode in below:
            anything = True
            if (path, inode) in self._unlimited:
                seen = True
                continue
            place = f"{top}{path}"
            try:
                limit = text(self._files, f"{place}/{names[0]}")
                seen = True
                if _limit(limit, path) is None:
                    self._unlimited.add((path, inode))
                    continue
                used, events = (text(self._files, f"{place}/{name}") for name in names[1:3])
                failcnt = text(self._files, f"{place}/{names[3]}") if names[3] else None
            except SourceAbsent:  # removed since, or the controller is off there
                continue
            row = parse(Files(limit, used, events, failcnt), path)
            if row is not None:
                yield row
        if anything and not seen:
            raise SourceAbsent(PATH, f"no cgroup here has {names[0]}")
