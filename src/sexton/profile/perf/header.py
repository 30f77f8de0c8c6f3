"""The header of a perf.data: events, position of the samples, and feature sections (metadata).

``perf record -o FILE`` writes (the kernel's tools/perf/Documentation/perf.data-file-format.txt)
magic ``PERFILE2``, ``u64 size, attr_size``, ``{u64 offset, size}`` of the event attributes, of the
data and of a table no longer written, then 256 bits: which sections follow the data. To a pipe it
writes magic and ``u64 size = 16`` only, and everything else as records (type 80 for sections).

A real attribute (``cpu-clock`` at 97 Hz, kernel 6.18) is 128 bytes: ``u32 type, size; u64 config,
frequency or period, sample_type, read_format, flags``, then what few events use.

The sections are numbered as in the kernel's tools/perf/util/header.h. A table of them follows the
data, one ``{u64 offset, size}`` per bit set in the header. A string is ``u32 length`` and as many
bytes, padded with zeros.

Quirks: a perf that was killed leaves a data size of 0; the samples are in the file, up to its end,
without sections after them. Byte order is that of the recording machine. Build id entries have
their own length, like records, and 20 bytes of id, of which fewer may count (byte 20 says how many,
if bit 15 of `misc` is set). A malformed section is skipped with a problem line: the samples are
still usable.

>>> attr = struct.pack("<IIQQQQQ", 1, 64, 0, 97, 0x2001E7, 0x4, 1 << 10 | 1 << 18) + bytes(16)
>>> parse_attr(attr)
Attr(type=1, config=0, rate=97, sample_type=2097639, read_format=4, flags=263168, \
branch_sample_type=0, regs_user=0, regs_intr=0, clockid=0, ids=())
>>> features = Features()
>>> features.take(3, struct.pack("<I", 8) + b"node-7" + bytes(2))
>>> features.take(29, struct.pack("<IIQQ", 1, 1, 1_700_000_000_000_000_000, 5_000_000_000))
>>> features.host, features.clock()
('node-7', Clock(kind='monotonic', wall_minus_ns=1699999995000000000))
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sexton.errors import SourceMalformed
from sexton.model.profile import Clock, Event
from sexton.profile.perf.walk import Layout

MAGIC = b"PERFILE2"
_OTHER_ORDER = MAGIC[::-1]
_FIRST_VERSION = b"PERFFILE"
_HEAD = struct.Struct("<8s8Q32s")
HEAD_SIZE = _HEAD.size
PIPE_SIZE = 16
_SECTION = struct.Struct("<QQ")
#: Size of the attribute in the first perf with `sample_id_all`.
_OLDEST_ATTR = 64
_LONGEST_ATTR = 4096
_MOST_EVENTS = 4096
#: A thousand events on a thousand cores.
_MOST_IDS = 1 << 20

_FREQ = 1 << 10
_SAMPLE_ID_ALL = 1 << 18
_NO_USER_CHAIN = 1 << 22
_USE_CLOCKID = 1 << 25
_BUILD_ID = 1 << 34

_TIME = 1 << 2
_STACK_USER = 1 << 13
_CALL_STACK = 1 << 11  # of branch_sample_type: last-branch records hold a call stack

_SOFTWARE = (
    *("cpu-clock", "task-clock", "page-faults", "context-switches", "cpu-migrations"),
    *("minor-faults", "major-faults", "alignment-faults", "emulation-faults", "dummy"),
    *("bpf-output", "cgroup-switches"),
)
_HARDWARE = (
    *("cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses"),
    *("bus-cycles", "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles"),
)
_KINDS = {2: "tracepoint", 3: "cache", 4: "raw", 5: "breakpoint"}

#: Reads `size` bytes at `offset`; fewer where the file ends.
ReadAt = Callable[[int, int], bytes]


class Section(NamedTuple):
    """A part of the file."""

    offset: int
    size: int


class Attr(NamedTuple):
    """The used fields of ``struct perf_event_attr``, and the ids of the event."""

    type: int
    config: int
    rate: int
    sample_type: int
    read_format: int
    flags: int
    branch_sample_type: int = 0
    regs_user: int = 0
    regs_intr: int = 0
    clockid: int = 0
    ids: tuple[int, ...] = ()

    @property
    def sample_id_all(self) -> bool:
        return bool(self.flags & _SAMPLE_ID_ALL)

    @property
    def timed(self) -> bool:
        return bool(self.sample_type & _TIME)

    @property
    def clock(self) -> int | None:
        """The clock it was set to use; `None`: perf's own."""
        return self.clockid if self.flags & _USE_CLOCKID else None

    @property
    def has_build_ids(self) -> bool:
        """Map records have build ids instead of devices and inodes."""
        return bool(self.flags & _BUILD_ID)

    @property
    def needs_unwinding(self) -> bool:
        """User stacks were recorded as memory, not as addresses."""
        return bool(self.sample_type & _STACK_USER and self.flags & _NO_USER_CHAIN)

    @property
    def in_branches(self) -> bool:
        return bool(self.branch_sample_type & _CALL_STACK and self.flags & _NO_USER_CHAIN)

    @property
    def is_dummy(self) -> bool:
        """An event that counts nothing; perf adds it to receive task and map records."""
        return self.type == 1 and self.config == 9

    def layout(self) -> Layout:
        return Layout(
            sample_type=self.sample_type,
            read_format=self.read_format,
            branch_sample_type=self.branch_sample_type,
            regs_user=self.regs_user,
            regs_intr=self.regs_intr,
            ids=self.ids,
        )

    def event(self, name: str | None) -> Event:
        if self.flags & _FREQ:
            return Event(name or self._name(), hertz=self.rate)
        return Event(name or self._name(), period=self.rate)

    def _name(self) -> str:
        names = {0: _HARDWARE, 1: _SOFTWARE}.get(self.type, ())
        if self.config < len(names):
            return names[self.config]
        return f"{_KINDS.get(self.type, f'type {self.type}')} {self.config:#x}"


