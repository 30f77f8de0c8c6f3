"""Thread names and address spaces over time.

As in perf (tools/perf/util/machine.c): a COMM record names a thread from its time on; a FORK gives
the new thread its parent's name, and a new process its parent's maps; FORKs that perf itself wrote
for existing tasks inherit nothing (misc bit 13); thread 0 is ``swapper``; an unnamed thread is
``:tid``. An EXIT changes nothing: a thread still runs for a short time after it, under its name,
and a reused number comes with its own FORK.

An exec (COMM with misc bit 13) starts a new address space, and the old program's maps stay below
the new ones: a task still in ``execve`` has the old addresses in its stack.

Maps are built only for sampled spaces: a node starts thousands of processes that are never sampled.
A space that started with a fork has what its parent had mapped until then; of two maps over one
address the later one wins, and the rest of the earlier one stays (as in tools/perf/util/maps.c).

MMAP (type 1): ``u32 pid, tid; u64 address, length, page offset; name``. MMAP2 (10) has before the
name ``u32 major, minor; u64 inode, generation`` or, if misc bit 14 is set, ``u8 size; 3 bytes;
20 bytes of build id``, then ``u32 protection, flags``.

Quirk: if two perfs run at once and one asks for build ids, the kernel (6.18) sets that bit in the
other's records too, above a device and an inode (perf 6.1 crashes on it). So the bit counts only if
the capture's own events ask for build ids.
"""

from __future__ import annotations

import heapq
import struct
from array import array
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from sexton.model.profile import I32, I64
from sexton.profile.perf.header import text
from sexton.profile.perf.raw import KERNEL_PID, U64, MappedFile, Maps, Space, no_maps
from sexton.profile.perf.records import COMM, FORK, MMAP2, Rows
from sexton.profile.perf.walk import Since, value_at

#: `Seeds.parent` of a space that inherited nothing.
NO_PARENT = -1
_SWAPPER = b"swapper"
_COLUMNS = ("type", "time", "pid", "tid", "ppid", "ptid", "comm", "exec")
_AT_ONCE = 1 << 16


class Seeds(NamedTuple):
    """The origin of each space: its process, the space it was copied from, and when.

    Number 0 is the kernel.
    """

    pid: array[int]
    parent: array[int]
    copied_ns: array[int]


class Timelines(NamedTuple):
    """`comms` and `spaces` for the walk; names and seeds by number."""

    comms: Since
    spaces: Since
    names: list[bytes]
    seeds: Seeds


def unknown_comm(tid: int) -> bytes:
    """perf's name for an unnamed thread."""
    return b":%d" % tid


def timelines(tasks: Rows, maps: Rows, names: dict[bytes, int]) -> Timelines:
    """`tasks` are in time order; `names` numbers their comms, and new ones are added."""
    comms = _Comms(names)
    spaces = _Spaces()
    spaces.add_existing(tasks, maps)
    # A fork storm has hundreds of thousands of these: keep the loop body small.
    for kind, time, pid, tid, ppid, ptid, comm, by_exec in _rows(tasks):
        if kind == COMM:
            comms.named(tid, time, comm)
            comms.process[tid] = pid
            if by_exec:
                spaces.begin(pid, time, pid)
        else:
            if comms.process.get(ptid, ppid) != ppid:  # its own FORK was lost: another thread
                comms.forget(ptid, time)
            comms.process[ptid] = ppid
            comms.process[tid] = pid
            inherited = comms.now.get(ptid)
            if inherited is None:
                comms.forget(tid, time)
            else:
                comms.named(tid, time, inherited)
            if pid == tid and pid != ppid:
                spaces.begin(pid, time, None if by_exec else ppid)
    return Timelines(comms.line.since(), spaces.line.since(), list(names), spaces.seeds)


def _rows(tasks: Rows) -> Iterator[tuple[Any, ...]]:
    """In batches: Python numbers take ten times the memory."""
    for at in range(0, len(tasks), _AT_ONCE):
        some = tasks[at : at + _AT_ONCE]
        yield from zip(*(some[name].tolist() for name in _COLUMNS), strict=True)


class _Line:
    """Entries in file order."""

    def __init__(self) -> None:
        self.keys = array("i")
        self.times = array("q")
        self.values = array("i")

    def add(self, key: int, time: int, value: int) -> None:
        self.keys.append(key)
        self.times.append(time)
        self.values.append(value)

    def since(self) -> Since:
        """Sorted by key and time; of several at the same time the last is kept."""
        key = np.frombuffer(self.keys, np.int32)
        time = np.frombuffer(self.times, np.int64)
        order = np.lexsort((time, key))  # stable
        key, time = key[order], time[order]
        last = np.ones(len(key), np.bool_)
        last[:-1] = (key[1:] != key[:-1]) | (time[1:] != time[:-1])
        return Since(key[last], time[last], np.frombuffer(self.values, np.int32)[order][last])


class _Comms:
    def __init__(self, names: dict[bytes, int]) -> None:
        self.line = _Line()
        self.now: dict[int, int] = {}
        self.process = {0: 0}
        self._names = names
        self.named(0, 0, self._number(_SWAPPER))

    def named(self, tid: int, time: int, comm: int) -> None:
        self.now[tid] = comm
        self.line.add(tid, time, comm)

    def forget(self, tid: int, time: int) -> None:
        if self.now.pop(tid, None) is not None:
            self.line.add(tid, time, self._number(unknown_comm(tid)))

    def _number(self, name: bytes) -> int:
        return self._names.setdefault(name, len(self._names))


