"""The structures of ext2, ext3 and ext4 on disk, parsed from bytes of an untrusted image, and their
checksums.

The layout is the one in the kernel's Documentation/filesystems/ext4. Values that no file system has
raise `StoreError`. Metadata has checksums (feature metadata_csum, the default of mke2fs since
2018): crc32c without the final inversion, seeded with the file system's UUID; for an inode, a
directory block or a block of an extent tree also with the inode's number and generation. Contents
of files have none.

>>> hex(crc32c(b"123456789") ^ 0xFFFFFFFF)
'0xe3069283'
>>> SuperBlock.parse(bytes(1024))
Traceback (most recent call last):
    ...
sexton.errors.StoreError: not an ext2, ext3 or ext4 file system
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple

from sexton.errors import StoreError

MAGIC = 0xEF53
SUPER_AT = 1024
SUPER_SIZE = 1024
ROOT_INODE = 2
_EXTENT_MAGIC = 0xF30A
#: An extent longer than this is allocated but not written: it reads as zeros.
_UNWRITTEN = 32768

COMPRESSED, RECOVER, JOURNAL_DEVICE, META_GROUPS = 0x1, 0x4, 0x8, 0x10
SIXTY_FOUR, ENCRYPTED = 0x80, 0x10000
SEED_IN_SUPER = 0x2000
#: A feature that older kernels may ignore when they read.
_CHECKSUMS = 0x400
#: Features that older kernels may read but not write: the older checksums, of group descriptors
#: alone, and directories whose number of links is 1 because there are too many.
GROUP_CHECKSUMS, DIRECTORY_NLINK = 0x10, 0x20
_TYPES_STORED = 0x2
_HAS_ERRORS = 0x2
#: Incompatible features (linux/fs/ext4/ext4.h) that do not affect reading.
_KNOWN = (
    0x2 | RECOVER | META_GROUPS | 0x40 | SIXTY_FOUR | 0x100 | 0x200 | 0x400 | 0x1000 | 0x2000
    | 0x4000 | 0x8000 | ENCRYPTED | 0x20000
)  # fmt: skip

#: Magic of extended attributes in an inode; inline data is "data" in the class "system.".
_ATTRIBUTES, _SYSTEM = 0xEA020000, 7

EXTENTS, INLINE, ENCRYPTED_FILE, INDEXED = 0x80000, 0x10000000, 0x800, 0x1000
#: By the type in a directory record (ext4_dir_entry_2).
DIRECTORY = 2
TYPES = {
    1: stat.S_IFREG, 2: stat.S_IFDIR, 3: stat.S_IFCHR, 4: stat.S_IFBLK, 5: stat.S_IFIFO,
    6: stat.S_IFSOCK, 7: stat.S_IFLNK,
}  # fmt: skip

_POLYNOMIAL = 0x82F63B78
_ALL = 0xFFFFFFFF
_DIRECTORY_TAIL = 12
#: Flag of a group none of whose inodes was ever used.
_UNUSED_INODES = 0x1
_TAIL_MARK = 0xDE
#: Where the superblock has the inodes of journal, user, group and project quota, and orphans.
_HIDDEN_AT = (224, 576, 580, 620, 640)
#: Offsets of checksums: in the superblock, a group descriptor, an inode (low and high half).
_SUPER_SUM_AT, _GROUP_AT, _LOW_AT, _HIGH_AT = 1020, 30, 124, 130


def u16(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<H", raw, at)[0])


def u32(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", raw, at)[0])


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


class Checksums:
    """Checks one file system; `seed` is from its superblock."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def group(self, number: int, raw: bytes) -> bool:
        """Whether a group descriptor is intact."""
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
        stored = u16(raw, _LOW_AT)
        if wide:
            kept[_HIGH_AT : _HIGH_AT + 2] = bytes(2)
            stored |= u16(raw, _HIGH_AT) << 16
        return crc32c(bytes(kept), seed) & (_ALL if wide else 0xFFFF) == stored

    def extents(self, seed: int, raw: bytes) -> bool:
        """Whether an extent tree's block is intact; its checksum follows its last entry slot."""
        at = 12 * (1 + u16(raw, 4))
        return at + 4 <= len(raw) and crc32c(raw[:at], seed) == u32(raw, at)

    def directory(self, seed: int, raw: bytes, indexed: bool, number: int) -> bool:
        """Whether a directory block is intact; `number` is its place in the directory."""
        first = u16(raw, 4)
        if indexed and (number == 0 or first in (len(raw), 0)):
            return self._index(seed, raw, 32 if number == 0 else 8)
        at = len(raw) - _DIRECTORY_TAIL
        inode, length, name_length, mark, stored = struct.unpack_from("<IHBBI", raw, at)
        is_tail = (inode, length, name_length, mark) == (0, _DIRECTORY_TAIL, 0, _TAIL_MARK)
        return is_tail and crc32c(raw[:at], seed) == stored

    def _index(self, seed: int, raw: bytes, at: int) -> bool:
        """A node of a directory's index; at `at` are the limit and the number of its entries."""
        limit, count = struct.unpack_from("<HH", raw, at)
        tail = at + 8 * limit
        if count > limit or tail + 8 > len(raw):
            return False
        crc = crc32c(raw[: at + 8 * count], seed)
        crc = crc32c(raw[tail : tail + 4] + bytes(4), crc)
        return crc == u32(raw, tail + 4)


