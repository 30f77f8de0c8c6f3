"""Checksums of ext4's metadata (feature metadata_csum, the default of mke2fs since 2018).

As in the kernel's Documentation/filesystems/ext4 and fs/ext4: crc32c without the final inversion,
seeded with the file system's UUID; of an inode, a directory block or a block of an extent tree also
with the inode's number and generation. Contents of files have none.

>>> hex(crc32c(b"123456789") ^ 0xFFFFFFFF)
'0xe3069283'
"""

from __future__ import annotations

import struct

_POLYNOMIAL = 0x82F63B78
_ALL = 0xFFFFFFFF
_DIRECTORY_TAIL = 12
_TAIL_MARK = 0xDE
#: Checksum fields: in the superblock, a group descriptor, and an inode (low and high half).
_SUPER_AT, _GROUP_AT, _LOW_AT, _HIGH_AT = 1020, 30, 124, 130


def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _table()


def crc32c(data: bytes, crc: int = _ALL) -> int:
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc


def super_block_is_whole(raw: bytes) -> bool:
    return crc32c(raw[:_SUPER_AT]) == u32(raw, _SUPER_AT)


class Checksums:
    """Checks one file system; `seed` is from its superblock."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def group(self, number: int, raw: bytes) -> bool:
        """Is a group descriptor whole?"""
        crc = crc32c(struct.pack("<I", number), self._seed)
        crc = crc32c(raw[:_GROUP_AT] + bytes(2) + raw[_GROUP_AT + 2 :], crc)
        return crc & 0xFFFF == u16(raw, _GROUP_AT)

    def of_inode(self, number: int, generation: int) -> int:
        """The seed for what belongs to an inode."""
        return crc32c(struct.pack("<II", number, generation), self._seed)

    def inode(self, seed: int, raw: bytes) -> bool:
        wide = len(raw) > 128 and 128 + u16(raw, 128) >= _HIGH_AT + 2
        kept = bytearray(raw)
        kept[_LOW_AT : _LOW_AT + 2] = bytes(2)
        said = u16(raw, _LOW_AT)
        if wide:
            kept[_HIGH_AT : _HIGH_AT + 2] = bytes(2)
            said |= u16(raw, _HIGH_AT) << 16
        return crc32c(bytes(kept), seed) & (_ALL if wide else 0xFFFF) == said

    def extents(self, seed: int, raw: bytes) -> bool:
        """Is a block of an extent tree whole? The checksum follows its last possible entry."""
        at = 12 * (1 + u16(raw, 4))
        return at + 4 <= len(raw) and crc32c(raw[:at], seed) == u32(raw, at)

    def directory(self, seed: int, raw: bytes, indexed: bool, number: int) -> bool:
        """Is a block of a directory whole? `number` is its place in the directory."""
        first = u16(raw, 4)
        if indexed and (number == 0 or first in (len(raw), 0)):
            return self._index(seed, raw, 32 if number == 0 else 8)
        at = len(raw) - _DIRECTORY_TAIL
        inode, length, name_length, mark, said = struct.unpack_from("<IHBBI", raw, at)
        is_tail = (inode, length, name_length, mark) == (0, _DIRECTORY_TAIL, 0, _TAIL_MARK)
        return is_tail and crc32c(raw[:at], seed) == said

    def _index(self, seed: int, raw: bytes, at: int) -> bool:
        """A node of a directory's index: its entries, from `at` on, say how many there can be."""
        limit, count = struct.unpack_from("<HH", raw, at)
        tail = at + 8 * limit
        if count > limit or tail + 8 > len(raw):
            return False
        crc = crc32c(raw[: at + 8 * count], seed)
        crc = crc32c(raw[tail : tail + 4] + bytes(4), crc)
        return crc == u32(raw, tail + 4)


def u16(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<H", raw, at)[0])


def u32(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", raw, at)[0])
