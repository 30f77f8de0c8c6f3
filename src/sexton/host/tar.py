r"""Members of an untrusted tar, plain or compressed, read from front to back.

The formats are those of tar(5): ustar, GNU long names, pax. `tarfile` parses single headers and
does not iterate: it trusts a header on how much to read into memory, and takes quadratic time for a
pax record with a long number. What is read, unpacked and kept here is bounded before it is used.

A tar ends with two blocks of zeros. One that ends elsewhere was cut, perhaps just between two
members, so `TarStream.incomplete` says so: what it does not show may be in the missing part.

>>> pax_records(b"30 path=usr/lib/systemd/x.timer\n")
Traceback (most recent call last):
    ...
sexton.errors.StoreError: the tar is damaged: pax record of the wrong length
>>> pax_records(b"12 path=a/b\n13 size=1024\n")
{'path': 'a/b', 'size': '1024'}
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, cast

from sexton.errors import StoreError

#: Long names and pax records; a path has at most 4,096 bytes on Linux.
MOST_HEADER = 64 << 10
MOST_MEMBERS = 600_000
#: Pax records of all members: each costs a microsecond, and a member has a few.
MOST_RECORDS = 8_000_000
MOST_STREAM = 64 << 30
#: A root file system unpacks to three to five times its compressed size, a bomb to a thousand times
#: (gzip) or a million times (bzip2). The first `FREE_BYTES` are allowed in any case.
MOST_RATIO = 100
FREE_BYTES = 256 << 20
BLOCK = 512
_STEP = 1 << 20
#: Zeros that fill the last record of a tar, which has 10 kB by default.
_MOST_TAIL = 16 << 20
_MEMORY = 256 << 20
_SPARSE, _SPARSE_NAME = "GNU.sparse", "GNU.sparse.name"
_PAX_KEYS = ("path", "linkpath", "size", _SPARSE_NAME)
#: Compressions that are read; others are refused with the command to decompress them.
SUPPORTED = ("gzip", "bzip2", "xz")


class Compression(NamedTuple):
    """`command` decompresses it."""

    name: str
    command: str


_COMPRESSIONS: dict[bytes, Compression] = {
    b"\x1f\x8b": Compression("gzip", "gunzip"),
    b"BZh": Compression("bzip2", "bunzip2"),
    b"\xfd7zXZ\x00": Compression("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": Compression("zstd", "zstd -d"),
    b"\x04\x22\x4d\x18": Compression("lz4", "lz4 -d"),
    b"LZIP": Compression("lzip", "lzip -d"),
    b"\x89LZO\x00": Compression("lzop", "lzop -d"),
    b"PK\x03\x04": Compression("zip", "unzip"),
}


class NotATarError(StoreError):
    """The first block is not a tar header."""


class Member(NamedTuple):
    """`kind` is "file", "link", "hard", "dir", or a description such as "a FIFO"."""

    name: str
    kind: str
    size: int
    target: str


def compression_of(start: bytes) -> Compression | None:
    r"""By the first bytes of a file; `None` if it is not compressed.

    >>> compression_of(b"\x1f\x8b\x08")
    Compression(name='gzip', command='gunzip')
    """
    return next((found for magic, found in _COMPRESSIONS.items() if start.startswith(magic)), None)


@contextmanager
def damage_reported() -> Iterator[None]:
    """What decompressors raise on damaged bytes, as a `StoreError`."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise StoreError(f"the tar is damaged or truncated: {error}") from None
    except OSError as error:
        raise StoreError(f"cannot read the tar: {error}") from None


class Expansion:
    """What a compressed file has unpacked to, over all passes through it.

    `packed_bytes` is its size; of a pipe, whose size is not known, what was read of it so far.
    """

    def __init__(self, packed_bytes: int = 0) -> None:
        self._packed = packed_bytes
        self._unpacked = 0

    def read(self, position: int) -> None:
        """The compressed file was read up to here."""
        self._packed = max(self._packed, position)

    def unpacked(self, size: int) -> None:
        self._unpacked += size
        if self._unpacked > FREE_BYTES + MOST_RATIO * self._packed:
            raise StoreError(f"unpacks to more than {MOST_RATIO} times its size: not read further")


