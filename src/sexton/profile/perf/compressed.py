"""``perf record -z``: compressed records, unpacked into a temporary file.

All COMPRESSED records (type 81, or 83 with ``u64 size`` before the bytes and padding after them)
hold one zstd stream that is never ended: perf flushes it at the end of each, possibly in the middle
of a record. A later file of a rotated set therefore starts in the middle of a stream; perf cannot
unpack that either.

libzstd is loaded with ctypes: every machine with such a perf has it. The output is limited by disk
space and by the compression ratio of real captures (6 to 40 times), so that a few bytes of garbage
cannot fill a disk.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.spool import room, write_all
from sexton.profile.perf.pieces import Capture, Part, pieces, scout
from sexton.profile.perf.records import COMPRESSED, COMPRESSED2
from sexton.profile.perf.walk import BadRecord

_MAGIC = b"\x28\xb5\x2f\xfd"
_LIBRARY = "libzstd.so.1"
_MOST_TIMES = 200
_ALWAYS = 16 << 20
_OUT = 1 << 20
_NO_BEGINNING = (
    "compressed, and the stream starts in an earlier file of the set: perf cannot unpack it either "
    "(record rotating files without -z)"
)


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer."""

    _fields_ = (("at", ctypes.c_void_p), ("size", ctypes.c_size_t), ("used", ctypes.c_size_t))


class Unpacker:
    """One zstd stream, given piece by piece. Close it."""

    def __init__(self) -> None:
        try:
            self._zstd = ctypes.CDLL(_LIBRARY)
        except OSError:
            raise SourceAbsent(
                _LIBRARY, "not installed; unpacks `perf record -z`", "apt-get install libzstd1"
            ) from None
        self._zstd.ZSTD_createDStream.restype = ctypes.c_void_p
        self._zstd.ZSTD_decompressStream.restype = ctypes.c_size_t
        self._zstd.ZSTD_decompressStream.argtypes = [ctypes.c_void_p] * 3
        self._zstd.ZSTD_isError.argtypes = [ctypes.c_size_t]
        self._zstd.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
        self._zstd.ZSTD_getErrorName.restype = ctypes.c_char_p
        self._zstd.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
        self._stream: int | None = self._zstd.ZSTD_createDStream()
        if not self._stream:
            raise MemoryError
        self._out = ctypes.create_string_buffer(_OUT)

    def close(self) -> None:
        self._zstd.ZSTD_freeDStream(self._stream)
        self._stream = None

    def unpack(self, packed: bytes) -> Iterator[bytes]:
        """Unpack more bytes; `ValueError` if they are not zstd."""
        given = ctypes.create_string_buffer(packed, len(packed))
        source = _Buffer(ctypes.addressof(given), len(packed), 0)
        while True:
            target = _Buffer(ctypes.addressof(self._out), _OUT, 0)
            before = source.used
            status = self._zstd.ZSTD_decompressStream(
                self._stream, ctypes.byref(target), ctypes.byref(source)
            )
            if self._zstd.ZSTD_isError(status):
                raise ValueError(self._zstd.ZSTD_getErrorName(status).decode())
            if target.used:
                yield self._out.raw[: target.used]
            # A full target may leave more to read; otherwise it needs more input.
            if target.used < _OUT and (source.used == len(packed) or source.used == before):
                return


def unpack(capture: Capture) -> Part:
    """All records of a capture, plain and unpacked, in a temporary file."""
    if len(capture.parts) > 1:
        raise SourceMalformed(
            capture.path, 0, "compressed streams in a directory; record without -z"
        )
    (packed,) = capture.parts
    spool = _Spool(capture, packed)
    unpacker = Unpacker()
    try:
        begun = False
        for piece in pieces(packed, capture.problems):
            done = 0
            for at, size, kind in _compressed(piece.view, piece.offsets.tolist()):
                spool.plain(piece.view[done:at])
                done = at + size
                content = _content(bytes(piece.view[at:done]), kind)
                if not begun and content[:4] != _MAGIC:
                    raise SourceMalformed(capture.path, 0, _NO_BEGINNING)
                begun = True
                for more in unpacker.unpack(content):
                    spool.unpacked(more)
            spool.plain(piece.view[done:])
    except ValueError as error:
        capture.problems.append(f"compressed data damaged ({error}): read up to that point")
    finally:
        unpacker.close()
    return spool.finish()


class _Spool:
    """Writes whole records: a record split by the compression waits for its other half."""

    def __init__(self, capture: Capture, packed: Part) -> None:
        self._capture = capture
        self._descriptor = capture.temporary()
        self._size = 0
        self._most = min(room(), _ALWAYS + _MOST_TIMES * (packed.end - packed.start))
        self._waiting = b""

    def plain(self, content: memoryview) -> None:
        self._size += len(content)
        if self._size > self._most:
            raise SourceMalformed(
                self._capture.path, 0, f"unpacks to more than {self._most:,} bytes"
            )
        write_all(self._descriptor, content)

    def unpacked(self, content: bytes) -> None:
        joined = memoryview(self._waiting + content)
        try:
            _, whole = scout().side(joined)
        except BadRecord as bad:
            self.plain(joined[: bad.offset])
            raise ValueError("record without a size") from None
        self.plain(joined[:whole])
        self._waiting = bytes(joined[whole:])

    def finish(self) -> Part:
        if self._waiting:
            self._capture.problems.append("truncated: the last compressed record is incomplete")
        return Part(self._descriptor, 0, self._size)


def _compressed(view: memoryview, offsets: list[int]) -> Iterator[tuple[int, int, int]]:
    for at in offsets:
        kind = int.from_bytes(view[at : at + 4], "little")
        if kind in (COMPRESSED, COMPRESSED2):
            yield at, int.from_bytes(view[at + 6 : at + 8], "little"), kind


def _content(record: bytes, kind: int) -> bytes:
    if kind == COMPRESSED:
        return record[8:]
    size = int.from_bytes(record[8:16], "little")
    if size > len(record) - 16:
        raise ValueError("record larger than its size")
    return record[16 : 16 + size]
