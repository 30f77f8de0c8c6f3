"""A root file system on ext2, ext3 or ext4, read by ourselves (docs/adr/0017-images-unmounted.md).

Nothing is mounted, so a hostile file system never meets the kernel's driver, and no C program
parses it as root either. The price: a journal that was not played back (an image of a machine that
did not shut down) is not played back here either, which is said.
"""

from __future__ import annotations

import stat
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from sexton.errors import SourceAbsent, SourceError, SourceMalformed, StoreError
from sexton.host.reader import DEFAULT_LIMIT, FileStatus
from sexton.prevent.image.ext4_layout import (
    EXTENTS,
    INLINE,
    ROOT_INODE,
    SCRAMBLED,
    SUPER_AT,
    SUPER_SIZE,
    Extent,
    Inode,
    SuperBlock,
    block_numbers,
    directory_entries,
    extent_node,
    inode_table,
)

#: A directory of 50,000 units has about 2 MB.
MOST_DIRECTORY = 16 << 20
MOST_NAMES = 50_000
#: Nodes of one file's extent tree, or blocks of numbers: a loop in them must end.
MOST_NODES = 4096
_MOST_LINKS = 40
_MOST_PARTS = 4096
_SHORT_LINK = 60
_MOST_LINK = 4096
#: Inodes remembered by directory, so that a path's head is not looked up again and again.
_MOST_KNOWN = 512


class Disk(Protocol):
    """Bytes of an image or of one of its partitions."""

    def at(self, offset: int, size: int) -> bytes:
        """Exactly so many bytes; `StoreError` where the image is shorter."""


