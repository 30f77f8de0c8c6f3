"""How much CPU time and I/O the cgroups of services have used: for an audit, which reads it twice.

``cpu.stat`` (`usage_usec`) and ``io.stat`` on v2, ``cpuacct.usage`` (nanoseconds) and
``blkio.throttle.io_service_bytes`` on v1; the kernel's Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/{cpuacct,blkio-controller}.rst. Excerpts::

    usage_usec 4380211                       8:0 rbytes=1459200 wbytes=314773504 rios=192 …

Quirks: a controller that is off for a cgroup has no file there, which is `None` and not 0; v1 may
have `cpuacct` without `blkio`. Only services directly in a slice are read, at most `MOST`.

>>> io_total("8:0 rbytes=100 wbytes=50 rios=3\\n8:16 rbytes=7 wbytes=0\\n")
157
>>> blkio_total("8:0 Read 4096\\n8:0 Write 0\\n8:0 Total 4096\\nTotal 4096\\n")
4096
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sexton.errors import SourceAbsent, SourceError
from sexton.host.host import Host
from sexton.host.reader import text, walk
from sexton.model.audit import CgroupUsage
from sexton.sources.cgroupfs.layout import cgroup_mounts, v1_mounts
from sexton.sources.registry import Reading, Source

PATH = "/sys/fs/cgroup/*.slice"
MOST = 1_000
_DEPTH = 4
_MOST_BYTES = 1 << 16
_IO = re.compile(r"\b[rw]bytes=(\d{1,20})", re.ASCII)


def io_total(content: str) -> int:
    """Bytes read and written, over all devices of an io.stat."""
    return sum(int(found) for found in _IO.findall(content))


def blkio_total(content: str) -> int | None:
    """The total of a v1 blkio file."""
    for line in reversed(content.splitlines()):
        words = line.split()
        if len(words) == 2 and words[0] == "Total" and words[1].isdigit():
            return int(words[1])
    return None


class Usage:
    """Services' cgroups, wherever the hierarchies are mounted."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def collect(self) -> Iterable[CgroupUsage]:
        mounts = cgroup_mounts(self._host)
        second = [mount.mount_point for mount in mounts if mount.fstype == "cgroup2"]
        cpu = [mount.mount_point for mount in v1_mounts(mounts, "cpuacct")]
        block = [mount.mount_point for mount in v1_mounts(mounts, "blkio")]
        top = min(cpu or second, key=len, default=None)
        if top is None:
            raise SourceAbsent(PATH, "no hierarchy that counts CPU time is mounted here")
        return list(self._rows(top, bool(cpu), min(block, key=len, default=None)))

    def close(self) -> None:
        pass

    def _rows(self, top: str, first: bool, block: str | None) -> Iterator[CgroupUsage]:
        given = 0
        for path, _, _ in walk(self._host.files, top, _DEPTH):
            if not path.endswith(".service"):
                continue
            given += 1
            if given > MOST:
                return
            if first:
                nanoseconds = _number(self._text(f"{top}{path}/cpuacct.usage"))
                cpu = None if nanoseconds is None else nanoseconds // 1000
                moved = self._text(f"{block}{path}/blkio.throttle.io_service_bytes")
                io = None if moved is None or block is None else blkio_total(moved)
            else:
                told = self._text(f"{top}{path}/cpu.stat") or ""
                found = re.search(r"^usage_usec (\d{1,20})$", told, re.ASCII | re.MULTILINE)
                cpu = int(found[1]) if found else None
                moved = self._text(f"{top}{path}/io.stat")
                io = None if moved is None else io_total(moved)
            yield CgroupUsage(path, cpu, io)

    def _text(self, path: str) -> str | None:
        try:
            return text(self._host.files, path, _MOST_BYTES)
        except SourceError:  # gone, or the controller is off there
            return None


def _number(content: str | None) -> int | None:
    word = (content or "").strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 20 else None


def usage_source() -> Source:
    """For a sampler. Not registered: only an audit asks, and a diagnosis should not pay."""

    def opened(host: Host) -> Reading:
        return Usage(host)

    return Source("cgroupfs.usage", PATH, (CgroupUsage,), 0.0, 2.0, "", opened)
