"""The walk without a compiler: the same arrays as walk.c, with numpy.

Records can only be found one after another, in a Python loop. Everything else is done for all
samples of a piece at once: fields are gathered, chains are concatenated, and a stack is identified
by a 128-bit hash. Frames are looked up only for new stacks.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I16, I32, I64, Bools
from sexton.profile.perf.walk import (
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
    Step,
    value_at,
)

_HEADER = Struct("=IHH")
_RECORD = 65535
#: Factors of the space of a frame and the comm of a stack in the hash; any odd numbers.
_SPACE, _COMM, _DEPTH = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
)


def _powers(base: int) -> U64:
    """The factor of a frame by its position in the stack."""
    powers = np.full(_RECORD // 8 + 1, base, np.uint64)
    return np.multiply.accumulate(powers)


_HALVES = (_powers(0xFF51AFD7ED558CCD), _powers(0xC4CEB9FE1A85EC53))


class _Fields(NamedTuple):
    """Fields of the samples of a piece. A chain has `depth` words at byte `chain`."""

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
    """The frames of all samples, concatenated: sample i has ``start[i]:start[i + 1]``."""

    address: U64
    space: I32
    start: I64


class NumpyWalker:
    """See `Walker`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._taken: list[tuple[npt.NDArray[Any], ...]] = []
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
            raise ValueError("no event description")
        offsets, consumed, whole = _records(data, samples=True)
        if len(offsets):
            self._take(_Words(data), offsets)
        if not whole:
            raise BadRecord(consumed)
        return consumed

    def finish(self) -> Columns:
        time, cpu, pid, tid, comm, cgroup, event, stack = _joined(
            self._taken, ("i8", "i4", "i4", "i4", "i4", "i4", "i2", "i4")
        )
        self._taken.clear()
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
        samples, good = _fields(self._plan, words, offsets)
        self._bad += int((~good).sum())
        samples = _Fields._make(column[good] for column in samples)
        unnamed = np.where(
            (samples.tid < 0) | (samples.tid == 2**31 - 1), -1, -2 - samples.tid.astype(np.int64)
        ).astype(np.int32)
        comm = value_at(self._plan.comms, samples.tid, samples.time, unnamed)
        space = value_at(self._plan.spaces, samples.pid, samples.time, NO_SPACE)
        frames = _frames(words, samples, space)
        stack, fresh = self._known_stacks.place(*_hashes(frames, comm))
        self._keep_stacks(frames, fresh, comm)
        cgroup = np.full(len(comm), -1, np.int32)
        those = samples.cgroup[samples.has_cgroup]
        cgroup[samples.has_cgroup], _ = self._known_cgroups.place(those, np.zeros_like(those))
        own = (samples.time, samples.cpu, samples.pid, samples.tid)
        self._taken.append((*own, comm, cgroup, samples.event, stack))

    def _keep_stacks(self, frames: _Frames, fresh: I64, comm: I32) -> None:
        depth = np.diff(frames.start)[fresh]
        which = _spread(frames.start[fresh], depth)
        space = frames.space[which].astype(np.int64).astype(np.uint64)
        frame, _ = self._known_frames.place(frames.address[which], space)
        self._stacks.append((comm[fresh], depth, frame))


class _Words:
    """Reads numbers at any byte of the data; values past its end are arbitrary."""

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
    """Offsets of samples (or of other records); the length of whole records; and whether the next
    record is only truncated, not damaged."""
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
    samples = _Fields(
        zeros, none, none.copy(), none.copy(), event, mode, zeros.copy(), zeros.copy(),
        np.zeros(len(offsets), np.uint64), np.zeros(len(offsets), np.bool_),
    )  # fmt: skip
    for number, shape in enumerate(plan.shapes):
        rows = np.flatnonzero(good & (event == number) & (size >= shape.head))
        good[event == number] &= size[event == number] >= shape.head
        good[rows] = _fill(samples, rows, _Cursor(words, offsets[rows], size[rows]), shape)
    return samples, good


def _events(plan: Plan, ids: U64) -> tuple[I16, Bools]:
    """The event of each id; like perf, id 0 is the first event."""
    order = np.argsort(plan.ids)
    known = plan.ids[order]
    if not len(known):
        return np.zeros(len(ids), np.int16), ids == 0
    place = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    found = known[place] == ids
    event = np.where(found & (ids != 0), plan.id_event[order][place], 0)
    return event.astype(np.int16), found | (ids == 0)


class _Cursor:
    """A position in the samples of one shape, all at once."""

    def __init__(self, words: _Words, record: I64, size: I64) -> None:
        self.words, self.record = words, record
        self.at, self.left = record.copy(), size.copy()
        self.good = np.ones(len(record), np.bool_)

    def word(self, place: int) -> U64:
        return self.words.at(self.record + place)

    def passed(self, step: Step) -> U64:
        """Advance by a step and return its counts."""
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
        size = step.counted + step.always + items * step.per_item + (count > 0) * step.some
        self.good &= self.left >= size
        size[~self.good] = 0
        self.at += size
        self.left -= size
        return count


