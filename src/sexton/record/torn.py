"""A perf.data whose perf was killed: give it the head that perf would have written last.

perf leaves room for the head of a rotated file and fills it in when the file is closed, so one that
was killed over it leaves zeros and everything it sampled: the very minutes one would want to see.
The head says what the samples hold (the event attributes), which all files of one perf share: it
is copied from a sibling, with the size of what is there and none of the closing sections.

Head, native endian (the kernel's tools/perf/Documentation/perf.data-file-format.txt): magic
``PERFILE2``, ``u64 size, attr_size``, then ``{u64 offset, size}`` of attrs, data and event types,
then 256 bits of which sections follow the data.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

_MAGIC = b"PERFILE2"
_HEAD = struct.Struct("=8s8Q32s")
#: Attributes and ids of one event on a thousand cores take 8 kB.
_MOST_HEAD = 1 << 20


class _Head(NamedTuple):
    magic: bytes
    size: int
    attr_size: int
    attrs_offset: int
    attrs_size: int
    data_offset: int
    data_size: int
    types_offset: int
    types_size: int
    sections: bytes


def mend(path: str, sibling: str | None) -> bool:
    """Whether `path` can be read now; `sibling` is a whole file of the same perf."""
    with open(path, "r+b", buffering=0) as torn:
        size = os.fstat(torn.fileno()).st_size
        head, between = _head(torn.read(_HEAD.size)), b""
        if head is not None and head.data_size:
            return True
        if head is None and sibling is not None:
            with open(sibling, "rb") as whole:
                head = _head(whole.read(_HEAD.size))
                if head is not None:
                    between = whole.read(head.data_offset - _HEAD.size)
        if head is None or head.data_offset >= size:
            return False
        mended = head._replace(data_size=size - head.data_offset, sections=bytes(32))
        torn.seek(0)
        torn.write(_HEAD.pack(*mended) + between)
        os.fsync(torn.fileno())
    return True


def _head(content: bytes) -> _Head | None:
    if len(content) < _HEAD.size:
        return None
    head = _Head(*_HEAD.unpack(content))
    sane = head.magic == _MAGIC and head.size == _HEAD.size <= head.data_offset <= _MOST_HEAD
    return head if sane else None
