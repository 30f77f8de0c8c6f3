r"""What a tar may be packed in, and how it is unpacked without ever being written anywhere.

>>> packing_of(b"\x1f\x8b\x08")
Packing(name='gzip', unpack='gunzip')
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from typing import BinaryIO, NamedTuple, cast

_MEMORY = 256 << 20
#: Those that are unpacked here; the others are named, with what unpacks them.
READ = ("gzip", "bzip2", "xz")


class Packing(NamedTuple):
    """`unpack` is the command that undoes it."""

    name: str
    unpack: str


_PACKINGS: dict[bytes, Packing] = {
    b"\x1f\x8b": Packing("gzip", "gunzip"),
    b"BZh": Packing("bzip2", "bunzip2"),
    b"\xfd7zXZ\x00": Packing("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": Packing("zstd", "zstd -d"),
    b"\x04\x22\x4d\x18": Packing("lz4", "lz4 -d"),
    b"LZIP": Packing("lzip", "lzip -d"),
    b"\x89LZO\x00": Packing("lzop", "lzop -d"),
    b"PK\x03\x04": Packing("zip", "unzip"),
}


def packing_of(start: bytes) -> Packing | None:
    """By the first bytes of a file; `None` where it is packed in nothing that is known."""
    return next((found for magic, found in _PACKINGS.items() if start.startswith(magic)), None)


def unpacked(stream: BinaryIO, name: str) -> BinaryIO:
    """The plain bytes of a packed stream, from where it stands; itself where it is not packed."""
    found = {
        "gzip": lambda: gzip.GzipFile(fileobj=stream),
        "bzip2": lambda: bz2.BZ2File(stream),
        "xz": lambda: io.BufferedReader(_Xz(stream)),
    }.get(name, lambda: stream)()
    return cast("BinaryIO", found)


class _Xz(io.RawIOBase):
    """An .xz stream that may not take more than `_MEMORY` to unpack."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._unpacker = lzma.LZMADecompressor(memlimit=_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            if self._unpacker.eof:  # several streams in a row are one file
                rest = self._unpacker.unused_data or self._stream.read(1 << 16)
                if not rest.strip(b"\0"):
                    return 0
                self._unpacker = lzma.LZMADecompressor(memlimit=_MEMORY)
                piece = self._unpacker.decompress(rest, len(buffer))
            else:
                given = self._stream.read(1 << 16) if self._unpacker.needs_input else b""
                if self._unpacker.needs_input and not given:
                    raise EOFError("ends in the middle")
                piece = self._unpacker.decompress(given, len(buffer))
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)
