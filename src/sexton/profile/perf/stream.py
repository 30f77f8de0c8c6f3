"""Read the bytes of a profile in pieces, unpacked if gzipped, within limits.

A profile may come from anywhere, so a few kilobytes of gzip must not fill the disk or memory: the
unpacked size is limited and, once it is large, also the ratio to the packed size (real captures
have 5 to 60; the maximum of gzip is 1,032). A truncated gzip file gives what it contains, with a
problem line.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from sexton.errors import SourceMalformed
from sexton.host.reader import failure
from sexton.model.profile import Facts
from sexton.model.text import size

_PIECE = 1 << 20
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31


class Bounds(NamedTuple):
    """`unpacked` bytes at most; from `judged_from` on, at most `ratio` times what was packed."""

    unpacked: int = 8 << 30
    ratio: int = 250
    judged_from: int = 64 << 20


BOUNDS = Bounds()
#: Limit on one line of text.
MOST_LINE = 1 << 20


def pieces(stream: BinaryIO, facts: Facts, bounds: Bounds = BOUNDS) -> Iterator[bytes]:
    """The bytes of the stream, unpacked, in pieces of about a megabyte."""
    first = _read(stream, facts)
    if first.startswith(_GZIP):
        yield from _unpacked(first, stream, facts, bounds)
        return
    while first:
        yield first
        first = _read(stream, facts)


def _read(stream: BinaryIO, facts: Facts) -> bytes:
    try:
        return stream.read(_PIECE)
    except OSError as error:
        raise failure(facts.path, error) from None


def _unpacked(packed: bytes, stream: BinaryIO, facts: Facts, bounds: Bounds) -> Iterator[bytes]:
    """Every member of a gzip file; other bytes after the last one are padding."""
    unpack = zlib.decompressobj(_GZIP_WINDOW)
    given, made = len(packed), 0
    while True:
        try:
            piece = unpack.decompress(packed, _PIECE)
        except zlib.error:
            raise SourceMalformed(facts.path, 0, "corrupt gzip data") from None
        made += len(piece)
        if made > bounds.unpacked:
            raise SourceMalformed(
                facts.path, 0, f"unpacks to more than {size(bounds.unpacked)}: refused"
            )
        if made > bounds.judged_from and made > bounds.ratio * given:
            raise SourceMalformed(
                facts.path, 0, f"unpacks to more than {bounds.ratio} times its size: refused"
            )
        if piece:
            yield piece
        if unpack.eof:
            packed = unpack.unused_data or _read(stream, facts)
            given += 0 if unpack.unused_data else len(packed)
            if not packed.startswith(_GZIP):
                return
            unpack = zlib.decompressobj(_GZIP_WINDOW)
            continue
        packed = unpack.unconsumed_tail
        if not packed and len(piece) < _PIECE:
            packed = _read(stream, facts)
            given += len(packed)
            if not packed:
                facts.problems.append("gzip data truncated: read up to that point")
                return


def lines(stream: BinaryIO, facts: Facts, bounds: Bounds = BOUNDS) -> Iterator[list[bytes]]:
    """Whole lines, many at a time; the last may be without newline."""
    rest = b""
    for piece in pieces(stream, facts, bounds):
        found = (rest + piece).split(b"\n")
        rest = found.pop()
        if len(rest) > MOST_LINE:
            raise SourceMalformed(facts.path, 0, f"line longer than {size(MOST_LINE)}")
        yield found
    if rest:
        yield [rest]


def whole(stream: BinaryIO, facts: Facts, bounds: Bounds) -> bytes:
    """All bytes, for a format that cannot be read in pieces."""
    found = []
    total = 0
    for piece in pieces(stream, facts, bounds):
        total += len(piece)
        if total > bounds.unpacked:
            raise SourceMalformed(facts.path, 0, f"larger than {size(bounds.unpacked)}: refused")
        found.append(piece)
    return b"".join(found)


def opening(head: bytes, wanted: int = 1 << 16) -> bytes:
    """The first bytes of a file, unpacked if gzipped; empty if damaged."""
    if not head.startswith(_GZIP):
        return head[:wanted]
    try:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(head, wanted)
    except zlib.error:
        return b""
