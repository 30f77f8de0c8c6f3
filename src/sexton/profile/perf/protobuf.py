r"""The protocol buffer wire format, as far as pprof needs it: reading and writing.

https://protobuf.dev/programming-guides/encoding/: a message is a sequence of (field number, value);
a number is a *varint* (seven bits per byte, the lowest first); texts, messages and packed numbers
are bytes preceded by their length. Only these two are read; fixed-width fields are skipped.

>>> list(fields(b"\x08\x96\x01\x12\x02hi", "a.pb.gz"))
[(1, 150), (2, b'hi')]
>>> numbers(b"\x01\x96\x01", "a.pb.gz"), signed(2**64 - 1)
([1, 150], -1)
>>> number(1, 150) + text(2, b"hi") == b"\x08\x96\x01\x12\x02hi"
True
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceMalformed

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_FIELD = 1 << 29
_ALL = 0xFFFF_FFFF_FFFF_FFFF
#: Ten bytes of seven bits: more than any number.
_MOST_SHIFT = 70


def fields(data: bytes, path: str) -> Iterator[tuple[int, int | bytes]]:
    """Each field's number and value; an int for a varint, bytes for the rest."""
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag > 0x7F:
            tag, at = _varint(data, at - 1, path)
        kind = tag & 7
        if kind == _VARINT:
            if at < end and data[at] < 0x80:
                value: int | bytes = data[at]
                at += 1
            else:
                value, at = _varint(data, at, path)
        elif kind == _BYTES:
            if at < end and data[at] < 0x80:
                size = data[at]
                at += 1
            else:
                size, at = _varint(data, at, path)
            value = data[at : at + size]
            if len(value) < size:
                raise SourceMalformed(path, 0, "field extends past the end: truncated or corrupt")
            at += size
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
            value = data[at : at + size]
            at += size
            if at > end:
                raise SourceMalformed(path, 0, "field extends past the end: truncated or corrupt")
        else:
            raise SourceMalformed(path, 0, "not a protocol buffer, or corrupt")
        field = tag >> 3
        if not 0 < field < _MOST_FIELD:
            raise SourceMalformed(path, 0, "not a protocol buffer, or corrupt")
        yield field, value


def numbers(value: int | bytes, path: str) -> list[int]:
    """A repeated number: packed, or one at a time."""
    if isinstance(value, int):
        return [value]
    if value.isascii():  # every one below 128
        return list(value)
    found = []
    number = shift = 0
    for byte in value:
        if byte < 0x80:
            found.append((number | byte << shift) & _ALL)
            number = shift = 0
        else:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift >= _MOST_SHIFT:
                raise SourceMalformed(path, 0, "not a protocol buffer, or corrupt")
    if shift:
        raise SourceMalformed(path, 0, "ends in mid-number: truncated or corrupt")
    return found


def signed(value: int) -> int:
    """An int64 from its two's complement."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _varint(data: bytes, at: int, path: str) -> tuple[int, int]:
    value = shift = 0
    while shift < _MOST_SHIFT:
        if at >= len(data):
            raise SourceMalformed(path, 0, "ends in mid-number: truncated or corrupt")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _ALL, at
        shift += 7
    raise SourceMalformed(path, 0, "not a protocol buffer, or corrupt")


def varint(value: int) -> bytes:
    """Encode a number; a negative one as its two's complement."""
    value &= _ALL
    if value < 0x80:
        return bytes((value,))
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number(field: int, value: int) -> bytes:
    """Encode a number field; zero is omitted, as the format requires."""
    return varint(field << 3) + varint(value) if value else b""


def text(field: int, value: bytes) -> bytes:
    """Encode a field of text, a message or packed numbers."""
    return varint(field << 3 | _BYTES) + varint(len(value)) + value