class _Spaces:
    def __init__(self) -> None:
        self.line = _Line()
        self.seeds = Seeds(array("i", [KERNEL_PID]), array("i", [NO_PARENT]), array("q", [0]))
        self._now: dict[int, int] = {}

    def begin(self, pid: int, time: int, parent: int | None) -> None:
        """Start a space of `pid`, with the maps of `parent` until now."""
        number = len(self.seeds.pid)
        self.seeds.pid.append(pid)
        self.seeds.parent.append(NO_PARENT if parent is None else self._now.get(parent, NO_PARENT))
        self.seeds.copied_ns.append(time)
        self._now[pid] = number
        self.line.add(pid, time, number)

    def add_existing(self, tasks: Rows, maps: Rows) -> None:
        """Processes with maps and without a FORK or exec record."""
        user = maps[~maps["kernel"]]
        begun = (tasks["type"] == FORK) | tasks["exec"]
        early = np.unique(user["pid"][user["time"] == 0])
        unborn = np.setdiff1d(user["pid"], tasks["pid"][begun])
        for pid in np.union1d(early, unborn).tolist():
            self.begin(pid, 0, None)


_BUILD_ID = 1 << 14
_LAST = np.uint64((1 << 64) - 1)
#: The kernel's default limit (vm.max_map_count).
_MOST_MAPS = 65_530
#: Over all spaces: a thousand processes with a thousand maps each.
_MOST_ROWS = 1_000_000
_MOST_FORKS = 1000

#: Reads the file mapped by a record: part, offset, size.
ReadRecord = Callable[[int, int, int], MappedFile]


class Mapper:
    """Builds `Space`s from map rows, and collects the mapped files."""

    def __init__(self, maps: Rows, lines: Timelines, read: ReadRecord) -> None:
        self.files: list[MappedFile] = []
        self.problems: list[str] = []
        self._numbers: dict[MappedFile, int] = {}
        self._read = read
        self._lines = lines
        user = maps[~maps["kernel"]]
        space = value_at(lines.spaces, user["pid"], user["time"])
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
        # Children forked at the same state of one parent, without maps of their own, share their
        # maps: these are built once.
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
            self.problems.append("too many mappings: some processes have none")
        self._left -= amount

    def _pieces(self, number: int) -> list[tuple[int, int]]:
        """Ranges of rows: the space's own, then those it inherited, and so on."""
        found: list[tuple[int, int]] = []
        until: int | None = None
        total = 0
        hops = 0
        # A parent's number is always smaller, so this ends; bounded for hostile files.
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
        pgoff = chosen["pgoff"][which] + (first - start[which])  # wraps around in damaged files
        return Maps(first, last, pgoff, self._files_of(rows[which]))

    def _files_of(self, rows: I64) -> I32:
        for row in rows[self._file[rows] < 0].tolist():
            record = self._rows[row]
            file = self._read(int(record["part"]), int(record["at"]), int(record["size"]))
            if file not in self._numbers:
                self._numbers[file] = len(self.files)
                self.files.append(file)
            self._file[row] = self._numbers[file]
        return self._file[rows]


def mapped_file(record: bytes, build_ids: bool) -> MappedFile:
    """The file of an MMAP or MMAP2 record; `build_ids`: the events ask for them."""
    kind, misc = struct.unpack_from("<IH", record)
    if kind != MMAP2:
        return MappedFile(text(record[40:]))
    name = text(record[72:])
    if misc & _BUILD_ID and build_ids:
        length = record[40]
        return MappedFile(name, record[44 : 44 + length].hex() if 0 < length <= 20 else None)
    return MappedFile(name, None, *struct.unpack_from("<IIQ", record, 40))


def laid_out(start: U64, end: U64) -> tuple[U64, U64, I64]:
    """Intervals without overlaps, and the input interval of each: the later of two wins.

    >>> u64 = lambda *numbers: np.array(numbers, np.uint64)
    >>> [column.tolist() for column in laid_out(u64(0, 20, 5, 40), u64(10, 30, 25, 50))]
    [[0, 5, 25, 40], [5, 25, 30, 50], [0, 2, 1, 3]]
    """
    # By address; of identical intervals only the last.
    order = np.lexsort((end, start))
    order = order[start[order] < end[order]]
    first, last = start[order], end[order]
    again = (first[1:] == first[:-1]) & (last[1:] == last[:-1])
    order = order[~np.append(again, False)] if len(order) else order
    first, last = start[order], end[order]
    # Most overlap no other; only the others need the sweep.
    reach = np.maximum.accumulate(last)
    alone_before = np.ones(len(order), np.bool_)
    alone_before[1:] = first[1:] >= reach[:-1]
    alone = alone_before & np.append(alone_before[1:], True)[: len(order)]
    if alone.all():
        return first, last, order
    heaped = np.sort(order[~alone])  # by age
    laid = _heaped(start[heaped].tolist(), end[heaped].tolist())
    parts = np.array([which for _, _, which in laid], np.int64)
    first = np.append(first[alone], np.array([begin for begin, _, _ in laid], np.uint64))
    last = np.append(last[alone], np.array([stop for _, stop, _ in laid], np.uint64))
    which = np.append(order[alone], heaped[parts])
    by_place = np.argsort(first)
    return first[by_place], last[by_place], which[by_place]


def _heaped(starts: list[int], ends: list[int]) -> list[tuple[int, int, int]]:
    """The same for overlapping intervals, given by age: `(start, end, index)` by address."""
    laid: list[tuple[int, int, int]] = []
    heap: list[tuple[int, int]] = []  # those that cover the current address, the latest on top
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
