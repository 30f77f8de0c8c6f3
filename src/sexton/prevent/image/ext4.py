"""Reads ext2, ext3 and ext4 without mounting (docs/adr/0017-images-unmounted.md).

So a hostile file system never reaches the kernel's driver, and no C program parses it as root.
Every number comes from an untrusted image and is checked against its size before use. The journal
of a machine that crashed is not replayed.

Damage could hide a unit, so damaged metadata is never read as if it were shorter: checksums are
checked if the file system has them, and the structure in any case. Without checksums, `check` walks
the whole tree once (`ext4_names`). What could not be read is in `Ext4Files.unread`.
"""

from __future__ import annotations

import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sexton.errors import SourceAbsent, SourceError, SourceMalformed, StoreError
from sexton.host.reader import DEFAULT_LIMIT, FileStatus
from sexton.prevent.image.ext4_layout import (
    DIRECTORY,
    ENCRYPTED_FILE,
    EXTENTS,
    INDEXED,
    INLINE,
    ROOT_INODE,
    SUPER_AT,
    SUPER_SIZE,
    Checksums,
    Entry,
    Extent,
    Group,
    Inode,
    SuperBlock,
    block_numbers,
    directory_entries,
    extent_node,
    u32,
)

_MOST_UNREAD = 20
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
#: Inodes that are cached: every path leads through a few of the same.
_MOST_INODES = 4096


#: Said of an image that passed `check` without checksums.
_NO_CHECKSUMS = (
    "the file system has no checksums of its metadata (metadata_csum): its structure is consistent,"
    " but a changed letter of a name would not be noticed"
)


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
        self._groups: dict[int, Group] = {}
        self._inodes: dict[int, Inode] = {}
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
        root = self.inode(ROOT_INODE)
        if not stat.S_ISDIR(root.mode):
            raise StoreError("damaged ext4 file system: the root is not a directory")

    def check(self) -> tuple[str, ...]:
        """Look for names that damage hides, where there are no checksums that would show it. Notes
        about what cannot be known; what was found is in `unread`."""
        if self._checksums is not None:
            return ()
        from sexton.prevent.image.ext4_names import check_names  # imports numpy

        try:
            check_names(self)
        except StoreError as error:
            self._note(str(error))
            return ()
        return (_NO_CHECKSUMS,)

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        inode = self._find(path)
        if not stat.S_ISREG(inode.mode):
            what = "a directory" if stat.S_ISDIR(inode.mode) else "not a regular file"
            raise SourceMalformed(path, 0, what)
        if inode.size > limit:
            raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
        with self._reporting(path):
            return self._content(inode)

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
        above = [self.inode(ROOT_INODE)]
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
            with self._reporting(path):
                inode = self.inode(number)
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
        with self._reporting(path):
            raw = inode.block[: inode.size] if short else self._content(inode)
        return raw.rstrip(b"\0").decode("utf-8", "surrogateescape")

    @contextmanager
    def _reporting(self, path: str) -> Iterator[None]:
        """Turn damage found while reading `path` into a source's error."""
        try:
            yield
        except StoreError as error:
            raise self._failure(path, str(error)) from None

    def _failure(self, path: str, reason: str) -> SourceMalformed:
        """The error for a path that should be readable, also noted in `unread`."""
        self._note(f"{path}: {reason}")
        return SourceMalformed(path, 0, reason)

    def _note(self, line: str) -> None:
        if len(self.unread) < _MOST_UNREAD and line not in self.unread:
            self.unread.append(line)

    def _entries(self, path: str, inode: Inode) -> dict[str, int]:
        known = self._listed.get(inode.number)
        if known is not None:
            return known
        with self._reporting(path):
            listed = self._list(inode)
        if len(self._listed) >= _MOST_KNOWN:
            self._listed.clear()
        self._listed[inode.number] = listed
        return listed

    def _list(self, inode: Inode) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, number, _ in self.entries(inode):
            if number > self.super.inodes:
                raise StoreError(f"damaged ext4 file system: no inode {number}")
            found.setdefault(name, number)
            if len(found) > MOST_NAMES:
                raise StoreError(f"more than {MOST_NAMES:,} names")
        if found.get(".") != inode.number or ".." not in found:
            raise StoreError("damaged ext4 file system: a directory without . and ..")
        return found

    def entries(self, directory: Inode) -> Iterator[Entry]:
        """Every entry of a directory, with `.` and `..`."""
        if directory.size > MOST_DIRECTORY:
            raise StoreError(f"directory larger than {MOST_DIRECTORY:,} bytes")
        if directory.flags & INLINE:
            yield Entry(".", directory.number, DIRECTORY)
            yield Entry("..", u32(directory.block, 0), DIRECTORY)
        for piece in self._pieces(directory):
            yield from directory_entries(piece)

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

    def inode(self, number: int) -> Inode:
        known = self._inodes.get(number)
        if known is None:
            if len(self._inodes) >= _MOST_INODES:
                self._inodes.clear()
            known = self._inodes[number] = self._read_inode(number)
        return known

    def _read_inode(self, number: int) -> Inode:
        layout = self.super
        if not 0 < number <= layout.inodes:
            raise StoreError(f"damaged ext4 file system: no inode {number}")
        group, index = divmod(number - 1, layout.inodes_per_group)
        raw = self.blocks(self.group(group).table, index * layout.inode_size, layout.inode_size)
        if self._checksums is None:
            return Inode.parse(number, raw)
        seed = self._checksums.of_inode(number, u32(raw, 100))
        if not self._checksums.inode(seed, raw):
            raise StoreError(f"damaged ext4 file system: wrong checksum of inode {number}")
        return Inode.parse(number, raw, seed)

    def group(self, number: int) -> Group:
        """The descriptor of a group of inodes."""
        known = self._groups.get(number)
        if known is None:
            layout = self.super
            # In the block after the superblock's; s_first_data_block is 0 with bigalloc.
            first = SUPER_AT // layout.block_size + 1
            at = first * layout.block_size + number * layout.descriptor_size
            raw = self._disk.at(at, layout.descriptor_size)
            if self._checksums is not None and not self._checksums.group(number, raw):
                raise StoreError("damaged ext4 file system: wrong checksum of a group descriptor")
            known = self._groups[number] = Group.parse(raw)
        return known

    def blocks(self, block: int, offset: int, size: int) -> bytes:
        """`size` bytes, `offset` after the start of a block."""
        return self._disk.at(self._offset(block) + offset, size)

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
        for first, count, start in self._mapped(inode, wanted):
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

    def _mapped(self, inode: Inode, wanted: int) -> Iterator[Extent]:
        """Where its first `wanted` blocks are."""
        return self._extents(inode) if inode.flags & EXTENTS else self._indirect(inode, wanted)

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
    """Whether it looks like a root file system, not like /boot or a data disk."""
    try:
        names = set(files.names("/"))
    except SourceError:
        return False
    return "etc" in names and bool(names & {"usr", "lib", "sbin", "bin"})