class Head(NamedTuple):
    """`data_size` is `None` if perf was killed before it wrote it."""

    pipe: bool
    attrs: tuple[Attr, ...]
    data_offset: int
    data_size: int | None
    sections: tuple[int, ...]


def is_perf_data(head: bytes) -> bool:
    """Are these the first bytes of a perf.data, of any kind and byte order?"""
    return head[:8] in (MAGIC, _OTHER_ORDER, _FIRST_VERSION)


def read_head(path: str, size: int, read: ReadAt) -> Head:
    """The header of a file of `size` bytes."""
    content = read(0, HEAD_SIZE)
    if content[:8] == _OTHER_ORDER:
        raise SourceMalformed(
            path, 0, "recorded on a big-endian machine; run `perf script` there and pass its text"
        )
    if content[:8] == _FIRST_VERSION:
        raise SourceMalformed(path, 0, "perf.data version 1 (before 2010) is not supported")
    if content[:8] != MAGIC:
        raise SourceMalformed(path, 0, "not a perf.data file")
    if len(content) >= PIPE_SIZE and struct.unpack_from("<Q", content, 8)[0] == PIPE_SIZE:
        return Head(True, (), PIPE_SIZE, None, ())
    if len(content) < HEAD_SIZE:
        raise SourceMalformed(path, 0, f"truncated in its header, after {len(content)} bytes")
    head = _HEAD.unpack(content)
    attr_size, attrs, data, bits = head[2], Section(*head[3:5]), Section(*head[5:7]), head[9]
    if head[1] != HEAD_SIZE:
        raise SourceMalformed(path, 0, f"header size is {head[1]:,} bytes, expected {HEAD_SIZE}")
    if not HEAD_SIZE <= data.offset <= size:
        raise SourceMalformed(path, 0, "data section starts outside the file")
    sections = tuple(
        number for number in range(256) if bits[number // 8] >> (number % 8) & 1 and data.size
    )
    found = _attrs(path, (attrs, attr_size), size, read)
    return Head(False, found, data.offset, data.size or None, sections)


def _attrs(path: str, table: tuple[Section, int], size: int, read: ReadAt) -> tuple[Attr, ...]:
    section, entry_size = table
    count = section.size // entry_size if entry_size else 0
    if (
        not _OLDEST_ATTR <= entry_size - _SECTION.size <= _LONGEST_ATTR
        or not 0 < count <= _MOST_EVENTS
    ):
        raise SourceMalformed(path, 0, "no readable event description in the header")
    content = read(section.offset, count * entry_size) if section.offset < size else b""
    if len(content) < count * entry_size:
        raise SourceMalformed(path, 0, "event descriptions lie outside the file")
    found, left = [], min(_MOST_IDS, size // 8)
    for at in range(0, count * entry_size, entry_size):
        ids = Section(*_SECTION.unpack_from(content, at + entry_size - _SECTION.size))
        left -= ids.size // 8
        if left < 0 or ids.offset + ids.size > size:
            raise SourceMalformed(path, 0, "event ids lie outside the file")
        attr = parse_attr(content[at : at + entry_size - _SECTION.size])
        if attr is None:
            raise SourceMalformed(path, 0, "no readable event description in the header")
        numbers = read(ids.offset, ids.size // 8 * 8)
        found.append(attr._replace(ids=struct.unpack(f"<{len(numbers) // 8}Q", numbers)))
    return tuple(found)


def parse_attr(content: bytes) -> Attr | None:
    """One ``struct perf_event_attr``, of any length; `None` if malformed."""
    if len(content) < _OLDEST_ATTR:
        return None
    size = int.from_bytes(content[4:8], "little") or _OLDEST_ATTR
    if size < _OLDEST_ATTR:
        return None
    whole = content[: min(size, 128)].ljust(128, b"\0")
    kind, _, config, rate, sample_type, read_format, flags = struct.unpack_from("<IIQQQQQ", whole)
    branch, user = struct.unpack_from("<QQ", whole, 72)
    clockid, intr = struct.unpack_from("<iQ", whole, 92)
    return Attr(*(kind, config, rate, sample_type, read_format, flags, branch, user, intr, clockid))


def attr_record(body: bytes) -> Attr | None:
    """The same from a record of a pipe: attribute, then its ids."""
    attr = parse_attr(body)
    if attr is None:
        return None
    size = int.from_bytes(body[4:8], "little") or _OLDEST_ATTR
    count = max(0, len(body) - size) // 8
    return attr._replace(ids=struct.unpack_from(f"<{count}Q", body, size) if count else ())


BUILD_ID = 2
HOSTNAME = 3
OSRELEASE = 4
NRCPUS = 7
CMDLINE = 11
EVENT_DESC = 12
SAMPLE_TIME = 21
CLOCK_DATA = 29
#: The sections that are read.
READ = frozenset(
    {BUILD_ID, HOSTNAME, OSRELEASE, NRCPUS, CMDLINE, EVENT_DESC, SAMPLE_TIME, CLOCK_DATA}
)
#: Ten thousand build ids take 1 MB.
MOST_BYTES = 32 << 20

_REALTIME = 0
_CLOCKS = {0: "realtime", 1: "monotonic", 4: "monotonic_raw", 7: "boottime", 11: "tai"}
_HAS_ID_SIZE = 1 << 15
_CPU_MODE = 7
_KERNEL = 1


class BuildId(NamedTuple):
    """The build id of a path at recording time."""

    path: str
    build_id: str
    kernel: bool


class EventName(NamedTuple):
    """The name of an event as given on the command line, and its ids."""

    name: str
    ids: tuple[int, ...]


@dataclass(slots=True)
class Features:
    """The sections read so far. `None` is unknown."""

    host: str | None = None
    release: str | None = None
    command: str | None = None
    cores: int | None = None
    names: list[EventName] = field(default_factory=list)
    build_ids: list[BuildId] = field(default_factory=list)
    #: Times of the first and last sample.
    span_ns: tuple[int, int] | None = None
    #: A clock, its time, and the wall clock time at the same moment.
    moment: tuple[int, int, int] | None = None
    problems: list[str] = field(default_factory=list)

    def take(self, feature: int, content: bytes) -> None:
        """One section."""
        try:
            self._take(feature, content)
        except (struct.error, IndexError):
            problem = f"header section {feature} is malformed: skipped"
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
            # perf writes zeros if it did not process its own samples.
            self.span_ns = (first, last) if last and last < 1 << 63 else None
        elif feature == CLOCK_DATA:
            version, clock, wall_ns, clock_ns = struct.unpack_from("<IIQQ", content)
            if version == 1 and wall_ns < 1 << 63 and clock_ns < 1 << 63:
                self.moment = clock, clock_ns, wall_ns
        elif feature == BUILD_ID:
            self.build_ids += build_ids(content)

    def names_of(self, events: Sequence[tuple[int, ...]]) -> list[str | None]:
        """Names of events by their ids, or by position if neither has ids."""
        by_id = {number: name.name for name in reversed(self.names) for number in name.ids}
        found = [next((by_id[n] for n in ids if n in by_id), None) for ids in events]
        for place, name in enumerate(self.names[: len(found)]):
            if found[place] is None and not name.ids:
                found[place] = name.name
        return found

    def clock(self, configured: int | None = None) -> Clock:
        """How sample times convert to wall time; `configured` is the clock of the events."""
        if self.moment is not None:
            clock, clock_ns, wall_ns = self.moment
            return Clock(_CLOCKS.get(clock, f"clock {clock}"), wall_ns - clock_ns)
        if configured is None:
            return Clock("perf", None)
        wall = 0 if configured == _REALTIME else None
        return Clock(_CLOCKS.get(configured, f"clock {configured}"), wall)


def text(content: bytes) -> str:
    """The text up to the first zero byte."""
    return content.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def build_ids(content: bytes) -> Iterator[BuildId]:
    """The entries of a BUILD_ID section."""
    at = 0
    while at + 36 <= len(content):
        _, misc, size, _ = struct.unpack_from("<IHHi", content, at)
        if size < 36:
            raise struct.error("entry shorter than its header")
        length = content[at + 32] if misc & _HAS_ID_SIZE else 20
        name = text(content[at + 36 : at + size])
        if 0 < length <= 20:
            found = content[at + 12 : at + 12 + length].hex()
            yield BuildId(name, found, misc & _CPU_MODE == _KERNEL)
        at += size


def _string(content: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<I", content, at)
    if length > len(content) - at - 4:
        raise struct.error("string longer than its section")
    return text(content[at + 4 : at + 4 + length]), at + 4 + length


def _strings(content: bytes) -> Iterator[str]:
    (count,) = struct.unpack_from("<I", content)
    at = 4
    for _ in range(min(count, len(content) // 4)):
        found, at = _string(content, at)
        yield found


def _descriptions(content: bytes) -> Iterator[EventName]:
    count, attr_size = struct.unpack_from("<II", content)
    at = 8
    for _ in range(min(count, len(content) // 64)):
        if parse_attr(content[at : at + attr_size]) is None:
            raise struct.error("no attribute")
        (ids,) = struct.unpack_from("<I", content, at + attr_size)
        name, at = _string(content, at + attr_size + 4)
        yield EventName(name, struct.unpack_from(f"<{ids}Q", content, at))
        at += 8 * ids
