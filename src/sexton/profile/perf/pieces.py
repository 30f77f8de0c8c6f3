"""Read the records of a capture, a few megabytes at a time.

perf writes one file, or (``--threads``, ``--kcore``) a directory with the file ``data`` and streams
``data.0``, ``data.1``, … of records only. Both are read twice: tasks and maps before samples,
because the buffers of different cores are not in time order.

Quirks: two kinds of records (AUXTRACE and TRACING_DATA) are followed by bytes that are not part of
any record; they are skipped.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.errors import SourceMalformed
from sexton.host.reader import OPEN_FLAGS, Closing, failure
from sexton.host.spool import temporary_file
from sexton.model.profile import I64
from sexton.profile.perf.header import Head, read_head
from sexton.profile.perf.walk import BadRecord, Since, Walker, walker

PIECE = 8 << 20
#: Larger than any record: their size has 16 bits.
_SMALL = 128 << 10
_HEADER = struct.Struct("<IHH")
_TRACING_DATA, _AUXTRACE = 66, 71
#: Width of the field in these records with the number of bytes that follow.
_SIZE_FIELD = {_TRACING_DATA: 4, _AUXTRACE: 8}
_STREAM = re.compile(r"data\.(\d{1,9})")


class Part(NamedTuple):
    """A range of an open file that holds records."""

    descriptor: int
    start: int
    end: int


class Piece(NamedTuple):
    """Whole records: `view` of the bytes from `at` on, `offsets` of all except samples.

    `kinds` are their types. The bytes are valid until the next piece is read.
    """

    view: memoryview
    at: int
    offsets: I64
    kinds: npt.NDArray[np.uint32]


class Capture(Closing):
    """The open files of one capture; a context manager that closes them."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.problems: list[str] = []
        self.parts: list[Part] = []
        with contextlib.ExitStack() as unwound:
            unwound.callback(self._held.close)
            if os.path.isdir(path):
                self.main = self._from_directory(path)
            else:
                self.main = self._hold(open_regular(path))
            self.size = os.fstat(self.main).st_size
            self.head: Head = read_head(path, self.size, self.read_at)
            self.parts.insert(0, self._data())
            unwound.pop_all()

    def read_at(self, offset: int, size: int) -> bytes:
        """Read from the main file."""
        if offset >= 1 << 62:
            return b""
        return os.pread(self.main, size, offset)

    def bytes_at(self, part: int, offset: int, size: int) -> bytes:
        return os.pread(self.parts[part].descriptor, size, offset)

    def temporary(self) -> int:
        """An unlinked temporary file."""
        return self._held.enter_context(temporary_file()).fileno()

    def _hold(self, descriptor: int) -> int:
        self._held.callback(os.close, descriptor)
        return descriptor

    def _from_directory(self, path: str) -> int:
        try:
            names = os.listdir(path)
        except OSError as error:
            raise failure(path, error) from None
        if "data" not in names:
            raise SourceMalformed(path, 0, "directory without perf's file `data`")
        streams = sorted(
            (int(found[1]), name) for name in names if (found := _STREAM.fullmatch(name))
        )
        for _, name in streams:
            descriptor = self._hold(open_regular(os.path.join(path, name)))
            self.parts.append(Part(descriptor, 0, os.fstat(descriptor).st_size))
        return self._hold(open_regular(os.path.join(path, "data")))

    def _data(self) -> Part:
        start, size = self.head.data_offset, self.head.data_size
        if size is None:
            if not self.head.pipe:
                self.problems.append("perf was killed while writing this file: read to its end")
            return Part(self.main, start, self.size)
        if start + size > self.size:
            missing = start + size - self.size
            self.problems.append(f"truncated: the last {missing:,} bytes of samples are missing")
        return Part(self.main, start, min(start + size, self.size))


def open_regular(path: str) -> int:
    """Open a regular file; the caller closes the descriptor."""
    try:
        descriptor = os.open(path, OPEN_FLAGS)
    except OSError as error:
        raise failure(path, error) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        piped = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        os.close(descriptor)
        hint = "; pass a pipe as - (standard input)" if piped else ""
        raise SourceMalformed(path, 0, f"not a regular file{hint}")
    return descriptor


def read_piece(part: Part, at: int, buffer: memoryview) -> memoryview:
    """Read at `at` as much as fits into the buffer."""
    view = buffer[: max(0, min(len(buffer), part.end - at))]
    got = 0
    while got < len(view):
        count = os.preadv(part.descriptor, [view[got:]], at + got)
        if not count:
            break
        got += count
    return view[:got]


def no_since() -> Since:
    """An empty history."""
    return Since(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int32))


def scout() -> Walker:
    """A walker that only splits records."""
    return walker((), no_since(), no_since())


def pieces(part: Part, problems: list[str]) -> Iterator[Piece]:
    """Every whole record of a part; damage is added to `problems`."""
    buffer = memoryview(bytearray(min(PIECE, max(0, part.end - part.start))))
    at, walk, size, foreign = part.start, scout(), PIECE, _Foreign()
    while at < part.end:
        view, broken = read_piece(part, at, buffer[:size]), False
        try:
            offsets, used = walk.side(view)
        except BadRecord as bad:
            broken = True
            view = view[: bad.offset]
            offsets, used = walk.side(view)
        piece = Piece(view[:used], at, offsets, _kinds(view, offsets))
        piece, skipped = foreign.without(piece)
        used = len(piece.view)
        if used:
            yield piece
        at += used + skipped
        if skipped and not foreign.too_much:
            size = _SMALL
            continue
        if broken or skipped:
            problems.append(f"damaged at byte {at:,}: the rest is skipped")
            return
        if not used:
            problems.append(f"truncated: the last record, at byte {at:,}, is incomplete")
            return
        size = min(PIECE, 2 * size)


def _kinds(view: memoryview, offsets: I64) -> npt.NDArray[np.uint32]:
    raw = np.frombuffer(view, np.uint8)
    four: npt.NDArray[np.uint8] = raw[offsets[:, None] + np.arange(4)]
    return four.view("<u4").reshape(len(offsets))


class _Foreign:
    """Skips bytes that belong to no record. Real ones are pages of a trace: many small ones mean a
    hostile file."""

    def __init__(self) -> None:
        self._times = 0
        self._bytes = 0

    @property
    def too_much(self) -> bool:
        return self._times > 10_000 + self._bytes // 1024

    def without(self, piece: Piece) -> tuple[Piece, int]:
        """The piece up to the first record that is followed by such bytes, and their number."""
        view, offsets = piece.view, piece.offsets
        candidates = (piece.kinds == _TRACING_DATA) | (piece.kinds == _AUXTRACE)
        for index in np.flatnonzero(candidates).tolist():
            at = int(offsets[index])
            kind, _, size = _HEADER.unpack_from(view, at)
            width = _SIZE_FIELD[kind]
            if size < 8 + width:
                continue
            extra = int.from_bytes(view[at + 8 : at + 8 + width], "little")
            if extra:
                self._times += 1
                self._bytes += extra
                end = index + 1
                cut = piece._replace(
                    view=view[: at + size], offsets=offsets[:end], kinds=piece.kinds[:end]
                )
                return cut, extra
        return piece, 0
