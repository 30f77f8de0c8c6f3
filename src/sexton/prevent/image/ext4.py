"""Reads ext2, ext3 and ext4 without mounting (docs/adr/0017-images-unmounted.md).

The layout is the one in the kernel's Documentation/filesystems/ext4. Nothing is mounted, so a
hostile file system never reaches the kernel's driver, and no C program parses it as root. Every
number comes from an untrusted image and is checked against its size before use. A journal that was
not replayed (the image of a machine that crashed) is not replayed here either.

What is damaged could hide a unit, so it is never read as if it were shorter: metadata is checked
against its checksums where the file system has them, and its structure in any case. What could not
be read is in `Ext4Files.unread`. Without checksums a directory record may have swallowed those that
follow it, which looks like files that were deleted; such a name is damage if its inode is in use
and no other directory holds it.

>>> SuperBlock.parse(bytes(1024))
Traceback (most recent call last):
    ...
sexton.errors.StoreError: not an ext2, ext3 or ext4 file system
"""

from __future__ import annotations

import stat
import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from sexton.errors import SourceAbsent, SourceError, SourceMalformed, StoreError
from sexton.host.reader import DEFAULT_LIMIT, FileStatus
from sexton.model.text import printable
from sexton.prevent.image.ext4_checksums import Checksums, crc32c, super_block_is_whole

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
_TYPES = {
    1: stat.S_IFREG, 2: stat.S_IFDIR, 3: stat.S_IFCHR, 4: stat.S_IFBLK, 5: stat.S_IFIFO,
    6: stat.S_IFSOCK, 7: stat.S_IFLNK,
}  # fmt: skip
_MOST_UNREAD = 20
#: Directories that are searched for the names of inodes; a root file system has some 10,000.
_MOST_SEARCHED = 50_000
#: A directory of 50,000 units has about 2 MB.
MOST_DIRECTORY = 16 << 20
MOST_NAMES = 50_000
#: Nodes of one file's extent tree, or indirect blocks: bounds a loop.
MOST_NODES = 4096
_MOST_LINKS = 40
_MOST_PARTS = 4096
_SHORT_LINK = 60
_MOST_LINK = 4096
#: Directory listings that are cached.
_MOST_KNOWN = 512


class SuperBlock(NamedTuple):
    """The fields of the superblock that reading needs."""

    blocks: int
    first_block: int
    block_size: int
    inodes: int
    inodes_per_group: int
    inode_size: int
    descriptor_size: int
    features: int
    clean: bool
    has_errors: bool
    label: str
    checksum_seed: int | None

    @classmethod
    def parse(cls, raw: bytes) -> SuperBlock:
        if len(raw) < SUPER_SIZE or _u16(raw, 56) != MAGIC:
            raise StoreError("not an ext2, ext3 or ext4 file system")
        features = _u32(raw, 96)
        shift = _u32(raw, 24)
        old = _u32(raw, 76) == 0
        seed = None
        if _u32(raw, 100) & _CHECKSUMS and not old:
            if not super_block_is_whole(raw):
                raise StoreError("damaged ext4 file system: wrong checksum of the superblock")
            seed = _u32(raw, 624) if features & SEED_IN_SUPER else crc32c(raw[104:120])
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
            has_errors=bool(_u16(raw, 58) & _HAS_ERRORS),
            label=raw[120:136].rstrip(b"\0").decode("utf-8", "surrogateescape"),
            checksum_seed=seed,
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
    """One file: `mode` as in stat, `block` the 60 bytes of block pointers, or of inline data;
    `tail` is the rest of inline data; `seed` that of the checksums of its blocks."""

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
        size = _u32(raw, 4) | _u32(raw, 108) << 32
        flags = _u32(raw, 32)
        tail = _inline_tail(raw) if flags & INLINE else b""
        return cls(number, _u16(raw, 0), size, _u16(raw, 26), flags, raw[40:100], tail, seed)


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
    """A node of an extent tree, from an inode or a block."""
    if len(raw) < 12 or _u16(raw, 0) != _EXTENT_MAGIC:
        raise StoreError("damaged ext4 file system: extent tree without magic")
    entries, depth = _u16(raw, 2), _u16(raw, 6)
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
    """One record of a directory; `kind` is 0 where the file system does not keep it."""

    name: str
    inode: int
    kind: int


def directory_entries(raw: bytes) -> tuple[list[Entry], list[Entry]]:
    """The entries of one directory block, and what looks like entries in its unused space.

    Inner blocks of an indexed directory look like one large unused entry, by design. An invalid
    record is damage: the following ones cannot be located.
    """
    live: list[Entry] = []
    unused: list[Entry] = []
    at = 0
    while at < len(raw):
        length = _record_length(raw, at)
        if length < 12 or length % 4 or at + length > len(raw):
            raise StoreError("damaged ext4 file system: invalid record in a directory")
        found = _entry(raw, at, at + length)
        if found is None:
            raise StoreError("damaged ext4 file system: invalid name in a directory")
        if found.inode:
            live.append(found)
        used = at + _least_length(found) if found.inode else at + 8
        unused += _swallowed(raw, used, at + length)
        at += length
    return live, unused


