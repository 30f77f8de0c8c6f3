"""``perf record -z`` made up: zstd frames of blocks that are stored or repeated, never ended."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise

from tests.support.perf_bytes import raw_record

#: Magic, no flags, a window of 2 MB.
FRAME = b"\x28\xb5\x2f\xfd\x00\x58"


def stored(content: bytes) -> bytes:
    """One block of the bytes as they are."""
    return (len(content) << 3).to_bytes(3, "little") + content


def repeated(byte: int, times: int) -> bytes:
    """One block of one byte again and again: four bytes for up to 128 kB."""
    return (times << 3 | 1 << 1).to_bytes(3, "little") + bytes([byte])


def compressed(packed: bytes) -> bytes:
    return raw_record(81, packed)


def compressed2(packed: bytes) -> bytes:
    """Since perf 6.16: with the size inside, and padding."""
    return raw_record(83, struct.pack("<Q", len(packed)) + packed + bytes(-len(packed) % 8))


def packed_records(content: bytes, cuts: Iterable[int], make=compressed) -> list[bytes]:
    """One stream over several records, cut at these places of what is packed."""
    edges = [0, *sorted(cuts), len(content)]
    found = []
    for number, (start, end) in enumerate(pairwise(edges)):
        found.append(make((FRAME if number == 0 else b"") + stored(content[start:end])))
    return found
