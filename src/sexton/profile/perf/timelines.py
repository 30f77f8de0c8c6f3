"""Who was called what, and whose memory was where, from which moment on.

As perf does it (tools/perf/util/machine.c): a COMM record names a thread from its time on; a FORK
gives the new thread its parent's name, and a new process its parent's maps; perf itself wrote the
FORKs of what was there before, where nothing is inherited (misc bit 13); thread 0 is ``swapper``;
a thread nobody named is ``:tid``. An EXIT changes nothing: a thread goes on running for a little
while after it, under its name, and a reused number comes with a FORK of its own.

An exec (COMM with misc bit 13) begins a new address space, and what the old program had mapped
stays below what the new one maps: a task still inside of ``execve`` has the old one's addresses in
its stack, and perf names them so.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sexton.model.profile import I32, I64
from sexton.profile.perf.raw import KERNEL_PID
from sexton.profile.perf.records import COMM, FORK, Rows
from sexton.profile.perf.walk import Since

#: `Seeds.parent` of a space that inherited nothing.
NO_PARENT = -1
_SWAPPER = b"swapper"
_COLUMNS = ("type", "time", "pid", "tid", "ppid", "ptid", "comm", "exec")
_AT_ONCE = 1 << 16


class Seeds(NamedTuple):
    """How each space began: whose process it is, which space it was a copy of, and since when.

    Number 0 is the kernel's.
    """

    pid: array[int]
    parent: array[int]
    copied_ns: array[int]


class Timelines(NamedTuple):
    """`comms` and `spaces` as the walk wants them; names and seeds by their numbers."""

    comms: Since
    spaces: Since
    names: list[bytes]
    seeds: Seeds


def unknown_comm(tid: int) -> bytes:
    """What perf calls a thread that nobody named."""
    return b":%d" % tid


def timelines(tasks: Rows, maps: Rows, names: dict[bytes, int]) -> Timelines:
    """`tasks` in the order of time; `names` numbers the comms in them, and grows."""
    comms = _Comms(names)
    spaces = _Spaces()
    spaces.there_before(tasks, maps)
    # A fork storm has hundreds of thousands of these: as little as can be done for each.
    for kind, time, pid, tid, ppid, ptid, comm, by_exec in _rows(tasks):
        if kind == COMM:
            comms.named(tid, time, comm)
            comms.process[tid] = pid
            if by_exec:
                spaces.begin(pid, time, pid)
        else:
            if comms.process.get(ptid, ppid) != ppid:  # its own FORK was lost: not that thread
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
    """A few at a time: as Python's numbers they take ten times the room."""
    for at in range(0, len(tasks), _AT_ONCE):
        some = tasks[at : at + _AT_ONCE]
        yield from zip(*(some[name].tolist() for name in _COLUMNS), strict=True)


class _Line:
    """Entries as they come."""

    def __init__(self) -> None:
        self.keys = array("i")
        self.times = array("q")
        self.values = array("i")

    def add(self, key: int, time: int, value: int) -> None:
        self.keys.append(key)
        self.times.append(time)
        self.values.append(value)

    def since(self) -> Since:
        """Sorted by key and time; of several at the same time the last stays."""
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
        """A space of `pid`, with what `parent` has until now."""
        number = len(self.seeds.pid)
        self.seeds.pid.append(pid)
        self.seeds.parent.append(NO_PARENT if parent is None else self._now.get(parent, NO_PARENT))
        self.seeds.copied_ns.append(time)
        self._now[pid] = number
        self.line.add(pid, time, number)

    def there_before(self, tasks: Rows, maps: Rows) -> None:
        """Processes that have maps and were not seen to begin."""
        user = maps[~maps["kernel"]]
        begun = (tasks["type"] == FORK) | tasks["exec"]
        early = np.unique(user["pid"][user["time"] == 0])
        unborn = np.setdiff1d(user["pid"], tasks["pid"][begun])
        for pid in np.union1d(early, unborn).tolist():
            self.begin(pid, 0, None)


def lookup(since: Since, keys: I32, times: I64) -> I32:
    """The value each key had at its time, -1 where none was told yet.

    >>> told = Since(*(np.array(column) for column in ([7, 7, 9], [0, 50, 0], [1, 2, 3])))
    >>> lookup(told, np.array([7, 7, 9, 8], np.int32), np.array([49, 50, 1, 1])).tolist()
    [1, 2, 3, -1]
    """
    low = np.searchsorted(since.key, keys, side="left")
    high = np.searchsorted(since.key, keys, side="right")
    first = low.copy()
    while True:  # halved each time, for all at once
        open_ = low < high
        if not open_.any():
            break
        middle = (low + high) // 2
        past = np.zeros(len(low), np.bool_)
        past[open_] = since.since_ns[middle[open_]] <= times[open_]
        low = np.where(open_ & past, middle + 1, low)
        high = np.where(open_ & ~past, middle, high)
    found = np.full(len(keys), -1, np.int32)
    told = low > first
    found[told] = since.value[low[told] - 1]
    return found