def _record_length(raw: bytes, at: int) -> int:
    length = _u16(raw, at + 4) if at + 8 <= len(raw) else 0
    return len(raw) if length in (0, 65535) and len(raw) == 65536 else length


def _entry(raw: bytes, at: int, end: int) -> Entry | None:
    """The record at `at`; `None` if it is none. An unused one has the inode 0."""
    inode, _, name_length, kind = struct.unpack_from("<IHBB", raw, at)
    if inode == 0:
        return Entry("", 0, kind)
    name = raw[at + 8 : at + 8 + name_length]
    if not name or at + 8 + name_length > end or b"/" in name or b"\0" in name:
        return None
    return Entry(name.decode("utf-8", "surrogateescape"), inode, kind)


def _least_length(entry: Entry) -> int:
    return (8 + len(entry.name.encode("utf-8", "surrogateescape")) + 3) & ~3


def _swallowed(raw: bytes, at: int, end: int) -> Iterator[Entry]:
    while at + 12 <= end:
        length = _record_length(raw, at)
        found = _entry(raw, at, end) if 12 <= length <= end - at and length % 4 == 0 else None
        if found is not None and found.inode and found.kind in _TYPES:
            yield found
            at += _least_length(found)
        else:
            at += 4


def block_numbers(raw: bytes) -> tuple[int, ...]:
    """The block numbers in an indirect block (ext2 and ext3), or the 15 in an inode."""
    return struct.unpack_from(f"<{len(raw) // 4}I", raw)