def _fill(samples: _Fields, rows: I64, cursor: _Cursor, shape: Shape) -> Bools:
    """Fill the rows of these samples; returns which of them fit their records."""
    cursor.passed(Step(0, shape.head))
    if shape.tid:
        both = cursor.word(shape.tid)
        samples.pid[rows] = both.astype(np.uint32).view(np.int32)
        samples.tid[rows] = (both >> np.uint64(32)).astype(np.uint32).view(np.int32)
    if shape.time:
        samples.time[rows] = cursor.word(shape.time).view(np.int64)
    if shape.cpu:
        samples.cpu[rows] = cursor.word(shape.cpu).astype(np.uint32).view(np.int32)
    cursor.passed(shape.steps[0])
    chain = cursor.at + 8
    depth = np.minimum(cursor.passed(shape.steps[1]), np.uint64(_RECORD)).astype(np.int64)
    # Without a chain, or with an empty one (`--call-graph dwarf` omits user frames).
    alone = np.full(len(depth), not shape.has_chain) | (depth == 0)
    samples.chain[rows] = np.where(alone, cursor.record + shape.ip, chain)
    samples.depth[rows] = np.where(alone, int(shape.ip > 0), depth)
    for step in shape.steps[2:]:
        count = cursor.passed(step)
    samples.cgroup[rows] = count
    samples.has_cgroup[rows] = shape.has_cgroup
    return cursor.good


def _frames(words: _Words, samples: _Fields, user_space: I32) -> _Frames:
    start = _starts(samples.depth)
    sample = np.repeat(np.arange(len(samples.depth)), samples.depth)
    flat = np.arange(start[-1])
    word = words.at(samples.chain[sample] + 8 * (flat - start[sample]))
    marker = word >= np.uint64(MARKERS)
    # A mode applies from its marker to the next one, or to the end of the sample.
    mode = samples.mode[sample]
    mode[marker] = 0
    mode[word == np.uint64(KERNEL_FOLLOWS)] = KERNEL
    mode[word == np.uint64(USER_FOLLOWS)] = USER
    is_marked = marker.copy()
    is_marked[start[:-1][samples.depth > 0]] = True
    mode = mode[np.maximum.accumulate(np.where(is_marked, flat, 0))]
    space = np.where(mode == USER, user_space[sample], np.int32(NO_SPACE))
    space[mode == KERNEL] = KERNEL_SPACE
    frame = ~marker
    before = _starts(frame.astype(np.int64))
    return _Frames(word[frame], space[frame].astype(np.int32), before[start])


def _hashes(frames: _Frames, comm: I32) -> tuple[U64, U64]:
    """The 128-bit hash of each stack: a sum of its frames, weighted by position."""
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


def _starts(counts: I64) -> I64:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _spread(start: I64, count: I64) -> I64:
    """``start[0], start[0] + 1, …`` for each of the counts, concatenated."""
    return np.repeat(start - _starts(count)[:-1], count) + np.arange(int(count.sum()))


def _joined(
    pieces: list[tuple[npt.NDArray[Any], ...]] | list[tuple[I32, I64, I32]], kinds: tuple[str, ...]
) -> list[npt.NDArray[Any]]:
    if not pieces:
        return [np.zeros(0, kind) for kind in kinds]
    return [np.concatenate(columns) for columns in zip(*pieces, strict=True)]


#: Any random odd numbers.
_A, _B = np.uint64(0xD6E8FEB86659FD93), np.uint64(0x9E3779B97F4A7C15)


class Numbers:
    """Numbers distinct pairs in order of appearance; a hash table built from numpy operations.

    >>> pairs = Numbers()
    >>> number, new = pairs.place(np.uint64([7, 5, 7]), np.uint64([0, 0, 0]))
    >>> number.tolist(), new.tolist()
    ([0, 1, 0], [0, 1])
    """

    def __init__(self) -> None:
        self._a, self._b = np.zeros(0, np.uint64), np.zeros(0, np.uint64)
        #: Numbers by bucket, and where each bucket starts.
        self._numbers, self._starts = np.zeros(0, np.int32), np.zeros(3, np.int32)

    def place(self, a: U64, b: U64) -> tuple[I32, I64]:
        """The number of each pair, and the first position of each new pair."""
        number = self._find(a, b)
        new = np.flatnonzero(number < 0)
        if not len(new):
            return number, new
        new_a, new_b = a[new], b[new]
        order = np.lexsort((new_b, new_a))
        starts = np.ones(len(new), np.bool_)
        starts[1:] = np.diff(new_a[order]).astype(np.bool_) | np.diff(new_b[order]).astype(np.bool_)
        # The sort is stable: the first of a group is the first to appear.
        first = order[starts]
        appearing = np.argsort(first)
        rank = np.empty(len(first), np.int32)
        rank[appearing] = np.arange(len(first), dtype=np.int32)
        number[new[order]] = len(self._a) + rank[np.cumsum(starts) - 1]
        first = first[appearing]
        self._learn(new_a[first], new_b[first])
        return number, new[first]

    def pairs(self) -> tuple[U64, U64]:
        return self._a, self._b

    def _find(self, a: U64, b: U64) -> I32:
        number = np.full(len(a), -1, np.int32)
        bucket = self._buckets(a, b)
        at, end = self._starts[bucket], self._starts[bucket + 1]
        rows = np.flatnonzero(at < end)
        at, end = at[rows], end[rows]
        while len(rows):
            maybe = self._numbers[at]
            found = (self._a[maybe] == a[rows]) & (self._b[maybe] == b[rows])
            number[rows[found]] = maybe[found]
            going = ~found & (at + 1 < end)
            rows, at, end = rows[going], at[going] + 1, end[going]
        return number

    def _learn(self, a: U64, b: U64) -> None:
        self._a, self._b = np.concatenate([self._a, a]), np.concatenate([self._b, b])
        # One to two buckets a pair; their number is a power of two.
        self._starts = np.zeros((1 << len(self._a).bit_length()) + 1, np.int32)
        bucket = self._buckets(self._a, self._b)
        np.cumsum(np.bincount(bucket, minlength=len(self._starts) - 1), out=self._starts[1:])
        self._numbers = np.argsort(bucket, kind="stable").astype(np.int32)

    def _buckets(self, a: U64, b: U64) -> I64:
        mixed = (a ^ b * _B) * _A
        return (mixed >> np.uint64(65 - len(self._starts).bit_length())).astype(np.int64)
