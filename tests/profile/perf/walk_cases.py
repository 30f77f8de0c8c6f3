"""Streams of records, generated field by field as in perf_event.h, and the expected result.

Nothing here uses the code under test, beyond its types: the fields' order is written down again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from sexton.profile.perf.walk import Layout, Since

KERNEL_MARK, USER_MARK, GUEST_MARK = 2**64 - 128, 2**64 - 512, 2**64 - 2048

IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU, PERIOD, STREAM, RAW = (1 << n for n in range(11))
BRANCHES, REGS_USER, STACK_USER, WEIGHT, DATA_SRC, IDENTIFIER = (1 << n for n in range(11, 17))
TRANSACTION, REGS_INTR, PHYS_ADDR, AUX, CGROUP = (1 << n for n in range(17, 22))
PAGE_SIZE, CODE_SIZE, WEIGHT_STRUCT = (1 << n for n in range(22, 25))
FIELDS = (
    IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU, PERIOD, STREAM, RAW, BRANCHES, REGS_USER,
    STACK_USER, WEIGHT, DATA_SRC, IDENTIFIER, TRANSACTION, REGS_INTR, PHYS_ADDR, AUX, CGROUP,
    PAGE_SIZE, CODE_SIZE, WEIGHT_STRUCT,
)  # fmt: skip
USUAL = {TID, TIME, CALLCHAIN, CGROUP}


@dataclass
class Told:
    """The expected fields of one sample."""

    event: int = 0
    id: int = 0
    mode: int = 1
    pid: int = 7
    tid: int = 8
    time: int = 1000
    cpu: int = 3
    ip: int = 0xFFFFFFFF81000000
    chain: list[int] = field(default_factory=list)
    cgroup: int = 40
    filler: int = 2


def _u64(*values: int) -> bytes:
    return struct.pack(f"={len(values)}Q", *values)


def _read(layout: Layout, filler: int) -> bytes:
    times = [1] * (layout.read_format & 3).bit_count()
    value = [2] * (1 + (layout.read_format & 0x14).bit_count())
    if layout.read_format & 8:
        return _u64(filler, *times, *(value * filler))
    return _u64(*value[:1], *times, *value[1:])


def body(layout: Layout, summary: Told) -> bytes:
    """PERF_RECORD_SAMPLE after its header, as the kernel's perf_output_sample writes it."""
    kind, filler = layout.sample_type, summary.filler
    index = [5] if layout.branch_sample_type & 1 << 17 else []
    branch = [1, 2, 3, *([4] if layout.branch_sample_type & 1 << 19 else [])]
    regs = [abi := filler % 3, *([9] * layout.regs_user.bit_count() if abi else [])]
    intr = [abi, *([9] * layout.regs_intr.bit_count() if abi else [])]
    parts = [
        (IDENTIFIER, _u64(summary.id)),
        (IP, _u64(summary.ip)),
        (TID, struct.pack("=ii", summary.pid, summary.tid)),
        (TIME, _u64(summary.time)),
        (ADDR, _u64(11)),
        (ID, _u64(summary.id)),
        (STREAM, _u64(12)),
        (CPU, struct.pack("=iI", summary.cpu, 0)),
        (PERIOD, _u64(13)),
        (READ, _read(layout, filler)),
        (CALLCHAIN, _u64(len(summary.chain), *summary.chain)),
        (RAW, struct.pack("=I", 4 + 8 * filler) + b"r" * (4 + 8 * filler)),
        (BRANCHES, _u64(filler, *index, *(branch * filler))),
        (REGS_USER, _u64(*regs)),
        (STACK_USER, _u64(8 * filler, *([6] * filler), *([8 * filler] if filler else []))),
        (WEIGHT | WEIGHT_STRUCT, _u64(14)),
        (DATA_SRC, _u64(15)),
        (TRANSACTION, _u64(16)),
        (REGS_INTR, _u64(*intr)),
        (PHYS_ADDR, _u64(17)),
        (CGROUP, _u64(summary.cgroup)),
        (PAGE_SIZE, _u64(4096)),
        (CODE_SIZE, _u64(4096)),
        (AUX, _u64(8 * filler) + b"a" * 8 * filler),
    ]
    return b"".join(part for bits, part in parts if kind & bits)


