"""Fuzz target: perf.data, as a file, as a pipe and compressed."""

from __future__ import annotations

import os
import struct

from sexton.errors import SextonError
from sexton.profile.perf.perfdata import read_raw
from tests.support.perf_bytes import (
    IDENTIFIER,
    KERNEL,
    KERNEL_MARK,
    SAMPLE_TYPE,
    USER_MARK,
    attr,
    comm,
    fork,
    mmap,
    mmap2,
    perf_data,
    piped,
    raw_record,
    record,
    sample,
    string,
)
from tests.support.perf_packed import packed_records


def one(data: bytes) -> None:
    """Read it; whatever it is, only our own errors may come of it, and tables that fit."""
    held = os.memfd_create("fuzzed")
    try:
        os.write(held, data)
        raw = read_raw(f"/proc/self/fd/{held}")
    except SextonError as error:
        if "\n" in str(error):
            raise AssertionError("more than one line") from error
        return
    finally:
        os.close(held)
    columns = raw.columns
    samples = len(columns.time_ns)
    for name in ("cpu", "pid", "tid", "comm", "cgroup", "event", "stack"):
        assert len(getattr(columns, name)) == samples
    assert columns.stack_start[-1] == len(columns.stack_frame)
    for numbers, least, most in (
        (columns.comm, 0, len(raw.comms)),
        (columns.stack_comm, 0, len(raw.comms)),
        (columns.cgroup, -1, len(raw.cgroups)),
        (columns.event, 0, len(raw.events)),
        (columns.stack, 0, len(columns.stack_comm)),
        (columns.stack_frame, 0, len(columns.address)),
        (columns.space, -1, len(raw.spaces)),
    ):
        assert len(numbers) == 0 or (numbers.min() >= least and numbers.max() < most)
    assert (columns.time_ns[1:] >= columns.time_ns[:-1]).all()
    for space in raw.spaces:
        maps = space.maps
        assert (maps.start < maps.end).all()
        assert (maps.end[:-1] <= maps.start[1:]).all()
        assert len(maps) == 0 or (maps.file.min() >= 0 and maps.file.max() < len(raw.files))


def seeds() -> list[bytes]:
    """One of everything, in every wrapping."""
    records = [
        comm(5, 5, b"sh"),
        mmap(-1, 0xFFFFFFFF81000000, 0x1000, b"[kernel.kallsyms]_text", misc=KERNEL),
        mmap2(5, 0x1000, 0x3000, b"/bin/sh", build_id=b"\x01" * 20),
        record(19, struct.pack("<Q", 41) + b"/pods\0\0\0"),
        record(17, struct.pack("<QIHH", 0xFFFFFFFFC0001000, 64, 1, 0) + b"bpf\0\0\0\0\0"),
        fork((9, 9), (5, 5), time=3),
        comm(9, 9, b"ls", time=4, by_exec=True),
        mmap2(9, 0x2000, 0x1000, b"/bin/ls", time=5),
        record(2, struct.pack("<QQ", 1, 7)),
        record(5, struct.pack("<QQQ", 1, 1, 1)),
        raw_record(71, struct.pack("<QQQIIII", 8, 0, 0, 0, 0, 0, 0)) + b"12345678",
        *(
            sample(time, 9, [KERNEL_MARK, 0xFFFFFFFF81000010, USER_MARK, 0x2000 + time], cgroup=41)
            for time in (2, 6, 7)
        ),
        raw_record(68, b""),
    ]
    told = {
        2: raw_record(0, struct.pack("<i20sB3x", -1, b"\x04" * 20, 20) + b"/bin/ls\0", 2 | 1 << 15),
        3: string(b"node-7"),
        7: struct.pack("<II", 2, 2),
        11: struct.pack("<I", 1) + string(b"perf"),
        12: struct.pack("<II", 1, 128) + attr() + struct.pack("<I", 0) + string(b"mine"),
        21: struct.pack("<QQ", 1, 9),
        29: struct.pack("<IIQQ", 1, 1, 2_000_000_000, 500),
    }
    several = [(attr(sample_type=SAMPLE_TYPE | IDENTIFIER), (n,)) for n in (11, 12)]
    identified = [sample(1, 5, [USER_MARK, 1], id=12, identified=True)]
    return [
        perf_data(records, features=told),
        perf_data(records, data_size=0),
        piped([*records, raw_record(80, struct.pack("<Q", 3) + string(b"node-7"))]),
        perf_data(identified, attrs=several),
        perf_data([*records[:3], *packed_records(b"".join(records[3:]), (60, 333))]),
    ]
