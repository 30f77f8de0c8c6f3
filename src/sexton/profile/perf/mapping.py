"""What lay where in each address space, out of the MMAP records of everybody.

Worked out only for spaces that were sampled: a node starts thousands of processes nobody ever sees
on a core. A space that began by fork has what its parent had mapped until then; of two maps over
one address the later one holds, and what it leaves of the earlier one stays (tools/perf/util/
maps.c does the same).

MMAP (type 1): ``u32 pid, tid; u64 address, length, page offset; name``. MMAP2 (10) has before the
name ``u32 major, minor; u64 inode, generation`` or, where misc bit 14 is set, ``u8 size; 3 bytes;
20 bytes of build id``, then ``u32 protection, flags``.

Quirk: where two perfs run at once and one asks for build ids, the kernel (6.18) sets that bit in
the other's records too, above a device and an inode (perf 6.1 dies of it). So the bit counts only
where the capture's own events ask for build ids.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable

import numpy as np

from sexton.model.profile import I32, I64
from sexton.profile.perf.features import text
from sexton.profile.perf.raw import KERNEL_PID, U64, MappedFile, Maps, Space, no_maps
from sexton.profile.perf.records import MMAP2, Rows
from sexton.profile.perf.timelines import Timelines, lookup

_BUILD_ID = 1 << 14
_LAST = np.uint64((1 << 64) - 1)
#: The kernel's own default bound (vm.max_map_count).
_MOST_MAPS = 65_530
#: Of all spaces together; what a thousand processes of a thousand maps each have.
_MOST_ROWS = 1_000_000
_MOST_FORKS = 1000

#: What the record at an offset of a part maps: part, offset, size.
ReadRecord = Callable[[int, int, int], MappedFile]


class Mapper:
    """Makes `Space`s out of map rows, and the list of files as it goes."""

    def __init__(self, maps: Rows, lines: Timelines, read: ReadRecord) -> None:
        self.files: list[MappedFile] = []
        self.problems: list[str] = []
        self._numbers: dict[MappedFile, int] = {}
        self._read = read
        self._lines = lines
        user = maps[~maps["kernel"]]
        space = lookup(lines.spaces, user["pid"], user["time"])
        user, space = user[space >= 0], space[space >= 0]
        order = np.lexsort((user["time"], space))
        self._rows = user[order]
        self._starts = np.searchsorted(space[order], np.arange(len(lines.seeds.pid) + 1))
        self._file = np.full(len(user), -1, np.int32)
        self._left = _MOST_ROWS
        self._made: dict[tuple[int, int], Maps] = {}

    def space(self, number: int) -> Space:
        """One space, by its number in the timelines."""
        if number == 0:
            return Space(KERNEL_PID, no_maps())
        return Space(self._lines.seeds.pid[number], self._maps(number))

    def _maps(self, number: int) -> Maps:
        # Many children of one parent, forked at the same state of it and mapping nothing
        # themselves, have the same maps: they are made once.
        pieces = self._pieces(number)
        if not pieces:
            return no_maps()
        key = pieces[-1]
        if len(pieces) == 1 and key in self._made:
            return self._made[key]
        if self._left <= 0:
            return no_maps()
        rows = np.concatenate([np.arange(*piece) for piece in reversed(pieces)])[-_MOST_MAPS:]
        self._spend(len(rows))
        made = self._lay(rows)
        if len(pieces) == 1:
            self._made[key] = made
        return made

    def _spend(self, amount: int) -> None:
        if 0 < self._left <= amount:
            self.problems.append("too many mappings: some processes are left without")
        self._left -= amount

    def _pieces(self, number: int) -> list[tuple[int, int]]:
        """Ranges of rows, the space's own first, then what it inherited, and so on."""
        found: list[tuple[int, int]] = []
        until: int | None = None
        total = 0
        hops = 0
        # A parent's number is always the smaller one, so this ends; bounded for hostile files.
        while number > 0 and total < _MOST_MAPS and hops < _MOST_FORKS and self._left > 0:
            hops += 1
            first, end = int(self._starts[number]), int(self._starts[number + 1])
            if until is not None:
                times = self._rows["time"][first:end]
                end = first + int(np.searchsorted(times, until, side="right"))
            if end > first:
                found.append((first, end))
                total += end - first
            seeds = self._lines.seeds
            number, until = seeds.parent[number], seeds.copied_ns[number]
        self._spend(hops)
        return found

    def _lay(self, rows: I64) -> Maps:
        chosen = self._rows[rows]
        start: U64 = chosen["start"]
        end: U64 = np.where(start + chosen["length"] < start, _LAST, start + chosen["length"])
        first, last, which = laid_out(start, end)
        pgoff = chosen["pgoff"][which] + (first - start[which])  # wraps where it is nonsense
        return Maps(first, last, pgoff, self._files_of(rows[which]))

    def _files_of(self, rows: I64) -> I32:
        for row in rows[self._file[rows] < 0].tolist():
            told = self._rows[row]
            file = self._read(int(told["part"]), int(told["at"]), int(told["size"]))
            if file not in self._numbers:
                self._numbers[file] = len(self.files)
                self.files.append(file)
            self._file[row] = self._numbers[file]
        return self._file[rows]


