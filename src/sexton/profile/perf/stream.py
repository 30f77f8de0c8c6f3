"""The bytes of a profile somebody gave us, unpacked where gzipped, in pieces, within bounds.

A profile may come from anywhere, so a few kilobytes of gzip must not become a full disk or memory:
unpacked data is bounded in size and, once it is large, in how many times larger it is than what was
given (real captures pack 5 to 60 times; the most gzip can do is 1,032 times). A gzip file that ends
too early gives what it has, and says so.
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
#: One line of text: deeper stacks of longer names than anybody has.
MOST_LINE = 1 << 20


def pieces(stream: BinaryIO, facts: Facts, bounds: Bounds = BOUNDS) -> Iterator[bytes]:
    """The stream's bytes, unpacked, in pieces of about a megabyte."""
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
    """Every member of a gzip file; what follows the last one and is no gzip is padding."""
    unpack = zlib.decompressobj(_GZIP_WINDOW)
    given, made = len(packed), 0
    while True:
        try:
            piece = unpack.decompress(packed, _PIECE)
        except zlib.error:
            raise SourceMalformed(facts.path, 0, "its gzip data is corrupt") from None
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
                facts.problems.append("its gzip data ends too early: what was there is shown")
                return


def lines(stream: BinaryIO, facts: Facts, bounds: Bounds = BOUNDS) -> Iterator[list[bytes]]:
    """Whole lines, many at a time; the last may lack its newline."""
    rest = b""
    for piece in pieces(stream, facts, bounds):
        found = (rest + piece).split(b"\n")
        rest = found.pop()
        if len(rest) > MOST_LINE:
            raise SourceMalformed(facts.path, 0, f"has a line longer than {size(MOST_LINE)}")
        yield found
    if rest:
        yield [rest]


def whole(stream: BinaryIO, facts: Facts, bounds: Bounds) -> bytes:
    """Everything, for a format that cannot be read in pieces."""
    found = []
    total = 0
    for piece in pieces(stream, facts, bounds):
        total += len(piece)
        if total > bounds.unpacked:
            raise SourceMalformed(facts.path, 0, f"larger than {size(bounds.unpacked)}: refused")
        found.append(piece)
    return b"".join(found)


def opening(head: bytes, wanted: int = 1 << 16) -> bytes:
    """The first bytes of a file, unpacked where they are gzip; empty where they cannot be."""
    if not head.startswith(_GZIP):
        return head[:wanted]
    try:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(head, wanted)
    except zlib.error:
        return b""
