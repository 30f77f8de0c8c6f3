r"""What an audit reads about services besides their state: usage, last log line, dependants.

None of these is a registered source: only an audit needs them, and a diagnosis should not pay
for them.

**CPU time and I/O** of the services' cgroups, read twice by an audit. ``cpu.stat`` (`usage_usec`)
and ``io.stat`` on v2, ``cpuacct.usage`` (nanoseconds) and ``blkio.throttle.io_service_bytes`` on
v1; the kernel's Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/{cpuacct,blkio-controller}.rst. Excerpts::

    usage_usec 4380211                       8:0 rbytes=1459200 wbytes=314773504 rios=192 …

Quirks: a controller that is off for a cgroup has no file there, which is `None` and not 0; v1 may
have `cpuacct` without `blkio`. Only services directly in a slice are read, at most `MOST`.

**The last log line** of each unit, from `journalctl -o json`, systemd.journal-fields(7):
`_SYSTEMD_UNIT` is journald's own field and cannot be forged. Only the newest `LINES` lines of the
last hour are read, so a unit without one may have logged earlier: "not lately", never "never".

**Dependants**, over D-Bus: `RequiredBy`, `BoundBy`, `WantedBy` … are properties of
``org.freedesktop.systemd1.Unit`` (org.freedesktop.systemd1(5)). busctl on a daemon that two
services require::

    .RequiredBy   property  as  2 "a.service" "b.service"
    .WantedBy     property  as  1 "multi-user.target"

Quirks: units that are not loaded appear in no list, so these are the dependants *now*. A target
that wants a unit shows how the unit was enabled; it does not use it.

>>> io_total("8:0 rbytes=100 wbytes=50 rios=3\n8:16 rbytes=7 wbytes=0\n")
157
>>> blkio_total("8:0 Read 4096\n8:0 Write 0\n8:0 Total 4096\nTotal 4096\n")
4096
>>> line = '{"_SYSTEMD_UNIT":"a.service","__REALTIME_TIMESTAMP":"1700000000500000"}'
>>> parse_last_logged(line + "\n" + line.replace("17", "18", 1))
{'a.service': 1800000000.5}
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sexton.errors import SourceError
from sexton.host.host import Host
from sexton.host.reader import text, walk
from sexton.model.audit import CgroupUsage
from sexton.sources.cgroupfs.layout import cgroup_mounts, controller_mount, v1_mounts
from sexton.sources.kmsg.journal import journal_text
from sexton.sources.kmsg.records import field, journal_entries, microseconds
from sexton.sources.registry import Reading, Source
from sexton.sources.systemd.bus import SYSTEMD, Call, Refusal, get, open_bus

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


class Usage(Reading):
    """Services' cgroups, wherever the hierarchies are mounted."""

    def collect(self) -> Iterable[CgroupUsage]:
        mounts = cgroup_mounts(self._host)
        top, version = controller_mount(mounts, "cpuacct", PATH)
        block = [mount.mount_point for mount in v1_mounts(mounts, "blkio")]
        return list(self._rows(top, version, min(block, key=len, default=None)))

    def _rows(self, top: str, version: int, block: str | None) -> Iterator[CgroupUsage]:
        paths = (directory.path for directory in walk(self._files, top, _DEPTH))
        for path in islice((path for path in paths if path.endswith(".service")), MOST):
            if version == 1:
                nanoseconds = _number(self._text(f"{top}{path}/cpuacct.usage"))
                cpu = None if nanoseconds is None else nanoseconds // 1000
                moved = self._text(f"{block}{path}/blkio.throttle.io_service_bytes")
                io = None if moved is None or block is None else blkio_total(moved)
            else:
                content = self._text(f"{top}{path}/cpu.stat") or ""
                found = re.search(r"^usage_usec (\d{1,20})$", content, re.ASCII | re.MULTILINE)
                cpu = int(found[1]) if found else None
                moved = self._text(f"{top}{path}/io.stat")
                io = None if moved is None else io_total(moved)
            yield CgroupUsage(path, cpu, io)

    def _text(self, path: str) -> str | None:
        try:
            return text(self._files, path, _MOST_BYTES)
        except SourceError:  # gone, or the controller is off there
            return None


def _number(content: str | None) -> int | None:
    word = (content or "").strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 20 else None


def usage_source() -> Source:
    """For a sampler; not registered."""
    return Source("cgroupfs.usage", PATH, (CgroupUsage,), 0.0, 2.0, "", Usage)


LINES = 3000
_WANTED = ("-n", str(LINES), "--output-fields=_SYSTEMD_UNIT")


def last_logged(host: Host) -> dict[str, float]:
    """UNIX time of each unit's newest line."""
    return parse_last_logged(journal_text(host, _WANTED))


def parse_last_logged(lines: str) -> dict[str, float]:
    """By unit, from the lines of ``journalctl -o json``."""
    found: dict[str, float] = {}
    for entry in journal_entries(lines):
        unit = field(entry, "_SYSTEMD_UNIT")
        wall_us = microseconds(entry, "__REALTIME_TIMESTAMP")
        if unit and wall_us is not None:
            found[unit] = max(found.get(unit, 0.0), wall_us / 1e6)
    return found


DEADLINE_S = 10.0
#: More than any node has loaded; each costs half a dozen calls.
MOST_UNITS = 1_500
#: Without the unit such a dependant stops or cannot start; one of `WantedBy` only starts the unit.
STRONG = ("RequiredBy", "BoundBy", "RequisiteOf", "UpheldBy")
_ROOT = "/org/freedesktop/systemd1"
_UNIT = f"{SYSTEMD}.Unit"
_MANAGER = f"{SYSTEMD}.Manager"


def relations(
    host: Host, units: Iterable[str], deadline_s: float = DEADLINE_S
) -> dict[str, tuple[str, ...]]:
    """The units that cannot run without each of these; those that are gone by now are left out."""
    deadline = time.monotonic() + deadline_s
    names = list(units)[:MOST_UNITS]
    bus = open_bus(host, deadline)
    try:
        calls = [Call(_ROOT, _MANAGER, "GetUnit", "s", (name,)) for name in names]
        answers = bus.calls(calls, deadline)
        paths = [
            (name, str(answer[0]))
            for name, answer in zip(names, answers, strict=True)
            if not isinstance(answer, Refusal) and answer
        ]
        wanted = [get(path, _UNIT, key) for _, path in paths for key in STRONG]
        values = bus.properties(wanted, deadline)
    finally:
        bus.close()
    width = len(STRONG)
    return {
        name: _names(values[width * index : width * (index + 1)])
        for index, (name, _) in enumerate(paths)
    }


def _names(values: Iterable[Any]) -> tuple[str, ...]:
    """Unique names of several lists; a property that this systemd lacks is not a list."""
    lists = (value for value in values if isinstance(value, list | tuple))
    return tuple(dict.fromkeys(str(name) for value in lists for name in value))
