"""What perf tells about a capture beside its samples: the sections after the data.

Numbered as in the kernel's tools/perf/util/header.h. A file has a table of them where its data
end, one ``{u64 offset, size}`` per bit set in the head; a pipe has a record (type 80) of each.
A string is ``u32 length`` and as many bytes, of which zeros at the end are padding.

>>> told = Told()
>>> told.take(3, struct.pack("<I", 8) + b"node-7" + bytes(2))
>>> told.take(29, struct.pack("<IIQQ", 1, 1, 1_700_000_000_000_000_000, 5_000_000_000))
>>> told.host, told.clock()
('node-7', Clock(kind='monotonic', wall_minus_ns=1699999995000000000))

Quirks: the build ids' entries carry their own length as records do, and 20 bytes of id, of which
fewer may count (byte 20 says how many, where bit 15 of `misc` is set). A section that makes no
sense is left out and told of: without a host's name there are still all its samples.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sexton.model.profile import Clock
from sexton.profile.perf.header import parse_attr

BUILD_ID = 2
HOSTNAME = 3
OSRELEASE = 4
NRCPUS = 7
CMDLINE = 11
EVENT_DESC = 12
SAMPLE_TIME = 21
CLOCK_DATA = 29
#: The ones we read; others are skipped unread.
READ = frozenset({BUILD_ID, HOSTNAME, OSRELEASE, NRCPUS, CMDLINE, EVENT_DESC, SAMPLE_TIME, 29})
#: Ten thousand build ids take 1 MB.
MOST_BYTES = 32 << 20

_REALTIME = 0
_CLOCKS = {0: "realtime", 1: "monotonic", 4: "monotonic_raw", 7: "boottime", 11: "tai"}
_ID_SIZE_TOLD = 1 << 15
_CPU_MODE = 7
_KERNEL = 1


class BuildId(NamedTuple):
    """Which build a path was when it was recorded."""

    path: str
    build_id: str
    kernel: bool


class Named(NamedTuple):
    """An event's name as the person gave it, and the ids that mean it."""

    name: str
    ids: tuple[int, ...]


@dataclass(slots=True)
class Told:
    """Everything said so far. `None` is "not told"."""

    host: str | None = None
    release: str | None = None
    command: str | None = None
    cores: int | None = None
    names: list[Named] = field(default_factory=list)
    build_ids: list[BuildId] = field(default_factory=list)
    #: Times of the first and the last sample.
    span_ns: tuple[int, int] | None = None
    #: Clock, and what it and the wall clock said at the same moment.
    moment: tuple[int, int, int] | None = None
    problems: list[str] = field(default_factory=list)

    def take(self, feature: int, content: bytes) -> None:
        """One section."""
        try:
            self._take(feature, content)
        except (struct.error, IndexError):
            problem = f"section {feature} of what perf tells makes no sense; left out"
            if problem not in self.problems:
                self.problems.append(problem)

    def _take(self, feature: int, content: bytes) -> None:
        if feature == HOSTNAME:
            self.host = _string(content, 0)[0]
        elif feature == OSRELEASE:
            self.release = _string(content, 0)[0]
        elif feature == NRCPUS:
            self.cores = struct.unpack_from("<II", content)[1]
        elif feature == CMDLINE:
            self.command = " ".join(_strings(content))
        elif feature == EVENT_DESC:
            self.names = list(_descriptions(content))
        elif feature == SAMPLE_TIME:
            first, last = struct.unpack_from("<QQ", content)
            # perf writes zeros where it did not look through its own samples.
            self.span_ns = (first, last) if last and last < 1 << 63 else None
        elif feature == CLOCK_DATA:
            version, clock, wall_ns, clock_ns = struct.unpack_from("<IIQQ", content)
            if version == 1 and wall_ns < 1 << 63 and clock_ns < 1 << 63:
                self.moment = clock, clock_ns, wall_ns
        elif feature == BUILD_ID:
            self.build_ids += build_ids(content)

    def names_of(self, events: Sequence[tuple[int, ...]]) -> list[str | None]:
        """Of events by their ids, or (where neither has any) by their place among them."""
        by_id = {number: each.name for each in reversed(self.names) for number in each.ids}
        found = [next((by_id[n] for n in ids if n in by_id), None) for ids in events]
        for place, each in enumerate(self.names[: len(found)]):
            if found[place] is None and not each.ids:
                found[place] = each.name
        return found

    def clock(self, asked_for: int | None = None) -> Clock:
        """How a sample's time becomes wall time; `asked_for` is the clock the events used."""
        if self.moment is not None:
            clock, clock_ns, wall_ns = self.moment
            return Clock(_CLOCKS.get(clock, f"clock {clock}"), wall_ns - clock_ns)
        if asked_for is None:
            return Clock("perf", None)
        wall = 0 if asked_for == _REALTIME else None
        return Clock(_CLOCKS.get(asked_for, f"clock {asked_for}"), wall)


def text(content: bytes) -> str:
    """Up to the first zero, with whatever bytes it holds."""
    return content.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def build_ids(content: bytes) -> Iterator[BuildId]:
    """Entries as in a BUILD_ID section, one after the other."""
    at = 0
    while at + 36 <= len(content):
        _, misc, size, _ = struct.unpack_from("<IHHi", content, at)
        if size < 36:
            raise struct.error("an entry shorter than itself")
        length = content[at + 32] if misc & _ID_SIZE_TOLD else 20
        name = text(content[at + 36 : at + size])
        if 0 < length <= 20:
            found = content[at + 12 : at + 12 + length].hex()
            yield BuildId(name, found, misc & _CPU_MODE == _KERNEL)
        at += size


def _string(content: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<I", content, at)
    if length > len(content) - at - 4:
        raise struct.error("a string longer than its section")
    return text(content[at + 4 : at + 4 + length]), at + 4 + length


def _strings(content: bytes) -> Iterator[str]:
    (count,) = struct.unpack_from("<I", content)
    at = 4
    for _ in range(min(count, len(content) // 4)):
        found, at = _string(content, at)
        yield found


def _descriptions(content: bytes) -> Iterator[Named]:
    count, attr_size = struct.unpack_from("<II", content)
    at = 8
    for _ in range(min(count, len(content) // 64)):
        if parse_attr(content[at : at + attr_size]) is None:
            raise struct.error("no attribute")
        (ids,) = struct.unpack_from("<I", content, at + attr_size)
        name, at = _string(content, at + attr_size + 4)
        yield Named(name, struct.unpack_from(f"<{ids}Q", content, at))
        at += 8 * ids
