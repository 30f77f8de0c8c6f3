"""Whether the names of a file system without checksums are whole: what `e2fsck -fn` does in its
passes 2 to 4.

A few changed bytes in a directory can hide everything below it: an entry with the inode 0, or with
that of an empty directory. With checksums (metadata_csum) that is noticed as it is read. Without
them only the whole tree shows it: every inode that is in use has as many names as it counts links,
of its own type, and every directory has one place.
"""

from __future__ import annotations

import stat
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sexton.errors import StoreError
from sexton.model.text import printable
from sexton.prevent.image.ext4_layout import (
    DIRECTORY_NLINK,
    GROUP_CHECKSUMS,
    ROOT_INODE,
    TYPES,
    Entry,
    Group,
    Inode,
    SuperBlock,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A file system of 256 GB has as many.
_MOST_INODES = 16 << 20
#: Inodes that hold an extended attribute (EXT4_EA_INODE_FL) have no name.
_ATTRIBUTE = 0x200000
_PIECE = 4 << 20
_LONGEST_PATH = 4096
_DAMAGED = "damaged ext4 file system"
_CHECK = "check it with e2fsck -fn IMAGE"


class FileSystem(Protocol):
    """What is read of the file system."""

    super: SuperBlock

    def inode(self, number: int) -> Inode:
        """An inode by its number."""

    def group(self, number: int) -> Group:
        """A group of inodes."""

    def blocks(self, block: int, offset: int, size: int) -> bytes:
        """Bytes from a block on."""

    def entries(self, directory: Inode) -> Iterator[Entry]:
        """The entries of a directory, with `.` and `..`."""


def check_names(system: FileSystem) -> None:
    """`StoreError` where a name was lost, added or changed to another inode."""
    inodes = _inodes(system)
    kinds = array("H", (inodes["mode"] & 0xF000).tobytes())
    names = array("I", bytes(4 * len(kinds)))
    typed = system.super.has_types
    pending, seen = [(ROOT_INODE, ROOT_INODE, "/")], {ROOT_INODE}
    while pending:
        number, parent, path = pending.pop()
        for name, inode, kind in _with_dots(system, number, parent, path):
            if not 0 < inode < len(kinds):
                raise StoreError(f"{_DAMAGED}: no inode {inode}")
            names[inode] += 1
            if typed and TYPES.get(kind) != kinds[inode]:
                raise StoreError(
                    f"{_DAMAGED}: {printable(path + name)} does not have the type that its"
                    f" directory says; {_CHECK}"
                )
            if kinds[inode] != stat.S_IFDIR or name in (".", ".."):
                continue
            if inode in seen:
                raise StoreError(
                    f"{_DAMAGED}: {printable(path + name)} is a directory that has another place"
                    f" as well; {_CHECK}"
                )
            seen.add(inode)
            pending.append((inode, number, f"{path}{name}/"[-_LONGEST_PATH:]))
    wrong = _miscounted(system.super, inodes, np.frombuffer(names, np.uint32))
    if len(wrong):
        raise StoreError(
            f"{_DAMAGED}: {len(wrong):,} files have more or fewer names than links (the first is"
            f" inode {wrong[0]}); {_CHECK}"
        )


def _with_dots(system: FileSystem, number: int, parent: int, path: str) -> Iterator[Entry]:
    """The entries of a directory whose `.` and `..` are what they must be."""
    dots = {".": number, "..": parent}
    for entry in system.entries(system.inode(number)):
        if entry.name in dots and dots.pop(entry.name) != entry.inode:
            raise StoreError(
                f"{_DAMAGED}: {printable(path)} is another directory (its {entry.name} is inode"
                f" {entry.inode}); {_CHECK}"
            )
        yield entry
    if dots:
        raise StoreError(f"{_DAMAGED}: {printable(path)} is a directory without . and ..")


def _inodes(system: FileSystem) -> NDArray[Any]:
    """Mode, links and flags of every inode by its number; zeros for those never used."""
    layout = system.super
    if layout.inodes > _MOST_INODES:
        raise StoreError(f"more than {_MOST_INODES:,} inodes and no checksums; {_CHECK}")
    fields = ["mode", "links", "flags"]
    found = np.zeros(layout.inodes + 1, np.dtype([*zip(fields, ("u2", "u2", "u4"), strict=True)]))
    row = np.dtype(
        {
            "names": fields,
            "formats": ["<u2", "<u2", "<u4"],
            "offsets": [0, 26, 32],
            "itemsize": layout.inode_size,
        }
    )
    step = _PIECE // layout.inode_size
    for first in range(0, layout.inodes, layout.inodes_per_group):
        group = system.group(first // layout.inodes_per_group)
        used = min(layout.inodes_per_group, layout.inodes - first)
        if layout.writing & GROUP_CHECKSUMS:  # the rest of such a table was never written
            used = min(used, max(0, layout.inodes_per_group - group.unused))
        for at in range(0, used, step):
            count = min(step, used - at)
            raw = system.blocks(group.table, at * layout.inode_size, count * layout.inode_size)
            found[first + at + 1 : first + at + 1 + count] = np.frombuffer(raw, row)
    return found


def _miscounted(layout: SuperBlock, inodes: NDArray[Any], names: NDArray[Any]) -> NDArray[Any]:
    """The inodes with more or fewer names than links, without those that have none by design."""
    wrong = inodes["links"] != names
    wrong &= (inodes["flags"] & _ATTRIBUTE == 0) | (names > 0)
    if layout.writing & DIRECTORY_NLINK:  # more subdirectories than can be counted
        wrong &= ((inodes["mode"] & 0xF000) != stat.S_IFDIR) | (inodes["links"] != 1)
    hidden = [*range(layout.first_inode), *layout.hidden]
    hidden = [number for number in hidden if number != ROOT_INODE and number < len(names)]
    wrong[hidden] = names[hidden] > 0
    return np.flatnonzero(wrong)