class Ext4Files:
    """`Files` of an ext2, ext3 or ext4 file system."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.super = SuperBlock.parse(disk.at(SUPER_AT, SUPER_SIZE))
        self._listed: dict[int, dict[str, int]] = {}
        root = self._inode(ROOT_INODE)
        if not stat.S_ISDIR(root.mode):
            raise StoreError("a damaged ext4 file system: its root is no directory")

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        inode = self._find(path)
        if not stat.S_ISREG(inode.mode):
            what = "a directory" if stat.S_ISDIR(inode.mode) else "not a regular file"
            raise SourceMalformed(path, 0, what)
        if inode.size > limit:
            raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
        return self._guarded(path, inode)

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
        """The inode of a path, through links that never lead out of this file system."""
        parts = deque(part for part in path.split("/") if part not in ("", "."))
        above = [self._inode(ROOT_INODE)]
        links = steps = 0
        while parts:
            steps += 1
            if steps > _MOST_PARTS:
                raise SourceMalformed(path, 0, "too many levels")
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
            inode = self._guarded_inode(path, number)
            if stat.S_ISLNK(inode.mode) and (parts or last):
                links += 1
                if links > _MOST_LINKS:
                    raise SourceMalformed(path, 0, "Too many levels of symbolic links")
                target = self._target(path, inode)
                if target.startswith("/"):
                    del above[1:]
                parts.extendleft(
                    reversed([each for each in target.split("/") if each not in ("", ".")])
                )
                continue
            above.append(inode)
        return above[-1]

    def _target(self, path: str, inode: Inode) -> str:
        if inode.size > _MOST_LINK:
            raise SourceMalformed(path, 0, "a link that is too long")
        short = inode.size < _SHORT_LINK and not inode.flags & (EXTENTS | INLINE)
        raw = inode.block[: inode.size] if short else self._guarded(path, inode)
        return raw.rstrip(b"\0").decode("utf-8", "surrogateescape")

    def _entries(self, path: str, inode: Inode) -> dict[str, int]:
        known = self._listed.get(inode.number)
        if known is not None:
            return known
        if inode.size > MOST_DIRECTORY:
            raise SourceMalformed(path, 0, f"a directory of more than {MOST_DIRECTORY:,} bytes")
        found: dict[str, int] = {}
        for piece in self._pieces(path, inode):
            for name, number in directory_entries(piece):
                found.setdefault(name, number)
            if len(found) > MOST_NAMES:
                raise SourceMalformed(path, 0, f"more than {MOST_NAMES:,} names")
        if len(self._listed) >= _MOST_KNOWN:
            self._listed.clear()
        self._listed[inode.number] = found
        return found

    def _pieces(self, path: str, inode: Inode) -> Iterator[bytes]:
        """A directory's blocks. One kept in its inode has two parts, after its parent's number."""
        if inode.flags & INLINE:
            yield from (inode.block[4:], inode.tail)
            return
        raw = self._guarded(path, inode)
        step = self.super.block_size
        yield from (raw[at : at + step] for at in range(0, len(raw), step))

    def _guarded_inode(self, path: str, number: int) -> Inode:
        try:
            return self._inode(number)
        except StoreError as error:
            raise SourceMalformed(path, 0, str(error)) from None

    def _guarded(self, path: str, inode: Inode) -> bytes:
        try:
            return self._content(inode)
        except StoreError as error:
            raise SourceMalformed(path, 0, str(error)) from None

    def _inode(self, number: int) -> Inode:
        layout = self.super
        if not 0 < number <= layout.inodes:
            raise StoreError(f"a damaged ext4 file system: no inode {number}")
        group, index = divmod(number - 1, layout.inodes_per_group)
        at = (layout.first_block + 1) * layout.block_size + group * layout.descriptor_size
        table = inode_table(self._disk.at(at, layout.descriptor_size))
        place = self._offset(table) + index * layout.inode_size
        return Inode.parse(number, self._disk.at(place, layout.inode_size))

    def _offset(self, block: int) -> int:
        if not 0 < block < self.super.blocks:
            raise StoreError(f"a damaged ext4 file system: no block {block}")
        return block * self.super.block_size

    def _block(self, number: int) -> bytes:
        return self._disk.at(self._offset(number), self.super.block_size)

    def _content(self, inode: Inode) -> bytes:
        """All bytes of a file whose size was found bearable."""
        if inode.flags & SCRAMBLED:
            raise StoreError("encrypted")
        if inode.flags & INLINE:
            kept = inode.block + inode.tail
            if inode.size > len(kept):
                raise StoreError("a damaged ext4 file system: an inode without its contents")
            return kept[: inode.size]
        size = self.super.block_size
        wanted = -(-inode.size // size)
        content = bytearray(wanted * size)
        mapped = self._extents(inode) if inode.flags & EXTENTS else self._indirect(inode, wanted)
        for first, count, start in mapped:
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
                raise StoreError("a damaged ext4 file system: an extent tree without end")
            yield from node.extents
            for child in node.children:
                below = extent_node(self._block(child))
                if below.depth >= node.depth:
                    raise StoreError("a damaged ext4 file system: an extent tree in a loop")
                pending.append(below)

    def _indirect(self, inode: Inode, wanted: int) -> Iterator[Extent]:
        """Twelve direct blocks, then blocks of numbers one, two and three levels deep."""
        numbers = block_numbers(inode.block)
        for index, number in enumerate(numbers[:12]):
            yield Extent(index, 1, number)
        first, span = 12, 1
        visited = [0]
        for number in numbers[12:15]:
            span *= self.super.block_size // 4
            if first >= wanted:
                return
            yield from self._numbers(number, first, span, visited)
            first += span

    def _numbers(self, block: int, first: int, span: int, visited: list[int]) -> Iterator[Extent]:
        if block == 0:
            return
        visited[0] += 1
        if visited[0] > MOST_NODES:
            raise StoreError("a damaged ext4 file system: too many blocks of block numbers")
        below = span // (self.super.block_size // 4)
        for index, number in enumerate(block_numbers(self._block(block))):
            if below == 1:
                yield Extent(first + index, 1, number)
            else:
                yield from self._numbers(number, first + index * below, below, visited)


def is_root(files: Ext4Files) -> bool:
    """Does it look like a machine's root, and not like its /boot or a data disk?"""
    try:
        names = set(files.names("/"))
    except SourceError:
        return False
    return "etc" in names and bool(names & {"usr", "lib", "sbin", "bin"})
