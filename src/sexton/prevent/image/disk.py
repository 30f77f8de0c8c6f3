r"""A disk image or a block device: where its partitions are, and which one is a root.

Raw only. The partition tables are GPT (UEFI specification, chapter 5) and the PC's old one; a file
system on the bare disk needs neither. What we cannot read is named, with the command that turns it
into something we can.

>>> what_it_is(b"QFI\xfb" + bytes(4092)).name
'a qcow2 disk'
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from sexton.errors import StoreError
from sexton.prevent.image.ext4 import Ext4Files, is_root
from sexton.prevent.image.ext4_layout import MAGIC

_MOST_PARTITIONS = 256
_HEAD = 128 << 10
_CONVERT = "qemu-img convert -O raw IN OUT"
_MOUNT = "mount it read-only and give the directory, or make a tar: virt-tar-out -a IMAGE / OUT.tar"


class Stranger(NamedTuple):
    """A format that is known and not read here: where its mark stands, and what to do with it."""

    offset: int
    magic: bytes
    name: str
    way: str = _MOUNT


_STRANGERS = (
    Stranger(0, b"QFI\xfb", "a qcow2 disk", _CONVERT),
    Stranger(0, b"QED\0", "a QED disk", _CONVERT),
    Stranger(0, b"KDMV", "a VMware disk", _CONVERT),
    Stranger(0, b"# Disk DescriptorFile", "a VMware disk's description", _CONVERT),
    Stranger(0, b"vhdxfile", "a VHDX disk", _CONVERT),
    Stranger(0, b"conectix", "a VHD disk", _CONVERT),
    Stranger(0, b"WithoutFreeSpace", "a Parallels disk", _CONVERT),
    Stranger(0, b"WithouFreSpacExt", "a Parallels disk", _CONVERT),
    Stranger(64, b"\x7f\x10\xda\xbe", "a VirtualBox disk", _CONVERT),
    Stranger(0, b"\x3a\xff\x26\xed", "an Android sparse image", "simg2img IN OUT"),
    Stranger(0, b"XFSB", "an XFS file system"),
    Stranger(0, b"hsqs", "a squashfs file system", "unsquashfs -d DIR IMAGE, and give DIR"),
    Stranger(0, b"LUKS\xba\xbe", "an encrypted (LUKS) volume", "open it (cryptsetup open --readonly"
             " IMAGE NAME) and give /dev/mapper/NAME"),
    Stranger(512, b"LABELONE", "an LVM volume"),
    Stranger(0x10040, b"_BHRfS_M", "a btrfs file system"),
    Stranger(32769, b"CD001", "a CD image"),
    Stranger(1024, b"\x10\x20\xf5\xf2", "an f2fs file system"),
    Stranger(1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    *(
        Stranger(0, magic, "a cpio archive", "cpio -idm -D DIR < IMAGE, and give DIR")
        for magic in (b"070701", b"070702", b"070707", b"\xc7\x71", b"\x71\xc7")
    ),
)  # fmt: skip


class Part(NamedTuple):
    """Where a file system may begin, in bytes."""

    start: int
    name: str


class Slice:
    """Part of an opened image, for `Ext4Files`."""

    def __init__(self, descriptor: int, start: int = 0) -> None:
        self._descriptor = descriptor
        self._start = start

    def at(self, offset: int, size: int) -> bytes:
        try:
            raw = os.pread(self._descriptor, size, self._start + offset)
        except (OSError, OverflowError) as error:
            raise StoreError(f"the image cannot be read: {error}") from None
        if len(raw) != size:
            raise StoreError("the image is shorter than its file system says")
        return raw


def find_root(descriptor: int) -> tuple[Ext4Files, str]:
    """The root file system of an opened image, and which partition it was on."""
    head = os.pread(descriptor, _HEAD, 0)
    seen: list[str] = []
    for part in (Part(0, "the whole image"), *partitions(descriptor)):
        start = os.pread(descriptor, _HEAD, part.start)
        if _is_ext(start):
            files = Ext4Files(Slice(descriptor, part.start))
            if is_root(files):
                return files, part.name
            seen.append(f"{part.name} is no root (an ext file system without /etc)")
        elif part.start and (stranger := what_it_is(start)) is not None:
            seen.append(f"{part.name} is {stranger.name}")
    raise StoreError(_advice(head, seen))


def what_it_is(start: bytes) -> Stranger | None:
    """A format that is known and not read here."""
    for each in _STRANGERS:
        if start[each.offset : each.offset + len(each.magic)] == each.magic:
            return each
    return None


def partitions(descriptor: int) -> Iterator[Part]:
    """Every partition, in the table's order; none where there is no table."""
    for sector in (512, 4096):
        header = os.pread(descriptor, 512, sector)
        if header[:8] == b"EFI PART":
            yield from _gpt(descriptor, header, sector)
            return
    table = os.pread(descriptor, 512, 0)
    if table[510:512] != b"\x55\xaa":
        return
    for number in range(4):
        kind, start = struct.unpack_from("<4xB3xI", table, 446 + 16 * number)
        if kind and start:
            yield Part(start * 512, f"partition {number + 1}")


def _gpt(descriptor: int, header: bytes, sector: int) -> Iterator[Part]:
    table, count, size = struct.unpack_from("<QII", header, 72)
    if not 128 <= size <= 4096 or table >= 1 << 48:
        return
    for number in range(min(count, _MOST_PARTITIONS)):
        raw = os.pread(descriptor, size, table * sector + number * size)
        if len(raw) < size:
            return
        start = struct.unpack_from("<Q", raw, 32)[0]
        if any(raw[:16]) and 0 < start < 1 << 48:
            yield Part(start * sector, f"partition {number + 1}")


def _is_ext(start: bytes) -> bool:
    return len(start) >= 2048 and struct.unpack_from("<H", start, 1024 + 56)[0] == MAGIC


def _advice(head: bytes, seen: list[str]) -> str:
    stranger = what_it_is(head)
    if stranger is not None:
        return f"{stranger.name}, which is not read here: {stranger.way}"
    if seen:
        told = "; ".join(dict.fromkeys(seen))
        return f"no ext2/3/4 root file system in it ({told}); {_MOUNT}"
    return "neither a directory, nor a tar, nor a raw disk image with an ext2/3/4 root"