class _Packed(io.RawIOBase):
    """The compressed bytes: `start`, which was read already, then the stream."""

    def __init__(self, stream: BinaryIO, start: bytes, expansion: Expansion) -> None:
        self._stream = stream
        self._start = start
        self._expansion = expansion
        self._position = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._start and size >= 0:
            piece, self._start = self._start[:size], self._start[size:]
        else:
            piece = self._stream.read(size)
        self._position += len(piece)
        self._expansion.read(self._position)
        return piece


class _Xz(io.RawIOBase):
    """An .xz stream, decompressed with at most `_MEMORY`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decompressor = lzma.LZMADecompressor(memlimit=_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            if self._decompressor.eof:  # an .xz file may hold several streams
                rest = self._decompressor.unused_data or self._stream.read(1 << 16)
                if not rest.strip(b"\0"):
                    return 0
                self._decompressor = lzma.LZMADecompressor(memlimit=_MEMORY)
                piece = self._decompressor.decompress(rest, len(buffer))
            else:
                given = self._stream.read(1 << 16) if self._decompressor.needs_input else b""
                if self._decompressor.needs_input and not given:
                    raise EOFError("unexpected end")
                piece = self._decompressor.decompress(given, len(buffer))
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)


def _decompressed(packed: BinaryIO, name: str) -> BinaryIO:
    if name == "gzip":
        return cast("BinaryIO", gzip.GzipFile(fileobj=packed))
    if name == "bzip2":
        return cast("BinaryIO", bz2.BZ2File(packed))
    return cast("BinaryIO", io.BufferedReader(_Xz(packed), 1 << 18))


class TarStream:
    """The bytes of a tar, forwards; `at` is the position in the decompressed tar.

    `start` are bytes that were read from `stream` to recognise it. A plain tar is skipped through
    by seeking, if it was given whole (`seekable`).
    """

    def __init__(
        self, stream: BinaryIO, expansion: Expansion, start: bytes = b"", seekable: bool = False
    ) -> None:
        found = compression_of(start)
        self._expansion = expansion if found is not None else None
        self._stream = stream
        self._start = b"" if seekable else start
        self._end: int | None = None
        if seekable:
            self._end = length_of(stream) if found is None else None
            stream.seek(0)
        if found is not None:
            packed = cast("BinaryIO", _Packed(stream, self._start, expansion))
            self._stream, self._start = _decompressed(packed, found.name), b""
        self.at = 0
        self.records = 0
        #: Why the end of the tar is missing; empty if it is not, or is not reached yet.
        self.incomplete = ""

    def take(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        piece = self._read(size)
        if len(piece) < size:
            raise EOFError("it ends inside a member")
        return piece

    def content(self, size: int) -> bytes:
        """The contents of a member, without the padding up to the next block."""
        return self.take(padded(size))[:size]

    def block(self) -> bytes:
        """The next block, shorter only at the end."""
        return self._read(BLOCK)

    def skip(self, size: int) -> None:
        if self._end is not None:
            self._move(size)
            if self.at > self._end:
                raise EOFError("it ends inside a member")
            self._stream.seek(size, io.SEEK_CUR)
            return
        while size > 0:
            size -= len(self.take(min(size, _STEP)))

    def finish(self, first: bytes) -> None:
        """`first` is the block in which the headers end: check that the tar ends there as well."""
        if not first:
            self.incomplete = "the tar ends without its end marker: it may be cut"
        elif len(first) < BLOCK or len(second := self.block()) < BLOCK or any(second):
            self.incomplete = "the tar has half an end marker: it may be cut or damaged"
        else:
            for _ in range(_MOST_TAIL // _STEP):
                if (piece := self._read(_STEP)).strip(b"\0"):
                    self.incomplete = "the tar goes on after its end marker: it may be damaged"
                if not piece or self.incomplete:
                    return

    def _read(self, size: int) -> bytes:
        pieces = []
        while size > 0:
            if self._start:
                piece, self._start = self._start[:size], self._start[size:]
            else:
                piece = self._stream.read(size)
            if not piece:
                break
            self._move(len(piece))
            if self._expansion is not None:
                self._expansion.unpacked(len(piece))
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _move(self, size: int) -> None:
        self.at += size
        if self.at > MOST_STREAM:
            raise StoreError(f"the tar is larger than {MOST_STREAM >> 30} GB uncompressed")


def padded(size: int) -> int:
    """With the bytes up to the next block."""
    return -(-size // BLOCK) * BLOCK


def length_of(stream: BinaryIO) -> int:
    """The size of a file; leaves it at its end."""
    return stream.seek(0, io.SEEK_END)


def members(stream: TarStream) -> Iterator[Member]:
    """Each member, with the stream at the start of its contents; take or skip them all."""
    names: dict[str, str] = {}
    found = 0
    for number in range(2 * MOST_MEMBERS + 1):  # a member may have a pax header of its own
        block = stream.block()
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            if number == 0:
                raise NotATarError("not a tar") from None
            if any(block):
                raise StoreError(f"the tar is damaged or truncated: {error}") from None
            stream.finish(block)
            return
        except (ValueError, OverflowError) as error:
            raise StoreError(f"the tar is damaged: {error}") from None
        if header.size < 0:
            raise StoreError("the tar is damaged: negative member size")
        if header.type in (b"L", b"K", b"x", b"X"):
            names |= _long_names(header, stream)
            continue
        if header.type == b"g":  # global pax header: nothing in it is used
            stream.skip(padded(header.size))
            continue
        if header.type == b"S":
            _skip_sparse_map(block, stream)
        yield _member(header, names)
        names = {}
        found += 1
        if found > MOST_MEMBERS:
            break
    raise StoreError(f"the tar has more than {MOST_MEMBERS:,} members")


def _long_names(header: tarfile.TarInfo, stream: TarStream) -> dict[str, str]:
    if header.size > MOST_HEADER:
        raise StoreError(f"the tar has a name with {header.size:,} bytes")
    raw = stream.content(header.size)
    if header.type in (b"x", b"X"):
        stream.records += raw.count(b"\n")
        if stream.records > MOST_RECORDS:
            raise StoreError(f"the tar has more than {MOST_RECORDS:,} pax records")
        return _used(pax_records(raw))
    key = "path" if header.type == b"L" else "linkpath"
    return {key: raw.rstrip(b"\0").decode("utf-8", "surrogateescape")}


def _used(records: dict[str, str]) -> dict[str, str]:
    """The records that matter here: headers may follow one another without end."""
    found = {key: records[key] for key in _PAX_KEYS if key in records}
    return found | {_SPARSE: ""} if any(key.startswith(_SPARSE) for key in records) else found


def pax_records(raw: bytes) -> dict[str, str]:
    """``LENGTH KEY=VALUE`` lines, where LENGTH counts the whole line."""
    found = {}
    at = 0
    while at < len(raw):
        word, _, _ = raw[at : at + 8].partition(b" ")
        length = int(word) if word.isdigit() and len(word) < 8 else 0
        line = raw[at : at + length]
        key, equals, value = line[len(word) + 1 : -1].partition(b"=")
        if not equals or line[-1:] != b"\n" or len(line) != length:
            raise StoreError("the tar is damaged: pax record of the wrong length")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        at += length
    return found


def _member(header: tarfile.TarInfo, names: dict[str, str]) -> Member:
    size = header.size
    pax_size = names.get("size", "")
    if pax_size:
        if not (pax_size.isascii() and pax_size.isdigit() and len(pax_size) < 20):
            raise StoreError("the tar is damaged: invalid pax size")
        size = int(pax_size)
    name, target = names.get("path", header.name), names.get("linkpath", header.linkname)
    if _SPARSE in names or header.type == b"S":
        return Member(names.get(_SPARSE_NAME, name), "a sparse file", size, "")
    if header.type == b"2":
        return Member(name, "link", 0, target)
    if header.type == b"1":
        return Member(name, "hard", 0, target)
    if header.type in (b"3", b"4", b"6"):
        return Member(name, "a FIFO" if header.type == b"6" else "a device", 0, "")
    if header.type == b"5" or (header.type == b"\0" and name.endswith("/")):
        return Member(name, "dir", 0 if header.type == b"5" else size, "")
    return Member(name, "file", size, "")


def _skip_sparse_map(block: bytes, stream: TarStream) -> None:
    """In GNU's old sparse format each block says whether another one follows."""
    more = block[482]
    for _ in range(1 << 16):
        if not more:
            return
        more = stream.take(BLOCK)[504]
    raise StoreError("the tar is damaged: sparse map too long")