class SuperBlock(NamedTuple):
    """The fields of the superblock that reading needs."""

    blocks: int
    block_size: int
    inodes: int
    inodes_per_group: int
    inode_size: int
    descriptor_size: int
    features: int
    clean: bool
    has_errors: bool
    checksum_seed: int | None
    #: Features that matter to who writes.
    writing: int
    #: The first inode that is not reserved, and later ones of the file system itself: journal,
    #: quotas, list of orphans.
    first_inode: int
    hidden: frozenset[int]

    @property
    def has_types(self) -> bool:
        """Whether directory records hold the types of files."""
        return bool(self.features & _TYPES_STORED)

    @classmethod
    def parse(cls, raw: bytes) -> SuperBlock:
        if len(raw) < SUPER_SIZE or u16(raw, 56) != MAGIC:
            raise StoreError("not an ext2, ext3 or ext4 file system")
        features = u32(raw, 96)
        shift = u32(raw, 24)
        old = u32(raw, 76) == 0
        seed = None
        if u32(raw, 100) & _CHECKSUMS and not old:
            if crc32c(raw[:_SUPER_SUM_AT]) != u32(raw, _SUPER_SUM_AT):
                raise StoreError("damaged ext4 file system: wrong checksum of the superblock")
            seed = u32(raw, 624) if features & SEED_IN_SUPER else crc32c(raw[104:120])
        wide = bool(features & SIXTY_FOUR)
        found = cls(
            blocks=u32(raw, 4) | (u32(raw, 336) << 32 if wide else 0),
            block_size=1024 << min(shift, 16),
            inodes=u32(raw, 0),
            inodes_per_group=u32(raw, 40),
            inode_size=128 if old else u16(raw, 88),
            descriptor_size=max(u16(raw, 254), 64) if wide else 32,
            features=features,
            clean=not features & RECOVER,
            has_errors=bool(u16(raw, 58) & _HAS_ERRORS),
            checksum_seed=seed,
            writing=0 if old else u32(raw, 100),
            first_inode=11 if old else max(11, min(u32(raw, 84), 64)),
            hidden=frozenset(u32(raw, at) for at in _HIDDEN_AT),
        )
        found.check()
        return found

    def check(self) -> None:
        """Refuse values no file system has, and features that cannot be read."""
        sane = (
            self.block_size <= 65536
            and 128 <= self.inode_size <= self.block_size
            and 0 < self.inodes_per_group <= 8 * self.block_size
            and 32 <= self.descriptor_size <= 1024
            and self.blocks > 0
        )
        if not sane:
            raise StoreError("damaged ext4 file system: invalid superblock")
        unknown = self.features & ~_KNOWN
        if unknown:
            raise StoreError(f"unsupported ext4 feature (incompat {unknown:#x})")
        if self.features & META_GROUPS:
            raise StoreError("unsupported ext4 feature (meta_bg)")


class Inode(NamedTuple):
    """One file: `mode` as in stat(2); `block` has the 60 bytes of block pointers or inline data,
    `tail` the rest of inline data; `seed` is for the checksums of its blocks."""

    number: int
    mode: int
    size: int
    links: int
    flags: int
    block: bytes
    tail: bytes
    seed: int = 0

    @classmethod
    def parse(cls, number: int, raw: bytes, seed: int = 0) -> Inode:
        size = u32(raw, 4) | u32(raw, 108) << 32
        flags = u32(raw, 32)
        tail = _inline_tail(raw) if flags & INLINE else b""
        return cls(number, u16(raw, 0), size, u16(raw, 26), flags, raw[40:100], tail, seed)