def _u16(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<H", raw, at)[0])


def _u32(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", raw, at)[0])


class Disk(Protocol):
    """Bytes of an image or of one of its partitions."""

    def at(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes; `StoreError` if the image is shorter."""


class Ext4Files:
    """`Files` of an ext2, ext3 or ext4 file system."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.super = SuperBlock.parse(disk.at(SUPER_AT, SUPER_SIZE))
        seed = self.super.checksum_seed
        self._checksums = None if seed is None else Checksums(seed)
        self._tables: dict[int, int] = {}
        self._listed: dict[int, dict[str, int]] = {}
        #: What is damaged or could not be read, a line each.
        self.unread: list[str] = []
        if not self.super.clean:
            self.unread.append(
                "the file system was not unmounted cleanly, and its journal is not replayed here:"
                " the latest writes may be missing"
            )
        if self.super.has_errors:
            self.unread.append("the file system is marked as having errors (e2fsck -fn IMAGE)")
        root = self._inode(ROOT_INODE)
        if not stat.S_ISDIR(root.mode):
            raise StoreError("damaged ext4 file system: the root is not a directory")

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        inode = self._find(path)
        if not stat.S_ISREG(inode.mode):
            what = "a directory" if stat.S_ISDIR(inode.mode) else "not a regular file"
            raise SourceMalformed(path, 0, what)
        if inode.size > limit:
            raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
        return self._read(path, inode)

    def names(self, path: str) -> list[str]:
        inode = self._find(path)
        if not stat.S_ISDIR(inode.mode):
            raise SourceAbsent(path, "not a directory")
        return [name for name in self._entries(path, inode) if name not in (".", "..")]

    def link(self, path: str) -> str:
        inode = self._find(path, last=False)
        if not stat.S_ISLNK(inode.mode):
            raise SourceMalformed(path, 0, "not a link")
        return self._target(path, inode)

    def status(self, path: str) -> FileStatus:
        inode = self._find(path, last=False)
        return FileStatus(inode.number, inode.links, stat.S_ISDIR(inode.mode))

    def _find(self, path: str, *, last: bool = True) -> Inode:
        """The inode of a path; links are resolved inside this file system."""
        parts = deque(part for part in path.split("/") if part not in ("", "."))
        above = [self._inode(ROOT_INODE)]
        links = steps = 0
        while parts:
            steps += 1
            if steps > _MOST_PARTS:
                raise self._failure(path, "too many levels")
            part = parts.popleft()
            if not stat.S_ISDIR(above[-1].mode):
                raise SourceAbsent(path, "Not a directory")
            if part == "..":
                if len(above) > 1:
                    above.pop()
                continue
            number = self._entries(path, above[-1]).get(part)
            if number is None:
                raise SourceAbsent(path, "No such file or directory")
            inode = self._inode_at(path, number)
            if stat.S_ISLNK(inode.mode) and (parts or last):
                links += 1
                if links > _MOST_LINKS:
                    raise SourceMalformed(path, 0, "Too many levels of symbolic links")
                target = self._target(path, inode)
                if target.startswith("/"):
                    del above[1:]
                parts.extendleft(
                    reversed([word for word in target.split("/") if word not in ("", ".")])
                )
                continue
            above.append(inode)
        return above[-1]

    def _target(self, path: str, inode: Inode) -> str:
        if inode.size > _MOST_LINK:
            raise self._failure(path, "link target too long")
        short = inode.size < _SHORT_LINK and not inode.flags & (EXTENTS | INLINE)
        raw = inode.block[: inode.size] if short else self._read(path, inode)
        return raw.rstrip(b"\0").decode("utf-8", "surrogateescape")

    def _failure(self, path: str, reason: str) -> SourceMalformed:
        """The error for what should be readable and is not."""
        line = f"{path}: {reason}"
        if len(self.unread) < _MOST_UNREAD and line not in self.unread:
            self.unread.append(line)
        return SourceMalformed(path, 0, reason)

    def _entries(self, path: str, inode: Inode) -> dict[str, int]:
        known = self._listed.get(inode.number)
        if known is not None:
            return known
        try:
            found, unused = self._list(inode)
            lost = self._lost(found, unused)
        except StoreError as error:
            raise self._failure(path, str(error)) from None
        if lost:
            raise self._failure(
                path,
                f"damaged ext4 file system: {len(lost):,} names in unused space, of files that no"
                f" directory holds ({printable(lost[0])})",
            )
        if len(self._listed) >= _MOST_KNOWN:
            self._listed.clear()
        self._listed[inode.number] = found
        return found

    def _list(self, inode: Inode) -> tuple[dict[str, int], list[Entry]]:
        """A directory's names, and what looks like names in its unused space."""
        if inode.size > MOST_DIRECTORY:
            raise StoreError(f"directory larger than {MOST_DIRECTORY:,} bytes")
        found: dict[str, int] = {}
        unused: list[Entry] = []
        for piece in self._pieces(inode):
            live, swallowed = directory_entries(piece)
            for name, number, _ in live:
                if number > self.super.inodes:
                    raise StoreError(f"damaged ext4 file system: no inode {number}")
                found.setdefault(name, number)
            unused += swallowed[: MOST_NAMES - len(unused)]
            if len(found) > MOST_NAMES:
                raise StoreError(f"more than {MOST_NAMES:,} names")
        if not inode.flags & INLINE and (found.get(".") != inode.number or ".." not in found):
            raise StoreError("damaged ext4 file system: a directory without . and ..")
        return found, unused

    def _lost(self, found: dict[str, int], unused: list[Entry]) -> list[str]:
        """Names in unused space whose inode is in use, by this type, and in no directory.

        A deleted file leaves its name behind as well (until Linux 5.13), but its inode is free or
        has a new name. With checksums nothing is left to doubt.
        """
        if self._checksums is not None or not unused:
            return []
        here = set(found.values())
        lost = {
            entry.inode: entry.name
            for entry in unused
            if entry.inode not in here and entry.name not in found and self._in_use(entry)
        }
        return [lost[number] for number in sorted(self._without_name(set(lost)))] if lost else []

    def _in_use(self, entry: Entry) -> bool:
        try:
            inode = self._inode(entry.inode)
        except StoreError:
            return False
        return inode.links > 0 and stat.S_IFMT(inode.mode) == _TYPES[entry.kind]

    def _without_name(self, numbers: set[int]) -> set[int]:
        """Those of these inodes that no directory of the file system names."""
        pending, seen = [ROOT_INODE], {ROOT_INODE}
        while pending and numbers:
            directory = self._inode(pending.pop())
            if not stat.S_ISDIR(directory.mode):
                continue
            found, _ = self._list(directory)
            numbers = numbers - set(found.values())
            new = set(found.values()) - seen
            seen |= new
            pending += new
            if len(seen) > _MOST_SEARCHED:
                raise StoreError("its names cannot be told from deleted ones: too many files")
        return numbers

    def _pieces(self, inode: Inode) -> Iterator[bytes]:
        """A directory's blocks. Inline, it has two parts, after the parent's inode number."""
        if inode.flags & INLINE:
            yield from (inode.block[4:], inode.tail)
            return
        raw = self._content(inode)
        step = self.super.block_size
        if len(raw) % step:
            raise StoreError("damaged ext4 file system: invalid size of a directory")
        for number, at in enumerate(range(0, len(raw), step)):
            piece = raw[at : at + step]
            indexed = bool(inode.flags & INDEXED)
            if self._checksums is not None and not self._checksums.directory(
                inode.seed, piece, indexed, number
            ):
                raise StoreError("damaged ext4 file system: wrong checksum of a directory")
            yield piece

    def _inode_at(self, path: str, number: int) -> Inode:
        try:
            return self._inode(number)
        except StoreError as error:
            raise self._failure(path, str(error)) from None

    def _read(self, path: str, inode: Inode) -> bytes:
        try:
            return self._content(inode)
        except StoreError as error:
            raise self._failure(path, str(error)) from None

    def _inode(self, number: int) -> Inode:
        layout = self.super
        if not 0 < number <= layout.inodes:
            raise StoreError(f"damaged ext4 file system: no inode {number}")
        group, index = divmod(number - 1, layout.inodes_per_group)
        place = self._offset(self._table(group)) + index * layout.inode_size
        raw = self._disk.at(place, layout.inode_size)
        if self._checksums is None:
            return Inode.parse(number, raw)
        seed = self._checksums.of_inode(number, _u32(raw, 100))
        if not self._checksums.inode(seed, raw):
            raise StoreError(f"damaged ext4 file system: wrong checksum of inode {number}")
        return Inode.parse(number, raw, seed)

    def _table(self, group: int) -> int:
        """The first block of a group's inode table."""
        known = self._tables.get(group)
        if known is None:
            layout = self.super
            at = (layout.first_block + 1) * layout.block_size + group * layout.descriptor_size
            raw = self._disk.at(at, layout.descriptor_size)
            if self._checksums is not None and not self._checksums.group(group, raw):
                raise StoreError("damaged ext4 file system: wrong checksum of a group descriptor")
            known = self._tables[group] = inode_table(raw)
        return known

    def _offset(self, block: int) -> int:
        if not 0 < block < self.super.blocks:
            raise StoreError(f"damaged ext4 file system: no block {block}")
        return block * self.super.block_size

    def _block(self, number: int) -> bytes:
        return self._disk.at(self._offset(number), self.super.block_size)

    def _content(self, inode: Inode) -> bytes:
        """The contents of a file; the caller has checked its size."""
        if inode.flags & ENCRYPTED_FILE:
            raise StoreError("encrypted file")
        if inode.flags & INLINE:
            kept = inode.block + inode.tail
            if inode.size > len(kept):
                raise StoreError("damaged ext4 file system: inline data is missing")
            return kept[: inode.size]
        size = self.super.block_size
        wanted = -(-inode.size // size)
        content = bytearray(wanted * size)
        mapped = self._extents(inode) if inode.flags & EXTENTS else self._indirect(inode, wanted)
        for first, count, start in mapped:
            if stat.S_ISDIR(inode.mode) and start and first + count > wanted:
                raise StoreError("damaged ext4 file system: a directory has blocks past its end")
            count = min(count, wanted - first)
            if count <= 0 or start == 0:
                continue
            self._offset(start + count - 1)
            content[first * size : (first + count) * size] = self._disk.at(
                self._offset(start), count * size
            )
        return bytes(content[: inode.size])

    def _extents(self, inode: Inode) -> Iterator[Extent]:
        pending = [extent_node(inode.block)]
        visited = 0
        while pending:
            node = pending.pop()
            visited += 1
            if visited > MOST_NODES:
                raise StoreError("damaged ext4 file system: extent tree too large")
            yield from node.extents
            for child in node.children:
                raw = self._block(child)
                if self._checksums is not None and not self._checksums.extents(inode.seed, raw):
                    raise StoreError("damaged ext4 file system: wrong checksum of an extent tree")
                below = extent_node(raw)
                if below.depth >= node.depth:
                    raise StoreError("damaged ext4 file system: loop in an extent tree")
                pending.append(below)

    def _indirect(self, inode: Inode, wanted: int) -> Iterator[Extent]:
        """Twelve direct blocks, then single, double and triple indirect ones."""
        numbers = block_numbers(inode.block)
        for index, number in enumerate(numbers[:12]):
            yield Extent(index, 1, number)
        first, span = 12, 1
        visited = [0]
        for number in numbers[12:15]:
            span *= self.super.block_size // 4
            if first >= wanted:
                return
            yield from self._indirect_block(number, first, span, visited)
            first += span

    def _indirect_block(
        self, block: int, first: int, span: int, visited: list[int]
    ) -> Iterator[Extent]:
        if block == 0:
            return
        visited[0] += 1
        if visited[0] > MOST_NODES:
            raise StoreError("damaged ext4 file system: too many indirect blocks")
        below = span // (self.super.block_size // 4)
        for index, number in enumerate(block_numbers(self._block(block))):
            if below == 1:
                yield Extent(first + index, 1, number)
            else:
                yield from self._indirect_block(number, first + index * below, below, visited)


def is_root(files: Ext4Files) -> bool:
    """Does it look like a root file system, not like /boot or a data disk?"""
    try:
        names = set(files.names("/"))
    except SourceError:
        return False
    return "etc" in names and bool(names & {"usr", "lib", "sbin", "bin"})