def record(kind: int, misc: int, content: bytes) -> bytes:
    return struct.pack("=IHH", kind, misc, 8 + len(content)) + content


def since(rows: list[tuple[int, int, int]]) -> Since:
    rows = sorted(rows, key=lambda row: row[:2])
    return Since(
        np.array([row[0] for row in rows], np.int32),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.int32),
    )


def frames_of(layout: Layout, summary: Told, spaces: list[tuple[int, int, int]]) -> list:
    """(space, address) leaf first, as the contract has it."""
    user = last(spaces, summary.pid if layout.sample_type & TID else -1, _time(layout, summary), -1)
    space = {1: 0, 2: user}.get(summary.mode, -1)
    if not layout.sample_type & CALLCHAIN or not summary.chain:
        if not layout.sample_type & IP or summary.ip >= 2**64 - 4095:
            return []
        return [(space, summary.ip)]
    found = []
    for word in summary.chain:
        if word >= 2**64 - 4095:
            space = {KERNEL_MARK: 0, USER_MARK: user}.get(word, -1)
        else:
            found.append((space, word))
    return found


def _time(layout: Layout, summary: Told) -> int:
    return summary.time if layout.sample_type & TIME else 0


def last(rows: list[tuple[int, int, int]], key: int, time: int, none: int) -> int:
    found = [row for row in sorted(rows, key=lambda row: row[:2]) if row[0] == key]
    return ([none] + [value for _, when, value in found if when <= time])[-1]


def row_of(layout: Layout, summary: Told, comms: list, spaces: list) -> dict:
    """A sample in plain words."""
    kind = layout.sample_type
    tid = summary.tid if kind & TID else -1
    return {
        "time_ns": _time(layout, summary),
        "cpu": summary.cpu if kind & CPU else -1,
        "pid": summary.pid if kind & TID else -1,
        "tid": tid,
        "comm": last(comms, tid, _time(layout, summary), -2 - tid),
        "cgroup": summary.cgroup if kind & CGROUP else None,
        "event": summary.event,
        "frames": frames_of(layout, summary, spaces),
    }


addresses = st.sampled_from(
    [0xFFFFFFFF81000000, 0xFFFFFFFF81000010, 0x401000, 0x401020, 0x7F0000001000, 0, 2**64 - 4096]
)
marks = st.sampled_from([KERNEL_MARK, USER_MARK, GUEST_MARK, 2**64 - 1, 2**64 - 4095])
chains = st.lists(addresses | marks, max_size=8)
small = st.integers(0, 5)
rows = st.lists(st.tuples(small, st.integers(0, 4).map(lambda n: n * 500), small), max_size=8)


@st.composite
def layouts(draw) -> list[Layout]:
    """One to three events that keep their ids at one place."""
    count = draw(st.integers(1, 3))
    at_front = draw(st.booleans())
    made = []
    for event in range(count):
        kind = sum(draw(st.sets(st.sampled_from(FIELDS))) | draw(st.sampled_from([set(), USUAL])))
        if count > 1:
            # Without an identifier in front, ids stand at one place only after the same fields.
            kind = (
                kind | IDENTIFIER if at_front else kind & ~IDENTIFIER | IP | TID | TIME | ADDR | ID
            )
        ids = (100 + event, 200 + event) if count > 1 else ()
        formats = draw(st.integers(0, 31)), draw(st.sampled_from([0, 1 << 17, 1 << 19, 5 << 17]))
        made.append(Layout(kind, *formats, draw(st.integers(0, 255)), 0x1F, ids))
    return made


@st.composite
def samples(draw, known: list[Layout]) -> Told:
    event = draw(st.integers(0, len(known) - 1))
    ids = (*known[event].ids, *((0,) if event == 0 else ())) or (0,)
    return Told(
        event,
        draw(st.sampled_from(ids)),
        draw(st.integers(0, 5)),
        draw(small),
        draw(small),
        draw(st.integers(0, 2000)),
        draw(st.integers(0, 3)),
        draw(addresses),
        draw(chains),
        draw(st.sampled_from([1, 40, 2**64 - 1])),
        draw(st.integers(0, 3)),
    )
