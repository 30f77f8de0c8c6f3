"""Writes an initramfs archive ("newc" cpio), owned by root.

The format: https://docs.kernel.org/driver-api/early-userspace/buffer-format.html. Archives can be
concatenated, each compressed or not; later ones add to earlier ones.
"""

from __future__ import annotations

import gzip
import io
import stat
from collections.abc import Mapping
from pathlib import Path


class Cpio:
    """Collects entries; parents must be added before their children."""

    def __init__(self) -> None:
        self._out = io.BytesIO()
        self._number = 0
        self._folders: set[str] = set()

    def folder(self, name: str) -> None:
        if name in self._folders or name in ("", "."):
            return
        self.folder(str(Path(name).parent))
        self._folders.add(name)
        self._entry(name, stat.S_IFDIR | 0o755, b"")

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self.folder(str(Path(name).parent))
        self._entry(name, stat.S_IFREG | mode, content)

    def link(self, name: str, target: str) -> None:
        self.folder(str(Path(name).parent))
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def tree(self, name: str, source: Path) -> None:
        """A whole folder of the host, in order of names."""
        self.folder(name)
        for path in sorted(source.rglob("*")):
            inside = f"{name}/{path.relative_to(source)}"
            if path.is_symlink():
                self.link(inside, str(path.readlink()))
            elif path.is_dir():
                self.folder(inside)
            elif path.is_file():
                executable = path.stat().st_mode & stat.S_IXUSR
                self.file(inside, path.read_bytes(), 0o755 if executable else 0o644)

    def packed(self) -> bytes:
        self._entry("TRAILER!!!", 0, b"")
        # No mtime, so that the same input gives the same bytes.
        return gzip.compress(self._out.getvalue(), compresslevel=1, mtime=0)

    def _entry(self, name: str, mode: int, content: bytes) -> None:
        self._number += 1
        raw = name.encode() + b"\0"
        fields = {
            "ino": self._number,
            "mode": mode,
            "uid": 0,
            "gid": 0,
            "nlink": 1,
            "mtime": 0,
            "filesize": len(content),
            "devmajor": 0,
            "devminor": 0,
            "rdevmajor": 0,
            "rdevminor": 0,
            "namesize": len(raw),
            "check": 0,
        }
        self._out.write(b"070701" + _hex(fields) + raw)
        self._pad()
        self._out.write(content)
        self._pad()

    def _pad(self) -> None:
        self._out.write(b"\0" * (-self._out.tell() % 4))


def _hex(fields: Mapping[str, int]) -> bytes:
    return b"".join(b"%08X" % value for value in fields.values())
