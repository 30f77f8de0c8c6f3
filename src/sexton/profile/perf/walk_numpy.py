"""The walk without a compiler: the same arrays as walk.c's, by numpy.

Records can only be found one after the other, so that is a loop of Python. All else is done for
all samples of a piece at once: fields are gathered from where they stand, chains are laid out flat,
and a stack is known by a hash of 128 bits. Only stacks not seen before have their frames looked up.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I16, I32, I64, Bools
from sexton.profile.perf.numbering import Numbers
from sexton.profile.perf.walk_plan import (
    KERNEL,
    KERNEL_FOLLOWS,
    KERNEL_SPACE,
    MARKERS,
    NO_SPACE,
    SAMPLE,
    U64,
    USER,
    USER_FOLLOWS,
    BadRecord,
    Columns,
    Plan,
    Shape,
    Since,
    Step,
)

_HEADER = Struct("=IHH")
_RECORD = 65535
#: What a frame's space and a stack's comm weigh in a hash; any odd numbers would do.
_SPACE, _COMM, _DEPTH = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
)


def _powers(base: int) -> U64:
    """What a frame weighs by its place in the stack."""
    powers = np.full(_RECORD // 8 + 1, base, np.uint64)
    return np.multiply.accumulate(powers)


_HALVES = (_powers(0xFF51AFD7ED558CCD), _powers(0xC4CEB9FE1A85EC53))


class _Fields(NamedTuple):
    """What a piece's samples tell. The chain's `depth` words stand at byte `chain` of the piece."""

    time: I64
    cpu: I32
    pid: I32
    tid: I32
    event: I16
    mode: I32
    chain: I64
    depth: I64
    cgroup: U64
    has_cgroup: Bools


class _Frames(NamedTuple):
    """The frames of all samples, flat: sample i has ``start[i]:start[i + 1]``."""

    address: U64
    space: I32
    start: I64


class NumpyWalker:
    """See `Walker`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._samples: list[tuple[npt.NDArray[Any], ...]] = []
        self._stacks: list[tuple[I32, I64, I32]] = []
        self._known_stacks = Numbers()
        self._known_frames = Numbers()
        self._known_cgroups = Numbers()
        self._bad = 0

    def side(self, data: memoryview) -> tuple[I64, int]:
        offsets, consumed, whole = _records(data, samples=False)
        if not whole:
            raise BadRecord(consumed)
        return offsets, consumed

    def samples(self, data: memoryview) -> int:
        if not self._plan.shapes:
            raise ValueError("no event is described")
        offsets, consumed, whole = _records(data, samples=True)
        if len(offsets):
            self._take(_Words(data), offsets)
        if not whole:
            raise BadRecord(consumed)
        return consumed

    def finish(self) -> Columns:
        time, cpu, pid, tid, comm, cgroup, event, stack = _joined(
            self._samples, ("i8", "i4", "i4", "i4", "i4", "i4", "i2", "i4")
        )
        self._samples.clear()
        stack_comm, depth, stack_frame = _joined(self._stacks, ("i4", "i8", "i4"))
        self._stacks.clear()
        address, space = self._known_frames.pairs()
        return Columns(
            time, cpu, pid, tid, comm, cgroup, event, stack,
            stack_comm, _starts(depth), stack_frame,
            address, space.astype(np.int64).astype(np.int32),
            self._known_cgroups.pairs()[0].astype(np.int64),
            self._bad,
        )  # fmt: skip

    def _take(self, words: _Words, offsets: I64) -> None:
        told, good = _fields(self._plan, words, offsets)
        self._bad += int((~good).sum())
        told = _Fields._make(column[good] for column in told)
        unnamed = np.where(
            (told.tid < 0) | (told.tid == 2**31 - 1), -1, -2 - told.tid.astype(np.int64)
        ).astype(np.int32)
        comm = _value_at(self._plan.comms, told.tid, told.time, unnamed)
        nowhere = np.full(len(comm), NO_SPACE, np.int32)
        frames = _frames(words, told, _value_at(self._plan.spaces, told.pid, told.time, nowhere))
        stack, fresh = self._known_stacks.place(*_hashes(frames, comm))
        self._keep_stacks(frames, fresh, comm)
        cgroup = np.full(len(comm), -1, np.int32)
        those = told.cgroup[told.has_cgroup]
        cgroup[told.has_cgroup], _ = self._known_cgroups.place(those, np.zeros_like(those))
        self._samples.append(
            (told.time, told.cpu, told.pid, told.tid, comm, cgroup, told.event, stack)
        )

    def _keep_stacks(self, frames: _Frames, fresh: I64, comm: I32) -> None:
        depth = np.diff(frames.start)[fresh]
        which = _spread(frames.start[fresh], depth)
        space = frames.space[which].astype(np.int64).astype(np.uint64)
        frame, _ = self._known_frames.place(frames.address[which], space)
        self._stacks.append((comm[fresh], depth, frame))


