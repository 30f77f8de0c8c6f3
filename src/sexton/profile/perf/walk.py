"""Walk the records of a perf.data: the layout of samples, for C (native.py) and numpy.

`PERF_RECORD_SAMPLE` has no fixed shape: its fields and their order follow from the event's
`sample_type` (include/uapi/linux/perf_event.h, "PERF_RECORD_SAMPLE"). All fields up to PERIOD have
fixed offsets; what follows is skipped in `Step`s, because counts in the sample determine its
length. walk.c and walk_numpy.py both follow these steps and give the same arrays; C is about ten
times faster. `native.engine` says which is used.

>>> shape_of(Layout(0x2001E7, 0, 0, 0, 0, ()))[:5]  # -a -g --all-cgroups
(8, 16, 24, 40, 56)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I16, I32, I64

U64 = npt.NDArray[np.uint64]

SAMPLE = 9
#: Call chain entries from here on are markers: they say whose addresses follow.
MARKERS = 2**64 - 4095
KERNEL_FOLLOWS = 2**64 - 128
USER_FOLLOWS = 2**64 - 512
#: misc & 7
KERNEL, USER = 1, 2
#: The space of kernel addresses, and of user addresses without a known process.
KERNEL_SPACE, NO_SPACE = 0, -1

_IP, _TID, _TIME, _ADDR, _READ, _CALLCHAIN, _ID, _CPU, _PERIOD, _STREAM, _RAW = (
    1 << bit for bit in range(11)
)
_BRANCHES, _REGS_USER, _STACK_USER, _WEIGHT, _DATA_SRC, _IDENTIFIER, _TRANSACTION = (
    1 << bit for bit in range(11, 18)
)
_REGS_INTR, _PHYS_ADDR, _CGROUP, _WEIGHT_STRUCT = 1 << 18, 1 << 19, 1 << 21, 1 << 24
#: branch_sample_type: an index before the branches, a counter with each.
_BRANCH_INDEX, _BRANCH_COUNTERS = 1 << 17, 1 << 19


class BadRecord(ValueError):
    """No record at `offset` of the data: its size is below that of a header."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"no record at byte {offset}")
        self.offset = offset


class Layout(NamedTuple):
    """The layout of an event's samples, from its attr. `ids` are those of the event; they may be
    empty if there is only one event."""

    sample_type: int
    read_format: int
    branch_sample_type: int
    regs_user: int
    regs_intr: int
    ids: tuple[int, ...]


class Since(NamedTuple):
    """From `since_ns` on `key` has `value`. Sorted by (key, since_ns); of equals the last wins."""

    key: I32
    since_ns: I64
    value: I32


