"""Fuzz target: the beginning of a disk image: partition tables, and formats that are refused."""

from __future__ import annotations

import os
import struct

from sexton.prevent.image.disk import find_root


def one(data: bytes) -> None:
    held = os.memfd_create("fuzzed")
    try:
        os.write(held, data)
        find_root(held)
    finally:
        os.close(held)


def seeds() -> list[bytes]:
    """MBR, GPT with sectors of 512 and of 4,096 bytes, and a bare superblock."""
    mbr = bytes(446) + struct.pack("<4xB3xII", 0x83, 8, 100) + bytes(48) + b"\x55\xaa"
    made = [mbr + bytes(8192)]
    for sector in (512, 4096):
        entry = b"\x01" * 32 + struct.pack("<QQ", 3, 9) + bytes(80)
        header = b"EFI PART" + bytes(64) + struct.pack("<QII", 2, 4, 128)
        made.append(bytes(sector) + header.ljust(sector, b"\0") + entry * 4 + bytes(4096))
    return [*made, bytes(1024 + 56) + b"\x53\xef" + bytes(2048)]