class _Words:
    """Numbers at any byte of the data; what would reach past its end is read as nonsense."""

    def __init__(self, data: memoryview) -> None:
        self._bytes = np.zeros(len(data) // 8 * 8 + 16, np.uint8)
        self._bytes[: len(data)] = np.frombuffer(data, np.uint8)
        self._words = self._bytes.view(np.uint64)
        self._last = len(self._bytes) - 8

    def at(self, places: I64) -> U64:
        places = np.minimum(places, self._last)
        found: U64
        if (places & 7).any():
            found = self._bytes[places[:, None] + np.arange(8)].view(np.uint64)[:, 0]
        else:
            found = self._words[places >> 3]
        return found


def _records(data: memoryview, *, samples: bool) -> tuple[I64, int, bool]:
    """Offsets of records that are (or are no) samples; how far records are whole; and whether the
    next one is only cut off, not nonsense."""
    found: list[int] = []
    at, size, unpack = 0, len(data), _HEADER.unpack_from
    while size - at >= 8:
        kind, _, length = unpack(data, at)
        if length < 8:
            return np.array(found, np.int64), at, False
        if size - at < length:
            break
        if (kind == SAMPLE) is samples:
            found.append(at)
        at += length
    return np.array(found, np.int64), at, True


def _fields(plan: Plan, words: _Words, offsets: I64) -> tuple[_Fields, Bools]:
    header = words.at(offsets)
    size = (header >> np.uint64(48)).astype(np.int64)
    event = np.zeros(len(offsets), np.int16)
    good = np.ones(len(offsets), np.bool_)
    if plan.id_at:
        good = size >= plan.id_at + 8
        event, known = _events(plan, words.at(offsets + plan.id_at))
        good &= known
    zeros = np.zeros(len(offsets), np.int64)
    none = np.full(len(offsets), -1, np.int32)
    mode = (header >> np.uint64(32)).astype(np.int32) & 7
    told = _Fields(
        zeros, none, none.copy(), none.copy(), event, mode, zeros.copy(), zeros.copy(),
        np.zeros(len(offsets), np.uint64), np.zeros(len(offsets), np.bool_),
    )  # fmt: skip
    for number, shape in enumerate(plan.shapes):
        rows = np.flatnonzero(good & (event == number) & (size >= shape.head))
        good[event == number] &= size[event == number] >= shape.head
        good[rows] = _fill(told, rows, _Cursor(words, offsets[rows], size[rows]), shape)
    return told, good


def _events(plan: Plan, ids: U64) -> tuple[I16, Bools]:
    """The event each id means; perf, too, takes id 0 for the first one."""
    order = np.argsort(plan.ids)
    known = plan.ids[order]
    if not len(known):
        return np.zeros(len(ids), np.int16), ids == 0
    place = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    found = known[place] == ids
    event = np.where(found & (ids != 0), plan.id_event[order][place], 0)
    return event.astype(np.int16), found | (ids == 0)


class _Cursor:
    """Goes through the samples of one shape, all at once."""

    def __init__(self, words: _Words, record: I64, size: I64) -> None:
        self.words, self.record = words, record
        self.at, self.left = record.copy(), size.copy()
        self.good = np.ones(len(record), np.bool_)

    def word(self, place: int) -> U64:
        return self.words.at(self.record + place)

    def passed(self, step: Step) -> U64:
        """Moves on by a step and gives its counts."""
        count = np.zeros(len(self.at), np.uint64)
        if step == Step():
            return count
        if step.counted:
            self.good &= self.left >= step.counted
            count = self.words.at(self.at)
            if step.counted == 4:
                count &= np.uint64(0xFFFFFFFF)
            count[~self.good] = 0
        items = np.minimum(count, np.uint64(_RECORD + 1)).astype(np.int64)
        size = step.counted + step.always + items * step.each + (count > 0) * step.some
        self.good &= self.left >= size
        size[~self.good] = 0
        self.at += size
        self.left -= size
        return count


def _fill(told: _Fields, rows: I64, cursor: _Cursor, shape: Shape) -> Bools:
    """Writes what these samples tell into their rows; which of them fit their records."""
    cursor.passed(Step(0, shape.head))
    if shape.tid:
        both = cursor.word(shape.tid)
        told.pid[rows] = both.astype(np.uint32).view(np.int32)
        told.tid[rows] = (both >> np.uint64(32)).astype(np.uint32).view(np.int32)
    if shape.time:
        told.time[rows] = cursor.word(shape.time).view(np.int64)
    if shape.cpu:
        told.cpu[rows] = cursor.word(shape.cpu).astype(np.uint32).view(np.int32)
    cursor.passed(shape.steps[0])
    chain = cursor.at + 8
    depth = np.minimum(cursor.passed(shape.steps[1]), np.uint64(_RECORD)).astype(np.int64)
    # Without a chain, or with an empty one (`--call-graph dwarf` leaves the user's out).
    alone = np.full(len(depth), not shape.has_chain) | (depth == 0)
    told.chain[rows] = np.where(alone, cursor.record + shape.ip, chain)
    told.depth[rows] = np.where(alone, int(shape.ip > 0), depth)
    for step in shape.steps[2:]:
        count = cursor.passed(step)
    told.cgroup[rows] = count
    told.has_cgroup[rows] = shape.has_cgroup
    return cursor.good


def _frames(words: _Words, told: _Fields, user_space: I32) -> _Frames:
    start = _starts(told.depth)
    sample = np.repeat(np.arange(len(told.depth)), told.depth)
    flat = np.arange(start[-1])
    word = words.at(told.chain[sample] + 8 * (flat - start[sample]))
    marker = word >= np.uint64(MARKERS)
    # A mode holds from where it is told to the next one, or to the end of the sample.
    mode = told.mode[sample]
    mode[marker] = 0
    mode[word == np.uint64(KERNEL_FOLLOWS)] = KERNEL
    mode[word == np.uint64(USER_FOLLOWS)] = USER
    told_here = marker.copy()
    told_here[start[:-1][told.depth > 0]] = True
    mode = mode[np.maximum.accumulate(np.where(told_here, flat, 0))]
    space = np.where(mode == USER, user_space[sample], np.int32(NO_SPACE))
    space[mode == KERNEL] = KERNEL_SPACE
    frame = ~marker
    before = _starts(frame.astype(np.int64))
    return _Frames(word[frame], space[frame].astype(np.int32), before[start])


def _hashes(frames: _Frames, comm: I32) -> tuple[U64, U64]:
    """128 bits that tell a stack: a sum of its frames, weighed by their places."""
    start = frames.start
    place = np.arange(len(frames.address)) - np.repeat(start[:-1], np.diff(start))
    mixed = frames.address + frames.space.astype(np.int64).astype(np.uint64) * _SPACE
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _DEPTH
    mixed ^= mixed >> np.uint64(29)
    ends = comm.astype(np.int64).astype(np.uint64) * _COMM + np.diff(start).astype(np.uint64)
    halves = []
    for powers in _HALVES:
        running = np.zeros(len(mixed) + 1, np.uint64)
        np.cumsum(mixed * powers[place], out=running[1:])
        halves.append(running[start[1:]] - running[start[:-1]] + ends)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * _COMM
    return halves[0], halves[1]


def _value_at(since: Since, key: I32, time: I64, none: I32) -> I32:
    """The value each key has at its time: a search for the last entry not after (key, time)."""
    low = np.zeros(len(key), np.int64)
    high = np.full(len(key), len(since.key), np.int64)
    for _ in range(len(since.key).bit_length()):
        middle = np.minimum((low + high) // 2, max(len(since.key) - 1, 0))
        there = since.key[middle]
        before = (there < key) | ((there == key) & (since.since_ns[middle] <= time))
        going = low < high
        low = np.where(before & going, middle + 1, low)
        high = np.where(~before & going, middle, high)
    if not len(since.key):
        return none
    last = np.maximum(low - 1, 0)
    found = (low > 0) & (since.key[last] == key)
    return np.where(found, since.value[last], none).astype(np.int32)


def _starts(counts: I64) -> I64:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _spread(start: I64, count: I64) -> I64:
    """``start[0], start[0] + 1, …`` for each of the counts, one after the other."""
    return np.repeat(start - _starts(count)[:-1], count) + np.arange(int(count.sum()))


def _joined(
    pieces: list[tuple[npt.NDArray[Any], ...]] | list[tuple[I32, I64, I32]], kinds: tuple[str, ...]
) -> list[npt.NDArray[Any]]:
    if not pieces:
        return [np.zeros(0, kind) for kind in kinds]
    return [np.concatenate(columns) for columns in zip(*pieces, strict=True)]
