"""Records other than samples: tasks, maps, lost samples.

Record: ``u32 type; u16 misc, size``, a body, and (from the kernel, `sample_id_all`) a tail with the
time, whose offset from the end follows from the event's `sample_type` (include/uapi/linux/
perf_event.h, "struct sample_id"). perf itself writes such records for existing tasks and maps, with
a time of 0, and others from type 64 on, without a tail.

A capture of a fork storm has hundreds of thousands of them, so fields are gathered for a whole
piece at once, and the name of a map is read only when that map is used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I64, U8, Bools
from sexton.profile.perf.header import Attr, EventName, Features, attr_record, build_ids, text
from sexton.profile.perf.pieces import Piece
from sexton.profile.perf.raw import KernelSymbol

MMAP, LOST, COMM, EXIT, THROTTLE, FORK, MMAP2, LOST_SAMPLES = 1, 2, 3, 4, 5, 7, 10, 13
KSYMBOL, CGROUP = 17, 19
HEADER_ATTR, HEADER_BUILD_ID, EVENT_UPDATE, FEATURE = 64, 67, 78, 80
COMPRESSED, COMPRESSED2 = 81, 83

_CPU_MODE = 7
_KERNEL_MODE = 1
_USER_MODE = 2
#: COMM: renamed by exec. FORK: written by perf, and nothing was inherited.
EXEC = 1 << 13
_BPF_DROPPED = 1 << 15
_UPDATE_NAME = 2
_KSYMBOL_GONE = 1
_COMM_SIZE = 16
#: Limit per kind; a real node has a few thousand.
MOST = 4_000_000
#: Limit on event names and build ids.
_MOST_FEATURES = 100_000

MAP_ROW = np.dtype(
    [
        *(("pid", "i4"), ("time", "i8"), ("start", "u8"), ("length", "u8"), ("pgoff", "u8")),
        *(("at", "i8"), ("part", "i4"), ("size", "i4"), ("kernel", "?")),
    ]
)
TASK_ROW = np.dtype(
    [
        *(("type", "u1"), ("time", "i8"), ("pid", "i4"), ("tid", "i4"), ("ppid", "i4")),
        *(("ptid", "i4"), ("comm", "i4"), ("exec", "?")),
    ]
)
Rows = npt.NDArray[np.void]


class CompressedFound(Exception):
    """The records are compressed: unpack them first."""


class SideRecords:
    """Collects everything except samples, piece by piece."""

    def __init__(self, attrs: Sequence[Attr], features: Features) -> None:
        self.attrs = list(attrs)
        self.features = features
        #: Lost samples as reported by the kernel during the capture; in hardware buffers; and as
        #: read by perf at the end, which includes the first kind since perf started.
        self.lost = 0
        self.lost_in_hardware = 0
        self.lost_in_all = 0
        self.throttled = 0
        #: Records that are too short for their type.
        self.bad = 0
        self.comms: dict[bytes, int] = {}
        self.cgroups: dict[int, str] = {}
        self.ksymbols: dict[int, KernelSymbol] = {}
        self._maps: list[Rows] = []
        self._tasks: list[Rows] = []
        self._counts = {"mappings": 0, "tasks": 0, "cgroups": 0, "kernel symbols": 0}

    def maps(self) -> Rows:
        return np.concatenate(self._maps) if self._maps else np.zeros(0, MAP_ROW)

    def tasks(self) -> Rows:
        """In time order; equal times stay in file order."""
        found = np.concatenate(self._tasks) if self._tasks else np.zeros(0, TASK_ROW)
        return found[np.argsort(found["time"], kind="stable")]

    def take(self, piece: Piece, part: int) -> None:
        """Process the records of one piece. Raises `CompressedFound` at a compressed record."""
        if not len(piece.offsets):
            return
        raw = np.frombuffer(piece.view, np.uint8)
        if np.any((piece.kinds == COMPRESSED) | (piece.kinds == COMPRESSED2)):
            raise CompressedFound
        fields = _Fields(raw, piece.offsets, piece.kinds)
        for kind in (HEADER_ATTR, FEATURE, EVENT_UPDATE, HEADER_BUILD_ID):
            for at, size, _ in fields.rows_of(kind):
                self._header(kind, bytes(piece.view[at : at + size]))
        fields.tails(self.attrs)
        self._take_maps(fields, MMAP, (piece.at, part))
        self._take_maps(fields, MMAP2, (piece.at, part))
        self._take_tasks(fields, piece.view)
        self._take_counts(fields)
        for at, size, _ in fields.rows_of(CGROUP):
            if size >= 24 and self._room("cgroups", 1):
                (number,) = struct.unpack_from("<Q", piece.view, at + 8)
                self.cgroups[number] = text(bytes(piece.view[at + 16 : at + size]))
        for at, size, _ in fields.rows_of(KSYMBOL):
            if size >= 32 and self._room("kernel symbols", 1):
                start, length, _, flags = struct.unpack_from("<QIHH", piece.view, at + 8)
                name = text(bytes(piece.view[at + 24 : at + size]))
                if not flags & _KSYMBOL_GONE:
                    self.ksymbols[start] = KernelSymbol(start, start + length, name)

    def _room(self, what: str, more: int) -> bool:
        before = self._counts[what]
        self._counts[what] += more
        if before <= MOST < before + more:
            self.features.problems.append(f"more than {MOST:,} {what}: the rest is skipped")
        return before + more <= MOST

    def _header(self, kind: int, record: bytes) -> None:
        body = record[8:]
        if kind == HEADER_ATTR:
            attr = attr_record(body)
            if attr is not None and len(self.attrs) < 4096:
                self.attrs.append(attr)
        elif kind == FEATURE and len(body) >= 8:
            self.features.take(int.from_bytes(body[:8], "little"), body[8:])
        elif kind == EVENT_UPDATE and len(body) >= 16:
            update, number = struct.unpack_from("<QQ", body)
            if update == _UPDATE_NAME and len(self.features.names) < _MOST_FEATURES:
                self.features.names.append(EventName(text(body[16:]), (number,)))
        elif kind == HEADER_BUILD_ID and len(self.features.build_ids) < _MOST_FEATURES:
            self.features.build_ids += build_ids(record)

    def _take_maps(self, fields: _Fields, kind: int, place: tuple[int, int]) -> None:
        # addr, len, pgoff and, in the second kind, 24 bytes of identity, prot and flags
        at, sizes, misc = fields.of(kind, 40 if kind == MMAP else 72)
        self.bad += fields.short
        if not len(at) or not self._room("mappings", len(at)):
            return
        rows = np.zeros(len(at), MAP_ROW)
        rows["pid"] = _gather(fields.raw, at + 8, "<i4")
        for index, name in enumerate(("start", "length", "pgoff")):
            rows[name] = _gather(fields.raw, at + 16 + 8 * index, "<u8")
        rows["time"] = fields.times(at, sizes)
        rows["at"] = at + place[0]
        rows["part"] = place[1]
        rows["size"] = sizes
        rows["kernel"] = misc & _CPU_MODE == _KERNEL_MODE
        # Maps of guests cannot be symbolised here.
        self._maps.append(rows[(misc & _CPU_MODE == _USER_MODE) | rows["kernel"]])

    def _take_tasks(self, fields: _Fields, view: memoryview) -> None:
        found = []
        count = np.count_nonzero((fields.kinds == COMM) | (fields.kinds == FORK))
        if not count or not self._room("tasks", int(count)):
            return
        for kind in (COMM, FORK):
            at, sizes, misc = fields.of(kind, 24 if kind == COMM else 32)
            self.bad += fields.short
            rows = np.zeros(len(at), TASK_ROW)
            rows["type"] = kind
            rows["time"] = fields.times(at, sizes)
            rows["pid"] = _gather(fields.raw, at + 8, "<i4")
            rows["exec"] = misc & EXEC != 0
            if kind == COMM:
                rows["tid"] = _gather(fields.raw, at + 12, "<i4")
                rows["comm"] = [self._comm(view, offset) for offset in at.tolist()]
            else:
                rows["ppid"] = _gather(fields.raw, at + 12, "<i4")
                rows["tid"] = _gather(fields.raw, at + 16, "<i4")
                rows["ptid"] = _gather(fields.raw, at + 20, "<i4")
            found.append((at, rows))
        both = np.concatenate([rows for _, rows in found])
        self._tasks.append(both[np.argsort(np.concatenate([at for at, _ in found]))])

    def _comm(self, view: memoryview, at: int) -> int:
        name = bytes(view[at + 16 : at + 16 + _COMM_SIZE]).split(b"\0", 1)[0]
        return self.comms.setdefault(name, len(self.comms))

    def _take_counts(self, fields: _Fields) -> None:
        self.throttled += int(np.count_nonzero(fields.kinds == THROTTLE))
        at, _, _ = fields.of(LOST, 24)
        self.lost += sum(_gather(fields.raw, at + 16, "<u8").tolist())
        at, sizes, misc = fields.of(LOST_SAMPLES, 16)
        counts, by_perf = _gather(fields.raw, at + 8, "<u8"), fields.times(at, sizes) == 0
        not_bpf = misc & _BPF_DROPPED == 0
        self.lost_in_all += sum(counts[not_bpf & by_perf].tolist())
        self.lost_in_hardware += sum(counts[not_bpf & ~by_perf].tolist())


class _Fields:
    """The records of one piece, by kind."""

    def __init__(self, raw: U8, offsets: I64, kinds: npt.NDArray[np.uint32]) -> None:
        self.raw = raw
        self.offsets = offsets
        self.kinds = kinds
        self.short = 0
        self._backs: dict[int, int] = {}
        self._back = 0

    def tails(self, attrs: Sequence[Attr]) -> None:
        """Find the offset of the time from the end of a record; 0: no time."""
        backs = [_back(attr) for attr in attrs]
        self._back = backs[0] if backs else 0
        # If events differ, the last word of the tail (IDENTIFIER) says which event it is.
        if len(set(backs)) > 1:
            self._backs = {
                number: back
                for attr, back in zip(attrs, backs, strict=True)
                if attr.sample_type & 1 << 16
                for number in attr.ids
            }

    def rows_of(self, kind: int) -> list[tuple[int, int, int]]:
        """Offset, size and misc of all records of a kind."""
        return list(zip(*(column.tolist() for column in self.of(kind, 8)), strict=True))

    def of(self, kind: int, least: int) -> tuple[I64, I64, I64]:
        """Offset, size and misc of records of a kind with at least `least` bytes; counts others."""
        at = self.offsets[self.kinds == kind]
        sizes = _gather(self.raw, at + 6, "<u2").astype(np.int64)
        whole: Bools = sizes >= least
        self.short = int(len(at) - np.count_nonzero(whole))
        at, sizes = at[whole], sizes[whole]
        return at, sizes, _gather(self.raw, at + 4, "<u2").astype(np.int64)

    def times(self, at: I64, sizes: I64) -> I64:
        """The time of each record; 0 if unknown."""
        ends = at + sizes
        back = np.full(len(at), self._back, np.int64)
        if self._backs and len(at):
            numbers = _gather(self.raw, ends - 8, "<u8").tolist()
            back[:] = [self._backs.get(number, self._back) for number in numbers]
        timed = (back > 0) & (sizes >= back + 8)
        times = np.zeros(len(at), np.int64)
        times[timed] = _gather(self.raw, ends[timed] - back[timed], "<i8")
        return times


def _back(attr: Attr) -> int:
    """Bytes from the time in a tail to its end: time, id, stream, core and identifier."""
    if not attr.sample_id_all or not attr.timed:
        return 0
    return 8 * (1 + sum(attr.sample_type >> bit & 1 for bit in (6, 9, 7, 16)))


def _gather(raw: U8, at: I64, kind: str) -> npt.NDArray[Any]:
    """A field of every record."""
    width = np.dtype(kind).itemsize
    if not len(at):
        return np.zeros(0, kind)
    bytes_of_each: npt.NDArray[Any] = raw[at[:, None] + np.arange(width)]
    return bytes_of_each.view(kind).reshape(len(at))