class Extent(NamedTuple):
    """`length` blocks of a file from `first` on, at `start` on disk; `start` 0: a hole."""

    first: int
    length: int
    start: int


class Node(NamedTuple):
    """One node of an extent tree: leaves have `extents`, inner nodes `children` (block numbers)."""

    depth: int
    extents: tuple[Extent, ...]
    children: tuple[int, ...]


def _inline_tail(raw: bytes) -> bytes:
    """The extended attribute "system.data" in the inode; empty if there is none."""
    start = 128 + (u16(raw, 128) if len(raw) > 160 else len(raw))
    if start + 4 > len(raw) or u32(raw, start) != _ATTRIBUTES:
        return b""
    first = at = start + 4
    while at + 16 <= len(raw) and u32(raw, at) != 0:
        length, kind, offset = struct.unpack_from("<BBH", raw, at)
        size = u32(raw, at + 8)
        if (kind, raw[at + 16 : at + 16 + length]) == (_SYSTEM, b"data"):
            return raw[first + offset : first + offset + size]
        at += (16 + length + 3) & ~3
    return b""


class Group(NamedTuple):
    """One group: the first block of its inode table, and how many inodes at its end were never
    used (if the file system keeps that)."""

    table: int
    unused: int

    @classmethod
    def parse(cls, raw: bytes) -> Group:
        wide = len(raw) >= 64
        table = u32(raw, 8) | (u32(raw, 40) << 32 if wide else 0)
        unused = u16(raw, 28) | (u16(raw, 50) << 16 if wide else 0)
        return cls(table, 1 << 32 if u16(raw, 18) & _UNUSED_INODES else unused)


def extent_node(raw: bytes) -> Node:
    """A node of an extent tree, from an inode or a block."""
    if len(raw) < 12 or u16(raw, 0) != _EXTENT_MAGIC:
        raise StoreError("damaged ext4 file system: extent tree without magic")
    entries, depth = u16(raw, 2), u16(raw, 6)
    if depth > 5 or 12 * (entries + 1) > len(raw):
        raise StoreError("damaged ext4 file system: invalid extent tree")
    if depth:
        indices = (struct.unpack_from("<IIHH", raw, 12 * (1 + index)) for index in range(entries))
        return Node(depth, (), tuple(low | high << 32 for _, low, high, _ in indices))
    leaves = []
    for index in range(entries):
        first, count, high, low = struct.unpack_from("<IHHI", raw, 12 * (1 + index))
        written = count <= _UNWRITTEN
        start = low | high << 32
        leaves.append(Extent(first, count if written else count - _UNWRITTEN, start * written))
    return Node(0, tuple(leaves), ())


class Entry(NamedTuple):
    """One record of a directory; `kind` is 0 if the file system does not store it."""

    name: str
    inode: int
    kind: int


def directory_entries(raw: bytes) -> Iterator[Entry]:
    """The entries of one directory block.

    Inner blocks of an indexed directory look like one large unused entry, by design. An invalid
    record is damage: the following ones cannot be located.
    """
    at = 0
    while at < len(raw):
        length = _record_length(raw, at)
        if length < 12 or length % 4 or at + length > len(raw):
            raise StoreError("damaged ext4 file system: invalid record in a directory")
        found = _entry(raw, at, at + length)
        if found is None:
            raise StoreError("damaged ext4 file system: invalid name in a directory")
        if found.inode:
            yield found
        at += length


def _record_length(raw: bytes, at: int) -> int:
    length = u16(raw, at + 4) if at + 8 <= len(raw) else 0
    return len(raw) if length in (0, 65535) and len(raw) == 65536 else length


def _entry(raw: bytes, at: int, end: int) -> Entry | None:
    """The record at `at`; `None` if it is invalid. An unused one has the inode 0."""
    inode, _, name_length, kind = struct.unpack_from("<IHBB", raw, at)
    if inode == 0:
        return Entry("", 0, kind)
    name = raw[at + 8 : at + 8 + name_length]
    if not name or at + 8 + name_length > end or b"/" in name or b"\0" in name:
        return None
    return Entry(name.decode("utf-8", "surrogateescape"), inode, kind)


def block_numbers(raw: bytes) -> tuple[int, ...]:
    """The block numbers in an indirect block (ext2 and ext3), or the 15 in an inode."""
    return struct.unpack_from(f"<{len(raw) // 4}I", raw)
