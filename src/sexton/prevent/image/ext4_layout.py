"""Ext2, ext3 and ext4 on disk, as the kernel's Documentation/filesystems/ext4 draws them.

Pure: bytes in, small records out. Every number comes from an image that somebody may have made to
hurt us, so each is checked against the image's size before it is used.

>>> SuperBlock.parse(bytes(1024))
Traceback (most recent call last):
    ...
sexton.errors.StoreError: not an ext2, ext3 or ext4 file system
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from sexton.errors import StoreError

MAGIC = 0xEF53
SUPER_AT = 1024
SUPER_SIZE = 1024
ROOT_INODE = 2
_EXTENT_MAGIC = 0xF30A
#: An extent longer than this is allocated and not written: it reads as zeros.
_UNWRITTEN = 32768

COMPRESSED, RECOVER, JOURNAL_DEVICE, META_GROUPS = 0x1, 0x4, 0x8, 0x10
SIXTY_FOUR, ENCRYPTED = 0x80, 0x10000
#: What we can read past, named in linux/fs/ext4/ext4.h.
_KNOWN = (
    0x2 | RECOVER | META_GROUPS | 0x40 | SIXTY_FOUR | 0x100 | 0x200 | 0x400 | 0x1000 | 0x2000
    | 0x4000 | 0x8000 | ENCRYPTED | 0x20000
)  # fmt: skip

#: Extended attributes in an inode begin so; ours is called "data" in the class "system.".
_ATTRIBUTES, _SYSTEM = 0xEA020000, 7

EXTENTS, INLINE, SCRAMBLED = 0x80000, 0x10000000, 0x800


class SuperBlock(NamedTuple):
    """What a reader needs of it; `groups` is how many block groups there are."""

    blocks: int
    first_block: int
    block_size: int
    inodes: int
    inodes_per_group: int
    inode_size: int
    descriptor_size: int
    features: int
    clean: bool
    label: str

    @classmethod
    def parse(cls, raw: bytes) -> SuperBlock:
        if len(raw) < SUPER_SIZE or _u16(raw, 56) != MAGIC:
            raise StoreError("not an ext2, ext3 or ext4 file system")
        features = _u32(raw, 96)
        shift = _u32(raw, 24)
        old = _u32(raw, 76) == 0
        wide = bool(features & SIXTY_FOUR)
        found = cls(
            blocks=_u32(raw, 4) | (_u32(raw, 336) << 32 if wide else 0),
            first_block=_u32(raw, 20),
            block_size=1024 << min(shift, 16),
            inodes=_u32(raw, 0),
            inodes_per_group=_u32(raw, 40),
            inode_size=128 if old else _u16(raw, 88),
            descriptor_size=max(_u16(raw, 254), 64) if wide else 32,
            features=features,
            clean=not features & RECOVER,
            label=raw[120:136].rstrip(b"\0").decode("utf-8", "surrogateescape"),
        )
        found.check()
        return found

    def check(self) -> None:
        """Refuse what no file system has, and what we would read wrongly."""
        sane = (
            self.block_size <= 65536
            and 128 <= self.inode_size <= self.block_size
            and 0 < self.inodes_per_group <= 8 * self.block_size
            and 32 <= self.descriptor_size <= 1024
            and self.blocks > 0
        )
        if not sane:
            raise StoreError("a damaged ext4 file system: its superblock makes no sense")
        unknown = self.features & ~_KNOWN
        if unknown:
            raise StoreError(f"an ext4 feature that is not read here (incompat {unknown:#x})")
        if self.features & META_GROUPS:
            raise StoreError("an ext4 feature that is not read here (meta_bg)")


class Inode(NamedTuple):
    """One file: `mode` as stat's, `block` the 60 bytes that lead to its contents, or begin them;
    `tail` is the rest of contents that are kept in the inode itself."""

    number: int
    mode: int
    size: int
    links: int
    flags: int
    block: bytes
    tail: bytes

    @classmethod
    def parse(cls, number: int, raw: bytes) -> Inode:
        size = _u32(raw, 4) | _u32(raw, 108) << 32
        flags = _u32(raw, 32)
        tail = _inline_tail(raw) if flags & INLINE else b""
        return cls(number, _u16(raw, 0), size, _u16(raw, 26), flags, raw[40:100], tail)


class Extent(NamedTuple):
    """`length` blocks of a file from `first` on, at `start` on disk; `start` 0: they are zeros."""

    first: int
    length: int
    start: int


class Node(NamedTuple):
    """One node of an extent tree: leaves have `extents`, the others `children` (blocks)."""

    depth: int
    extents: tuple[Extent, ...]
    children: tuple[int, ...]


def _inline_tail(raw: bytes) -> bytes:
    """The extended attribute "system.data" in the inode's own body; empty where there is none."""
    start = 128 + (_u16(raw, 128) if len(raw) > 160 else len(raw))
    if start + 4 > len(raw) or _u32(raw, start) != _ATTRIBUTES:
        return b""
    first = at = start + 4
    while at + 16 <= len(raw) and _u32(raw, at) != 0:
        length, kind, offset = struct.unpack_from("<BBH", raw, at)
        size = _u32(raw, at + 8)
        if (kind, raw[at + 16 : at + 16 + length]) == (_SYSTEM, b"data"):
            return raw[first + offset : first + offset + size]
        at += (16 + length + 3) & ~3
    return b""


def inode_table(raw: bytes) -> int:
    """The first block of a group's inode table, from its descriptor."""
    high = _u32(raw, 40) if len(raw) >= 64 else 0
    return _u32(raw, 8) | high << 32


def extent_node(raw: bytes) -> Node:
    """A node of an extent tree, in an inode or in a block of its own."""
    if len(raw) < 12 or _u16(raw, 0) != _EXTENT_MAGIC:
        raise StoreError("a damaged ext4 file system: an extent tree without its magic")
    entries, depth = _u16(raw, 2), _u16(raw, 6)
    if depth > 5 or 12 * (entries + 1) > len(raw):
        raise StoreError("a damaged ext4 file system: an extent tree that makes no sense")
    if depth:
        indices = (struct.unpack_from("<IIHH", raw, 12 * (1 + each)) for each in range(entries))
        return Node(depth, (), tuple(low | high << 32 for _, low, high, _ in indices))
    leaves = []
    for each in range(entries):
        first, count, high, low = struct.unpack_from("<IHHI", raw, 12 * (1 + each))
        written = count <= _UNWRITTEN
        start = low | high << 32
        leaves.append(Extent(first, count if written else count - _UNWRITTEN, start * written))
    return Node(0, tuple(leaves), ())


def directory_entries(raw: bytes) -> Iterator[tuple[str, int]]:
    """Name and inode of each entry of one directory block.

    An indexed directory's inner blocks look like one large unused entry, on purpose. A record that
    makes no sense ends the block: what follows cannot be found.
    """
    at = 0
    while at + 8 <= len(raw):
        inode, length, name_length = struct.unpack_from("<IHB", raw, at)
        if length == 0 and len(raw) == 65536:
            length = 65536
        if length < 8 or at + length > len(raw) or name_length + 8 > length:
            return
        if inode and name_length:
            name = raw[at + 8 : at + 8 + name_length]
            if b"/" not in name and b"\0" not in name:
                yield name.decode("utf-8", "surrogateescape"), inode
        at += length


def block_numbers(raw: bytes) -> tuple[int, ...]:
    """A block full of block numbers (ext2 and ext3), or the 15 in an inode."""
    return struct.unpack_from(f"<{len(raw) // 4}I", raw)


def _u16(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<H", raw, at)[0])


def _u32(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", raw, at)[0])
