"""Fuzz target: ext4 file systems. The fuzzer's bytes are laid over the metadata of a real one."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from sexton.errors import SourceError, StoreError
from sexton.prevent.image.ext4 import Ext4Files

PATHS = ("/", "/etc", "/etc/unit", "/etc/link", "/lib/x", "/etc/large", "/etc/many")


@cache
def real() -> bytes:
    """A small file system; empty where nothing can make one."""
    maker = shutil.which("mke2fs", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if maker is None:
        return b""
    with tempfile.TemporaryDirectory() as place:
        tree, image = Path(place, "tree"), Path(place, "image")
        (tree / "etc/many").mkdir(parents=True)
        (tree / "etc/unit").write_text("[Service]\n")
        (tree / "etc/link").symlink_to("/etc/unit")
        (tree / "lib").symlink_to("etc")
        (tree / "etc/large").write_bytes(bytes(20_000))
        for number in range(30):
            (tree / f"etc/many/{number}").touch()
        subprocess.run(
            [
                maker,
                "-q",
                "-F",
                "-t",
                "ext4",
                "-O",
                "^has_journal,^metadata_csum",  # else the checksums end it early
                "-N",
                "64",
                "-d",
                tree,
                image,
                "400k",
            ],
            check=True,
            capture_output=True,
        )
        return image.read_bytes()


class Laid:
    """Every eight bytes of the fuzzer's: where (as far as the metadata goes), and four bytes."""

    def __init__(self, raw: bytes, data: bytes) -> None:
        changed = bytearray(raw)
        for at in range(0, len(data) - 7, 8):
            place = 1024 + int.from_bytes(data[at : at + 4], "little") % max(len(raw) // 2, 1)
            changed[place : place + 4] = data[at + 4 : at + 8]
        self._raw = bytes(changed[: len(raw)])

    def at(self, offset: int, size: int) -> bytes:
        if offset < 0 or offset + size > len(self._raw):
            raise StoreError("the image is shorter than its file system says")
        return self._raw[offset : offset + size]


def one(data: bytes) -> None:
    files = Ext4Files(Laid(real(), data))
    files.check()
    for path in PATHS:
        for look in (files.status, files.read, files.link, files.names):
            with contextlib.suppress(SourceError):
                look(path)


def seeds() -> list[bytes]:
    """Changes to the superblock's, a descriptor's and an inode's numbers."""
    places = (24, 32, 40, 76, 88, 96, 1032, 4096, 40960)
    return [at.to_bytes(4, "little") + b"\xff\xff\xff\x7f" for at in places]