def mapped_file(record: bytes, build_ids: bool) -> MappedFile:
    """What an MMAP or MMAP2 record maps; `build_ids`: the events ask for them."""
    kind, misc = struct.unpack_from("<IH", record)
    if kind != MMAP2:
        return MappedFile(text(record[40:]))
    name = text(record[72:])
    if misc & _BUILD_ID and build_ids:
        length = record[40]
        return MappedFile(name, record[44 : 44 + length].hex() if 0 < length <= 20 else None)
    return MappedFile(name, None, *struct.unpack_from("<IIQ", record, 40))


def laid_out(start: U64, end: U64) -> tuple[U64, U64, I64]:
    """Intervals that do not overlap, and which each is a part of: the later of two over one place.

    >>> u64 = lambda *numbers: np.array(numbers, np.uint64)
    >>> [column.tolist() for column in laid_out(u64(0, 20, 5, 40), u64(10, 30, 25, 50))]
    [[0, 5, 25, 40], [5, 25, 30, 50], [0, 2, 1, 3]]
    """
    # By place, and of what was mapped again just there only the last.
    order = np.lexsort((end, start))
    order = order[start[order] < end[order]]
    first, last = start[order], end[order]
    again = (first[1:] == first[:-1]) & (last[1:] == last[:-1])
    order = order[~np.append(again, False)] if len(order) else order
    first, last = start[order], end[order]
    # Most touch no other; only heaps of those that do are taken apart.
    reach = np.maximum.accumulate(last)
    alone_before = np.ones(len(order), np.bool_)
    alone_before[1:] = first[1:] >= reach[:-1]
    alone = alone_before & np.append(alone_before[1:], True)[: len(order)]
    if alone.all():
        return first, last, order
    heaped = np.sort(order[~alone])  # by age again
    laid = _heaped(start[heaped].tolist(), end[heaped].tolist())
    parts = np.array([which for _, _, which in laid], np.int64)
    first = np.append(first[alone], np.array([begin for begin, _, _ in laid], np.uint64))
    last = np.append(last[alone], np.array([stop for _, stop, _ in laid], np.uint64))
    which = np.append(order[alone], heaped[parts])
    by_place = np.argsort(first)
    return first[by_place], last[by_place], which[by_place]


def _heaped(starts: list[int], ends: list[int]) -> list[tuple[int, int, int]]:
    """The same for intervals that do overlap, given by age: `(start, end, index)` by place."""
    laid: list[tuple[int, int, int]] = []
    heap: list[tuple[int, int]] = []  # those that cover the place we are at, the latest on top
    place = 0

    def up_to(until: int | None) -> None:
        nonlocal place
        while heap and (until is None or place < until):
            index = -heap[0][0]
            end = heap[0][1]
            if end <= place:
                heapq.heappop(heap)
                continue
            stop = end if until is None else min(end, until)
            if laid and laid[-1][2] == index and laid[-1][1] == place:
                laid[-1] = (laid[-1][0], stop, index)
            else:
                laid.append((place, stop, index))
            place = stop

    for index in sorted(range(len(starts)), key=starts.__getitem__):
        up_to(starts[index])
        place = starts[index]
        heapq.heappush(heap, (-index, ends[index]))
    up_to(None)
    return laid
