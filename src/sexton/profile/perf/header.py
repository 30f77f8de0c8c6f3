"""The head of a perf.data: which events were recorded, where the samples lie, what else is told.

``perf record -o FILE`` writes (the kernel's tools/perf/Documentation/perf.data-file-format.txt)
magic ``PERFILE2``, ``u64 size, attr_size``, ``{u64 offset, size}`` of the event attributes, of the
data and of a table no longer written, then 256 bits: which sections follow the data. To a pipe it
writes magic and ``u64 size = 16`` only, and everything else as records.

A real attribute (``cpu-clock`` at 97 Hz, kernel 6.18) is 128 bytes: ``u32 type, size; u64 config,
frequency or period, sample_type, read_format, flags``, then what few events use.

Quirks: a perf that was killed leaves a data size of 0; the samples are there all the same, up to
the end of the file, and the sections after them are not. Byte order is the recording machine's.

>>> attr = struct.pack("<IIQQQQQ", 1, 64, 0, 97, 0x2001E7, 0x4, 1 << 10 | 1 << 18) + bytes(16)
>>> parse_attr(attr)
Attr(type=1, config=0, rate=97, sample_type=2097639, read_format=4, flags=263168, \
branch_sample_type=0, regs_user=0, regs_intr=0, clockid=0, ids=())
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from sexton.errors import SourceMalformed
from sexton.model.profile import Event
from sexton.profile.perf.walk import Layout

MAGIC = b"PERFILE2"
_OTHER_ORDER = MAGIC[::-1]
_FIRST_VERSION = b"PERFFILE"
_HEAD = struct.Struct("<8s8Q32s")
HEAD_SIZE = _HEAD.size
PIPE_SIZE = 16
_SECTION = struct.Struct("<QQ")
#: The attribute of the first perf that had `sample_id_all`.
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

CALLCHAIN = 1 << 5
TIME = 1 << 2
_STACK_USER = 1 << 13
_CALL_STACK = 1 << 11  # of branch_sample_type: the last-branch records were asked for a call stack

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
    """Where something lies in the file."""

    offset: int
    size: int


class Attr(NamedTuple):
    """What of ``struct perf_event_attr`` we use, and the ids that mean this event."""

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
        return bool(self.sample_type & TIME)

    @property
    def clock(self) -> int | None:
        """The clock it was told to use; `None`: perf's own."""
        return self.clockid if self.flags & _USE_CLOCKID else None

    @property
    def tells_build_ids(self) -> bool:
        """Its maps come with build ids instead of devices and inodes."""
        return bool(self.flags & _BUILD_ID)

    @property
    def needs_unwinding(self) -> bool:
        """The user's part of a stack was recorded as memory, not as addresses."""
        return bool(self.sample_type & _STACK_USER and self.flags & _NO_USER_CHAIN)

    @property
    def in_branches(self) -> bool:
        return bool(self.branch_sample_type & _CALL_STACK and self.flags & _NO_USER_CHAIN)

    @property
    def is_dummy(self) -> bool:
        """An event that counts nothing; perf adds it to hear of new tasks and maps."""
        return self.type == 1 and self.config == 9

    def layout(self) -> Layout:
        return Layout(
            sample_type=self.sample_type,
            read_format=self.read_format,
            branch_sample_type=self.branch_sample_type,
            regs_user=self.regs_user,
            regs_intr=self.regs_intr,
            sample_id_all=self.sample_id_all,
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
    """`data.size` is `None` where perf did not live to write it."""

    pipe: bool
    attrs: tuple[Attr, ...]
    data_offset: int
    data_size: int | None
    sections: tuple[int, ...]


def is_perf_data(head: bytes) -> bool:
    """Do these first bytes begin a perf.data, of whatever kind and byte order?"""
    return head[:8] in (MAGIC, _OTHER_ORDER, _FIRST_VERSION)


def read_head(path: str, size: int, read: ReadAt) -> Head:
    """The head of a file of `size` bytes; `read` gives bytes at an offset."""
    content = read(0, HEAD_SIZE)
    if content[:8] == _OTHER_ORDER:
        raise SourceMalformed(
            path, 0, "recorded on a big-endian machine; run `perf script` there and give its text"
        )
    if content[:8] == _FIRST_VERSION:
        raise SourceMalformed(path, 0, "a perf.data of before 2010 (version 1); not readable")
    if content[:8] != MAGIC:
        raise SourceMalformed(path, 0, "no perf.data")
    if len(content) >= PIPE_SIZE and struct.unpack_from("<Q", content, 8)[0] == PIPE_SIZE:
        return Head(True, (), PIPE_SIZE, None, ())
    if len(content) < HEAD_SIZE:
        raise SourceMalformed(path, 0, f"cut off in its head, after {len(content)} bytes")
    head = _HEAD.unpack(content)
    attr_size, attrs, data, bits = head[2], Section(*head[3:5]), Section(*head[5:7]), head[9]
    if head[1] != HEAD_SIZE:
        raise SourceMalformed(path, 0, f"its head claims {head[1]:,} bytes and not {HEAD_SIZE}")
    if not HEAD_SIZE <= data.offset <= size:
        raise SourceMalformed(path, 0, "its data begin outside the file")
    sections = tuple(
        number for number in range(256) if bits[number // 8] >> (number % 8) & 1 and data.size
    )
    found = _attrs(path, (attrs, attr_size), size, read)
    return Head(False, found, data.offset, data.size or None, sections)


def _attrs(path: str, told: tuple[Section, int], size: int, read: ReadAt) -> tuple[Attr, ...]:
    section, each = told
    count = section.size // each if each else 0
    if not _OLDEST_ATTR <= each - _SECTION.size <= _LONGEST_ATTR or not 0 < count <= _MOST_EVENTS:
        raise SourceMalformed(path, 0, "its head describes no event that could be read")
    content = read(section.offset, count * each) if section.offset < size else b""
    if len(content) < count * each:
        raise SourceMalformed(path, 0, "its events are described outside the file")
    found, left = [], min(_MOST_IDS, size // 8)
    for at in range(0, count * each, each):
        ids = Section(*_SECTION.unpack_from(content, at + each - _SECTION.size))
        left -= ids.size // 8
        if left < 0 or ids.offset + ids.size > size:
            raise SourceMalformed(path, 0, "the ids of its events lie outside the file")
        attr = parse_attr(content[at : at + each - _SECTION.size])
        if attr is None:
            raise SourceMalformed(path, 0, "its head describes no event that could be read")
        numbers = read(ids.offset, ids.size // 8 * 8)
        found.append(attr._replace(ids=struct.unpack(f"<{len(numbers) // 8}Q", numbers)))
    return tuple(found)


def parse_attr(content: bytes) -> Attr | None:
    """One ``struct perf_event_attr``, however long this perf's was; `None` if it is none."""
    if len(content) < _OLDEST_ATTR:
        return None
    told = int.from_bytes(content[4:8], "little") or _OLDEST_ATTR
    if told < _OLDEST_ATTR:
        return None
    whole = content[: min(told, 128)].ljust(128, b"\0")
    kind, _, config, rate, sample_type, read_format, flags = struct.unpack_from("<IIQQQQQ", whole)
    branch, user = struct.unpack_from("<QQ", whole, 72)
    clockid, intr = struct.unpack_from("<iQ", whole, 92)
    return Attr(*(kind, config, rate, sample_type, read_format, flags, branch, user, intr, clockid))


def attr_record(body: bytes) -> Attr | None:
    """The same as a record of a pipe: attribute, then its ids."""
    attr = parse_attr(body)
    if attr is None:
        return None
    size = int.from_bytes(body[4:8], "little") or _OLDEST_ATTR
    count = max(0, len(body) - size) // 8
    return attr._replace(ids=struct.unpack_from(f"<{count}Q", body, size) if count else ())
