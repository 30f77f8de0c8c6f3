"""A perf.data made up record by record; nothing here uses the code under test.

Samples are those of ``-a -g --all-cgroups`` with one event (sample_type 0x2001e7), or with an
IDENTIFIER before everything where there are several.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

KERNEL_MARK, USER_MARK = (1 << 64) - 128, (1 << 64) - 512
IDENTIFIER = 1 << 16
SAMPLE_TYPE = 0x2001E7
#: freq, sample_id_all, use_clockid, build_id
FLAGS = 1 << 10 | 1 << 18 | 1 << 25 | 1 << 34
KERNEL, USER = 1, 2
EXEC = 1 << 13
HEADER = 104


def text(name: bytes) -> bytes:
    """As the kernel writes it: ended by a zero, a multiple of eight bytes."""
    return name + bytes(8 - len(name) % 8)


def raw_record(kind: int, body: bytes, misc: int = 0) -> bytes:
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def record(kind: int, body: bytes, *, time: int = 0, misc: int = 0) -> bytes:
    """With the tail of SAMPLE_TYPE: pid and tid, time, id, core."""
    return raw_record(kind, body + struct.pack("<IIQQII", 0, 0, time, 0, 0, 0), misc)


def comm(pid: int, tid: int, name: bytes, *, time: int = 0, by_exec: bool = False) -> bytes:
    body = struct.pack("<ii", pid, tid) + text(name)
    return record(3, body, time=time, misc=EXEC if by_exec else 0)


def fork(child: tuple[int, int], parent: tuple[int, int], *, time: int, misc: int = 0) -> bytes:
    (pid, tid), (ppid, ptid) = child, parent
    return record(7, struct.pack("<iiiiQ", pid, ppid, tid, ptid, time), time=time, misc=misc)


def exited(pid: int, tid: int, *, time: int) -> bytes:
    return record(4, struct.pack("<iiiiQ", pid, 1, tid, 1, time), time=time)


def mmap2(pid: int, start: int, length: int, name: bytes, **more) -> bytes:
    """`build_id` (bytes) or device and inode; `time`, `pgoff`, `misc`."""
    told = more.get("build_id")
    if told is None:
        identity = struct.pack("<IIQQ", 8, 1, more.get("inode", 77), 0)
    else:
        identity = struct.pack("<B3x20s", len(told), told)
    body = struct.pack("<iiQQQ", pid, pid, start, length, more.get("pgoff", 0))
    misc = more.get("misc", USER) | (0 if told is None else 1 << 14)
    full = body + identity + struct.pack("<II", 5, 2) + text(name)
    return record(10, full, time=more.get("time", 0), misc=misc)


def mmap(pid: int, start: int, length: int, name: bytes, **more) -> bytes:
    body = struct.pack("<iiQQQ", pid, pid, start, length, more.get("pgoff", 0)) + text(name)
    return record(1, body, misc=more.get("misc", USER), time=more.get("time", 0))


def sample(time: int, pid: int, chain: Iterable[int], **more) -> bytes:
    """`tid`, `cpu`, `cgroup`, `id`; a marked chain."""
    frames = list(chain)
    event = more.get("id", 0)
    body = struct.pack("<QiiQQ", 0x1234, pid, more.get("tid", pid), time, event)
    body += struct.pack("<iIQ", more.get("cpu", 0), 0, 1)
    body += struct.pack(f"<Q{len(frames)}Q", len(frames), *frames)
    body += struct.pack("<Q", more.get("cgroup", 1))
    if more.get("identified"):
        body = struct.pack("<Q", event) + body
    return raw_record(9, body, more.get("misc", USER))


def attr(**more) -> bytes:
    """`sample_type`, `flags`, `config`, `kind`, `hertz`, `clockid`."""
    told = struct.pack(
        "<IIQQQQQ",
        more.get("kind", 1),
        128,
        more.get("config", 0),
        more.get("hertz", 97),
        more.get("sample_type", SAMPLE_TYPE),
        4,
        more.get("flags", FLAGS),
    )
    return told.ljust(92, b"\0") + struct.pack("<i", more.get("clockid", 1)) + bytes(32)


def string(content: bytes) -> bytes:
    padded = content + bytes(64 - len(content) % 64)
    return struct.pack("<I", len(padded)) + padded


def perf_data(
    records: Iterable[bytes],
    *,
    attrs: Iterable[tuple[bytes, tuple[int, ...]]] = ((attr(), ()),),
    features: dict[int, bytes] | None = None,
    data_size: int | None = None,
) -> bytes:
    """A whole file: head, ids, attributes, data, sections."""
    events = list(attrs)
    data = b"".join(records)
    ids, table, at = b"", b"", HEADER
    for content, numbers in events:
        table += content + struct.pack("<QQ", at, 8 * len(numbers))
        ids += struct.pack(f"<{len(numbers)}Q", *numbers)
        at += 8 * len(numbers)
    start = at + len(table)
    told = features or {}
    bits = sum(1 << number for number in told).to_bytes(32, "little")
    size = len(data) if data_size is None else data_size
    head = struct.pack(
        "<8s8Q32s", b"PERFILE2", HEADER, 144, at, len(table), start, size, 0, 0, bits
    )
    place = start + len(data) + 16 * len(told)
    where = sections = b""
    for number in sorted(told):
        where += struct.pack("<QQ", place + len(sections), len(told[number]))
        sections += told[number]
    return head + ids + table + data + where + sections


def piped(
    records: Iterable[bytes], *, attrs: Iterable[tuple[bytes, tuple[int, ...]]] = ()
) -> bytes:
    """As ``perf record -o -`` writes it."""
    told = [
        raw_record(64, content + struct.pack(f"<{len(ids)}Q", *ids))
        for content, ids in attrs or ((attr(), ()),)
    ]
    return struct.pack("<8sQ", b"PERFILE2", 16) + b"".join([*told, *records])
