r"""Finds the root file system in a raw disk image or a block device.

Partition tables are GPT (UEFI specification, chapter 5) and MBR; a file system on the bare disk
needs neither. Other formats are recognised and refused, with the command that converts them.

>>> unsupported_format(b"QFI\xfb" + bytes(4092)).name
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
_MOUNT = "mount it read-only and use the directory, or make a tar: virt-tar-out -a IMAGE / OUT.tar"


class UnsupportedFormat(NamedTuple):
    """A format that is recognised by its magic but not read, and how to convert it."""

    offset: int
    magic: bytes
    name: str
    advice: str = _MOUNT


_UNSUPPORTED = (
    UnsupportedFormat(0, b"QFI\xfb", "a qcow2 disk", _CONVERT),
    UnsupportedFormat(0, b"QED\0", "a QED disk", _CONVERT),
    UnsupportedFormat(0, b"KDMV", "a VMware disk", _CONVERT),
    UnsupportedFormat(0, b"# Disk DescriptorFile", "a VMware disk descriptor", _CONVERT),
    UnsupportedFormat(0, b"vhdxfile", "a VHDX disk", _CONVERT),
    UnsupportedFormat(0, b"conectix", "a VHD disk", _CONVERT),
    UnsupportedFormat(0, b"WithoutFreeSpace", "a Parallels disk", _CONVERT),
    UnsupportedFormat(0, b"WithouFreSpacExt", "a Parallels disk", _CONVERT),
    UnsupportedFormat(64, b"\x7f\x10\xda\xbe", "a VirtualBox disk", _CONVERT),
    UnsupportedFormat(0, b"\x3a\xff\x26\xed", "an Android sparse image", "simg2img IN OUT"),
    UnsupportedFormat(0, b"XFSB", "an XFS file system"),
    UnsupportedFormat(0, b"hsqs", "a squashfs file system", "unsquashfs -d DIR IMAGE, and use DIR"),
    UnsupportedFormat(0, b"LUKS\xba\xbe", "an encrypted (LUKS) volume",
                      "open it (cryptsetup open --readonly IMAGE NAME) and use /dev/mapper/NAME"),
    UnsupportedFormat(512, b"LABELONE", "an LVM volume"),
    UnsupportedFormat(0x10040, b"_BHRfS_M", "a btrfs file system"),
    UnsupportedFormat(32769, b"CD001", "a CD image"),
    UnsupportedFormat(1024, b"\x10\x20\xf5\xf2", "an f2fs file system"),
    UnsupportedFormat(1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    *(
        UnsupportedFormat(0, magic, "a cpio archive", "cpio -idm -D DIR < IMAGE, and use DIR")
        for magic in (b"070701", b"070702", b"070707", b"\xc7\x71", b"\x71\xc7")
    ),
)  # fmt: skip


class Part(NamedTuple):
    """A partition and its offset in bytes."""

    start: int
    name: str


class Slice:
    """An opened image from `start` on, as `Ext4Files` reads it."""

    def __init__(self, descriptor: int, start: int = 0) -> None:
        self._descriptor = descriptor
        self._start = start

    def at(self, offset: int, size: int) -> bytes:
        raw = _piece(self._descriptor, size, self._start + offset)
        if len(raw) != size:
            raise StoreError("the image is truncated: its file system is larger")
        return raw


def _piece(descriptor: int, size: int, offset: int) -> bytes:
    """Bytes of an image, fewer where it ends."""
    try:
        return os.pread(descriptor, size, offset)
    except (OSError, OverflowError) as error:
        raise StoreError(f"cannot read the image: {error}") from None


class Root(NamedTuple):
    """The root file system of an image, and the partition it is on."""

    files: Ext4Files
    place: str
    notes: tuple[str, ...]


def find_root(descriptor: int) -> Root:
    """The root file system of an opened image; one before it that is damaged might be it."""
    head = _piece(descriptor, _HEAD, 0)
    seen: list[str] = []
    for part in (Part(0, "the whole image"), *partitions(descriptor)):
        start = _piece(descriptor, _HEAD, part.start)
        if _is_ext(start):
            files = Ext4Files(Slice(descriptor, part.start))
            notes = files.check()
            if is_root(files):
                return Root(files, part.name, notes)
            if files.unread:
                raise StoreError(f"{part.name}: {files.unread[0]}")
            seen.append(f"{part.name}: an ext file system, but not a root (no /etc)")
        elif part.start and (other := unsupported_format(start)) is not None:
            seen.append(f"{part.name}: {other.name}")
    raise StoreError(_advice(head, seen))


def unsupported_format(start: bytes) -> UnsupportedFormat | None:
    """The format of an image that is recognised but not supported."""
    return next(
        (known for known in _UNSUPPORTED if start.startswith(known.magic, known.offset)), None
    )


def partitions(descriptor: int) -> Iterator[Part]:
    """Every partition in table order; none if there is no table."""
    for sector in (512, 4096):
        header = _piece(descriptor, 512, sector)
        if header[:8] == b"EFI PART":
            if len(header) < 512:
                raise StoreError("the image ends inside its partition table")
            yield from _gpt(descriptor, header, sector)
            return
    table = _piece(descriptor, 512, 0)
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
        raw = _piece(descriptor, size, table * sector + number * size)
        if len(raw) < size:
            return
        start = struct.unpack_from("<Q", raw, 32)[0]
        if any(raw[:16]) and 0 < start < 1 << 48:
            yield Part(start * sector, f"partition {number + 1}")


def _is_ext(start: bytes) -> bool:
    return len(start) >= 2048 and struct.unpack_from("<H", start, 1024 + 56)[0] == MAGIC


def _advice(head: bytes, seen: list[str]) -> str:
    other = unsupported_format(head)
    if other is not None:
        return f"{other.name}, which is not supported: {other.advice}"
    if seen:
        return f"no ext2/3/4 root file system found ({'; '.join(dict.fromkeys(seen))}); {_MOUNT}"
    return "not a directory, a tar or a raw disk image with an ext2/3/4 root"
