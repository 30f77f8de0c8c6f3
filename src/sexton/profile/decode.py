"""Name the addresses of a raw capture: `Raw` becomes a `Profile`.

Only distinct addresses are looked up, all of one file at once. Frames with the same name, module
and kind are one frame; frames are numbered by name, so that children in a flame graph are in
alphabetical order. An address without a symbol is ``[unknown]`` and keeps its module.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I32, I64, UNKNOWN, Frames, Kind, Profile, Thread
from sexton.profile.perf.kallsyms import kernel_names
from sexton.profile.perf.named_samples import FrameTable
from sexton.profile.perf.raw import Maps, Raw
from sexton.profile.perf.walk import Columns
from sexton.profile.stack_tree import grow
from sexton.profile.symbols.symbols import VDSO, Symbols, is_anonymous
from sexton.profile.symbols.table import EMPTY, Table

U64 = npt.NDArray[np.uint64]
#: Modules of JIT-compiled code with a perf map, and of addresses outside every mapping.
JIT = "[jit]"
NOWHERE = "[unknown]"
_WIDE = np.uint64(1 << 32)
#: Twice the kernel's limit on process numbers (PID_MAX_LIMIT).
_MOST_TIDS = 1 << 23
_MOST_ROUNDS = 16


def decode(raw: Raw, symbols: Symbols) -> Profile:
    """Samples with named stacks. `facts.problems` says which files could not be named."""
    columns = raw.columns
    names = _Naming(raw, symbols)
    names.kernel()
    names.user()
    frames, frame_of_address, frame_of_comm = names.finish()
    tree, leaf = grow(
        frame_of_comm[columns.stack_comm],
        columns.stack_start,
        frame_of_address[columns.stack_frame],
        frames,
    )
    threads, thread = threads_of(columns, raw.comms)
    raw.facts.problems.extend(symbols.problems())
    return Profile(
        time_ns=columns.time_ns,
        cpu=columns.cpu,
        thread=thread,
        cgroup=columns.cgroup,
        event=columns.event,
        node=leaf[columns.stack],
        weight=None,
        threads=threads,
        cgroups=tuple(raw.cgroups),
        events=raw.events,
        tree=tree,
        facts=raw.facts,
        timed=raw.timed,
    )


class _Naming:
    """Collects frames, and the frame of each distinct address."""

    def __init__(self, raw: Raw, symbols: Symbols) -> None:
        self._raw = raw
        self._symbols = symbols
        self._plain = symbols.demangler().plain
        self._table = FrameTable()
        self._frames([""], "", Kind.ROOT)
        self._address = raw.columns.address
        self._of = np.zeros(len(self._address), np.int32)

    def finish(self) -> tuple[Frames, I32, I32]:
        """All frames by name; the frame of each address and of each comm."""
        comms = self._frames(self._raw.comms, "", Kind.TASK)
        found = self._table.frames()
        order = [0, *sorted(range(1, len(found)), key=found.names.__getitem__)]
        number = np.empty(len(order), np.int32)
        number[order] = np.arange(len(order), dtype=np.int32)
        frames = Frames(
            tuple([found.names[index] for index in order]),
            tuple([found.modules[index] for index in order]),
            found.kinds[order],
        )
        return frames, number[self._of], number[comms]

    def kernel(self) -> None:
        """Kernel addresses."""
        rows = np.flatnonzero(self._raw.columns.space == 0)
        if not len(rows):
            return
        table = self._symbols.kernel(self._raw.kernel, self._raw.facts)
        loaded = self._raw.kernel.ksymbols
        found, which = kernel_names(self._address[rows], table, loaded)
        used, which_name = np.unique(which, return_inverse=True)
        named = (found[one] for one in used.tolist())
        frames = [self._table.id(name, module, Kind.KERNEL) for name, module in named]
        self._of[rows] = np.array(frames, np.int32)[which_name]

    def user(self) -> None:
        """User addresses, file by file."""
        rows = np.flatnonzero(self._raw.columns.space != 0)
        if not len(rows):
            return
        file, place = self._mapped(rows)
        nowhere = rows[file < 0]
        if len(nowhere):
            self._of[nowhere] = self._frames([UNKNOWN], NOWHERE, Kind.USER)
        order = np.argsort(file, kind="stable")
        numbers, starts = np.unique(file[order], return_index=True)
        for number, part in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            if number >= 0:
                self._file(number, rows[part], place[part])

    def _frames(self, names: Iterable[str], module: str, kind: Kind) -> I32:
        """Numbers of frames; new ones are added."""
        return np.array([self._table.id(name, module, kind) for name in names], np.int32)

    def _mapped(self, rows: I64) -> tuple[I64, U64]:
        """The file each address lies in, -1 for none, and the offset in that file."""
        space, address = self._raw.columns.space[rows], self._address[rows]
        every = [
            (address_space, self._raw.spaces[address_space].maps)
            for address_space in np.unique(space).tolist()
            if address_space > 0
        ]
        file = np.full(len(rows), -1, np.int64)
        place = np.zeros(len(rows), np.uint64)
        if not any(len(maps) for _, maps in every):
            return file, place
        maps = Maps(
            np.concatenate([maps.start for _, maps in every]),
            np.concatenate([maps.end for _, maps in every]),
            np.concatenate([maps.pgoff for _, maps in every]),
            np.concatenate([maps.file for _, maps in every]),
        )
        owner = np.repeat([part for part, _ in every], [len(maps) for _, maps in every])
        row = nearest(owner, maps.start, space, address)
        inside = (row >= 0) & (owner[row] == space) & (address < maps.end[row])
        row = row[inside]
        file[inside] = maps.file[row]
        place[inside] = address[inside] - maps.start[row] + maps.pgoff[row]
        return file, place

    def _file(self, number: int, rows: I64, place: U64) -> None:
        file = self._raw.files[number]
        if is_anonymous(file.path):
            self._jit(file.path, rows)
            return
        if file.path == VDSO:
            table = self._symbols.vdso(file, self._raw.kernel, self._raw.facts)
            # A 32-bit process has another vDSO, which cannot be read here.
            narrow = self._address[rows] < _WIDE
            self._named(EMPTY, rows[narrow], place[narrow], VDSO)
            rows, place = rows[~narrow], place[~narrow]
        else:
            table = self._symbols.program(file, self._pids(rows), self._last_seen_wall_s())
        self._named(table, rows, place, file.path)

    def _jit(self, path: str, rows: I64) -> None:
        """JIT-compiled code, process by process."""
        last = self._last_seen_wall_s()
        spaces = self._raw.columns.space[rows]
        for pid in sorted(set(self._pids(rows))):
            own = [number for number, space in enumerate(self._raw.spaces) if space.pid == pid]
            mine = rows[np.isin(spaces, own)]
            table = self._symbols.jit(pid, last)
            found = table.find(self._address[mine])
            self._named(table, mine[found >= 0], self._address[mine[found >= 0]], JIT)
            if (found < 0).any():
                self._of[mine[found < 0]] = self._frames([UNKNOWN], path, Kind.USER)

    def _named(self, table: Table, rows: I64, place: U64, module: str) -> None:
        if not len(rows):
            return
        plain = self._plain
        which, which_name = np.unique(table.find(place, plain), return_inverse=True)
        names = [plain(name) or UNKNOWN for name in table.names(which[which >= 0])]
        if which[0] < 0:
            names.insert(0, UNKNOWN)
        self._of[rows] = self._frames(names, module, Kind.USER)[which_name]

    def _pids(self, rows: I64) -> list[int]:
        spaces = np.unique(self._raw.columns.space[rows])
        return [self._raw.spaces[space].pid for space in spaces.tolist()]

    def _last_seen_wall_s(self) -> float | None:
        times = self._raw.columns.time_ns
        return self._raw.facts.clock.wall_s(int(times[-1])) if len(times) else None


def nearest(owner: I64, start: U64, space: I32, address: U64) -> I64:
    """For each (space, address): the last of the sorted rows (owner, start) that is not above it.

    >>> owner, start = np.array([1, 1, 2]), np.array([10, 20, 10], np.uint64)
    >>> at = np.array([15, 5, 2**64 - 1], np.uint64)
    >>> nearest(owner, start, np.array([1, 2, 2], np.int32), at).tolist()
    [0, 1, 2]
    """
    # Both packed into one number where they fit, as user addresses do; else space by space.
    bits = max(int(address.max()), int(start.max())).bit_length()
    if bits + int(owner.max()).bit_length() <= 64 and bits < 64:
        shift = np.uint64(bits)
        keys = (owner.astype(np.uint64) << shift) | start
        wanted = (np.maximum(space, 0).astype(np.uint64) << shift) | address
        return np.searchsorted(keys, wanted, side="right").astype(np.int64) - 1
    found = np.full(len(address), -1, np.int64)
    for address_space in np.unique(space).tolist():
        begin, end = np.searchsorted(owner, [address_space, address_space + 1])
        mine = space == address_space
        found[mine] = begin + np.searchsorted(start[begin:end], address[mine], side="right") - 1
    return found


def threads_of(columns: Columns, comms: list[str]) -> tuple[tuple[Thread, ...], I32]:
    """Every thread under each of its names, and the thread of each sample."""
    pid, tid, comm = columns.pid, columns.tid, columns.comm
    thread = np.empty(len(tid), np.int32)
    found: list[Thread] = []
    rows = np.arange(len(tid))
    # A thread rarely changes its name or process: take each tid as first seen, then repeat with
    # the rows that differ. The rounds are bounded against captures with endless renames.
    for _ in range(_MOST_ROUNDS):
        if not len(rows):
            break
        number, distinct = _numbered(tid[rows])
        first = np.empty(len(distinct), np.int64)
        first[number[::-1]] = rows[::-1]
        same = (pid[rows] == pid[first][number]) & (comm[rows] == comm[first][number])
        thread[rows[same]] = len(found) + number[same]
        found += _threads(pid[first], distinct, comm[first], comms)
        rows = rows[~same]
    if len(rows):
        keys = np.stack((pid[rows], tid[rows], comm[rows]), axis=1)
        others, inverse = np.unique(keys, axis=0, return_inverse=True)
        thread[rows] = len(found) + inverse.reshape(-1)
        found += _threads(others[:, 0], others[:, 1], others[:, 2], comms)
    return tuple(found), thread


def _threads(pid: I32, tid: I32, comm: I32, comms: list[str]) -> list[Thread]:
    rows = zip(pid.tolist(), tid.tolist(), comm.tolist(), strict=True)
    return [Thread(one, two, comms[three]) for one, two, three in rows]


def _numbered(tid: I32) -> tuple[I32, I32]:
    """The number of each tid, and the distinct tids in order."""
    lowest = int(tid.min())
    span = int(tid.max()) - lowest + 1
    if span > _MOST_TIDS:
        distinct, inverse = np.unique(tid, return_inverse=True)
        return inverse.astype(np.int32), distinct
    seen = np.zeros(span, np.int32)
    seen[tid - lowest] = 1
    numbers = np.cumsum(seen, dtype=np.int32) - 1
    return numbers[tid - lowest], (np.flatnonzero(seen) + lowest).astype(np.int32)