def value_at(since: Since, key: I32, time: I64, none: I32 | int = -1) -> I32:
    """The value of each key at its time; `none` before the first.

    >>> since = Since(*(np.array(column) for column in ([7, 7, 9], [0, 50, 0], [1, 2, 3])))
    >>> value_at(since, np.array([7, 7, 9, 8], np.int32), np.array([49, 50, 1, 1])).tolist()
    [1, 2, 3, -1]
    """
    number = len(since.key)
    if not number:
        return np.full(len(key), none, np.int32)
    # A binary search for the last entry not after (key, time), for all at once.
    low, high = np.zeros(len(key), np.int64), np.full(len(key), number, np.int64)
    for _ in range(number.bit_length()):
        middle = np.minimum((low + high) // 2, number - 1)
        there = since.key[middle]
        before = (there < key) | ((there == key) & (since.since_ns[middle] <= time))
        going = low < high
        low = np.where(before & going, middle + 1, low)
        high = np.where(~before & going, middle, high)
    last = np.maximum(low - 1, 0)
    found = (low > 0) & (since.key[last] == key)
    return np.where(found, since.value[last], none).astype(np.int32)


class Columns(NamedTuple):
    """One row per sample in file order; then every stack, frame and cgroup once, in order of
    appearance.

    `comm` is -2 - tid for an unnamed thread (-1: no tid); `cgroup` is -1 if the event has none;
    `cpu`, `pid` and `tid` are -1 and `time_ns` is 0 if the event has none. Stacks differ by comm
    and frames; the frames are leaf first in ``stack_frame[stack_start[s] : stack_start[s + 1]]``
    and index `address` and `space`. `bad` counts samples that did not fit their record or whose
    event is unknown; they are skipped.
    """

    time_ns: I64
    cpu: I32
    pid: I32
    tid: I32
    comm: I32
    cgroup: I32
    event: I16
    stack: I32
    stack_comm: I32
    stack_start: I64
    stack_frame: I32
    address: U64
    space: I32
    cgroup_id: I64
    bad: int


class Walker(Protocol):
    """Two passes over a data section, in pieces; each starts where the last one was consumed."""

    def side(self, data: memoryview) -> tuple[I64, int]:
        """Pass 1: offsets of whole records other than samples, and the consumed length."""
        ...

    def samples(self, data: memoryview) -> int:
        """Pass 2: add the samples of whole records; returns the consumed length.

        On `BadRecord` the samples before it are kept; without layouts it is a `ValueError`.
        """
        ...

    def finish(self) -> Columns:
        """The result. The walker cannot be used afterwards."""
        ...


class Step(NamedTuple):
    """A count of `counted` bytes (0, 4 or 8), then `always` bytes, then `per_item` bytes per count,
    then `some` bytes unless the count was 0."""

    counted: int = 0
    always: int = 0
    per_item: int = 0
    some: int = 0


class Shape(NamedTuple):
    """Offsets from the start of a record, 0 for a missing field; the steps start at `head`: read
    values, call chain, what follows it, cgroup id (the count of the last step)."""

    ip: int
    tid: int
    time: int
    cpu: int
    head: int
    has_chain: bool
    has_cgroup: bool
    steps: tuple[Step, ...]


class Plan(NamedTuple):
    """`id_at`: offset of the event id in a sample; 0: all samples are of the first event."""

    shapes: tuple[Shape, ...]
    ids: U64
    id_event: I32
    id_at: int
    comms: Since
    spaces: Since


def _read_step(read_format: int) -> Step:
    times = (read_format & 1) + (read_format >> 1 & 1)
    words = 1 + (read_format >> 2 & 1) + (read_format >> 4 & 1)
    return Step(8, 8 * times, 8 * words) if read_format & 8 else Step(0, 8 * (times + words))


def _tail(layout: Layout) -> tuple[Step, ...]:
    kind, branches = layout.sample_type, layout.branch_sample_type
    words = bool(kind & (_WEIGHT | _WEIGHT_STRUCT)) + bool(kind & _DATA_SRC)
    index = 8 if branches & _BRANCH_INDEX else 0
    branch = Step(8, index, 32 if branches & _BRANCH_COUNTERS else 24)
    return (
        Step(4, 0, 1) if kind & _RAW else Step(),
        branch if kind & _BRANCHES else Step(),
        Step(8, some=8 * layout.regs_user.bit_count()) if kind & _REGS_USER else Step(),
        Step(8, 0, 1, 8) if kind & _STACK_USER else Step(),
        Step(0, 8 * (words + bool(kind & _TRANSACTION))),
        Step(8, some=8 * layout.regs_intr.bit_count()) if kind & _REGS_INTR else Step(),
        Step(0, 8 if kind & _PHYS_ADDR else 0),
        Step(8),
    )


def shape_of(layout: Layout) -> Shape:
    """The offsets of the used fields in samples of an event."""
    kind, at = layout.sample_type, 8
    places: dict[int, int] = {}
    for field in (_IDENTIFIER, _IP, _TID, _TIME, _ADDR, _ID, _STREAM, _CPU, _PERIOD):
        if kind & field:
            places[field] = at
            at += 8
    has_cgroup = bool(kind & _CGROUP)
    steps = (
        _read_step(layout.read_format) if kind & _READ else Step(),
        Step(8, 0, 8) if kind & _CALLCHAIN else Step(),
        *(_tail(layout) if has_cgroup else (Step(),) * 8),
    )
    ip, tid, time, cpu = (places.get(field, 0) for field in (_IP, _TID, _TIME, _CPU))
    return Shape(ip, tid, time, cpu, at, bool(kind & _CALLCHAIN), has_cgroup, steps)


def _id_place(layout: Layout) -> int:
    if layout.sample_type & _IDENTIFIER:
        return 8
    before = layout.sample_type & (_IP | _TID | _TIME | _ADDR)
    return 8 + 8 * before.bit_count() if layout.sample_type & _ID else 0


def _sorted(since: Since) -> Since:
    order = np.lexsort((since.since_ns, since.key))
    return Since(
        np.ascontiguousarray(since.key[order], np.int32),
        np.ascontiguousarray(since.since_ns[order], np.int64),
        np.ascontiguousarray(since.value[order], np.int32),
    )


def plan_of(layouts: Sequence[Layout], comms: Since, spaces: Since) -> Plan:
    """Raises `ValueError` if samples of several events cannot be distinguished (perf also requires
    all ids at the same offset)."""
    id_at, ids = 0, dict[int, int]()
    if len(layouts) > 1:
        places = {_id_place(layout) for layout in layouts}
        if len(places) > 1:
            raise ValueError("events have their ids at different offsets")
        id_at = places.pop()
        for event, layout in enumerate(layouts):
            for number in layout.ids:
                ids.setdefault(number, event)
    return Plan(
        tuple(shape_of(layout) for layout in layouts),
        np.array(list(ids), np.uint64),
        np.array(list(ids.values()), np.int32),
        id_at,
        _sorted(comms),
        _sorted(spaces),
    )


def walker(layouts: Sequence[Layout], comms: Since, spaces: Since) -> Walker:
    """The fastest walker; `comms` gives names by tid, `spaces` address spaces by pid."""
    from sexton.profile.perf import native  # it imports this module

    plan = plan_of(layouts, comms, spaces)
    library = native.library()
    if library is not None:
        return native.NativeWalker(library, plan)
    from sexton.profile.perf.walk_numpy import NumpyWalker

    return NumpyWalker(plan)
