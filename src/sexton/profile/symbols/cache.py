"""A cache of symbols by build id, so that they outlive the program.

The programs of a container can be read only while it runs, through ``/proc/PID/root``; the capture
may be analysed hours later. The cache is a directory of the user (``$XDG_CACHE_HOME/sexton``, else
``~/.cache/sexton``), 0700, with files 0600 that are written aside and renamed. It never causes a
failure: what is damaged, foreign or unreadable counts as missing. Its size is limited; the least
recently used files are deleted first.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
import struct
import zlib
from pathlib import Path

import numpy as np

from sexton.errors import StoreError
from sexton.profile.symbols.table import Table
from sexton.store.layout import new_file, read_plain, why_not_private

MOST_BYTES = 512 << 20
#: Limit of one file; a larger table is read from its program again.
MOST_ENTRY = 64 << 20
_MAGIC = b"SEXTNAM1"
_HEAD = struct.Struct("<8sI4x")
HEAD_SIZE = _HEAD.size
_COUNTS = struct.Struct("<QQ")
_KEY = re.compile(r"[0-9a-z-]{4,140}", re.ASCII)
_SUFFIX = ".names"
_ROW = 25


def default_directory() -> str:
    """The cache directory of this user."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not home.startswith("/"):
        home = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "sexton", "symbols")


class Cache:
    """Bytes by key, with a checksum. `directory` None: nothing is cached."""

    def __init__(self, directory: str | None, most_bytes: int = MOST_BYTES) -> None:
        self._directory = directory
        self._most_bytes = most_bytes

    def load(self, key: str) -> mmap.mmap | None:
        """The cached bytes, from `HEAD_SIZE` on; `None` if missing or damaged."""
        path = self._path(key)
        if path is None:
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if not ours or not HEAD_SIZE <= found.st_size <= MOST_ENTRY:
                return None
            try:
                # Files are replaced and never modified, so the map stays valid.
                content = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                os.utime(file.fileno())  # the least recently used is deleted first
            except (OSError, ValueError):
                return None
        magic, check = _HEAD.unpack_from(content)
        with memoryview(content) as whole, whole[HEAD_SIZE:] as body:
            good = magic == _MAGIC and zlib.crc32(body) == check
        return content if good else None

    def store(self, key: str, body: bytes) -> None:
        """Store bytes, if possible."""
        path = self._path(key)
        if path is None or len(body) + HEAD_SIZE > MOST_ENTRY:
            return
        with contextlib.suppress(OSError):
            directory = os.path.dirname(path)
            if why_not_private(directory):  # such as root with another user's home
                return
            os.makedirs(directory, mode=0o700, exist_ok=True)
            aside = f"{path}.{os.getpid()}"
            try:
                with os.fdopen(new_file(aside), "wb") as file:
                    file.write(_HEAD.pack(_MAGIC, zlib.crc32(body)))
                    file.write(body)
                os.rename(aside, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(aside)
            self._make_room(directory)

    def has(self, key: str) -> bool:
        """Is this key cached?"""
        path = self._path(key)
        return path is not None and os.path.lexists(path)

    def load_table(self, key: str) -> Table | None:
        """A cached table."""
        kept = self.load(key)
        return None if kept is None else unpack(kept, HEAD_SIZE)

    def store_table(self, key: str, table: Table) -> None:
        """Store a table."""
        if len(table.text) + len(table) * _ROW <= MOST_ENTRY:
            self.store(key, pack(table))

    def _path(self, key: str) -> str | None:
        if self._directory is None or _KEY.fullmatch(key) is None:
            return None
        return os.path.join(self._directory, key + _SUFFIX)

    def _make_room(self, directory: str) -> None:
        kept = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False) and _SUFFIX in entry.name:
                    found = entry.stat(follow_symlinks=False)
                    kept.append((found.st_mtime, found.st_size, entry.path))
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= self._most_bytes:
                break
            os.unlink(path)
            total -= size


def check_names(path: Path) -> None:
    """`StoreError` if a file of the cache would count as missing."""
    try:
        content = read_plain(path, MOST_ENTRY + 1)
    except OSError as error:
        raise StoreError(error.strerror or "cannot be read") from None
    if not HEAD_SIZE <= len(content) <= MOST_ENTRY:
        raise StoreError("not a file of symbols")
    magic, check = _HEAD.unpack_from(content)
    if magic != _MAGIC or zlib.crc32(memoryview(content)[HEAD_SIZE:]) != check:
        raise StoreError("not a file of symbols, or damaged")


def pack(table: Table) -> bytes:
    """Encode a table."""
    return b"".join(
        (
            _COUNTS.pack(len(table), len(table.text)),
            table.start.astype("<u8").tobytes(),
            table.end.astype("<u8").tobytes(),
            table.name_at.astype("<i8").tobytes(),
            table.binding.tobytes(),
            bytes(table.text),
        )
    )


def unpack(content: bytes | mmap.mmap, at: int = 0) -> Table | None:
    """Decode a table from byte `at` on; `None` if malformed."""
    if len(content) < at + _COUNTS.size:
        return None
    rows, text = _COUNTS.unpack_from(content, at)
    at += _COUNTS.size
    names = at + rows * _ROW
    if len(content) != names + text:
        return None
    start = np.frombuffer(content, "<u8", rows, at)
    end = np.frombuffer(content, "<u8", rows, at + rows * 8)
    name_at = np.frombuffer(content, "<i8", rows, at + rows * 16)
    binding = np.frombuffer(content, np.uint8, rows, at + rows * 24)
    if rows and not 0 <= int(name_at.min()) <= int(name_at.max()) < text:
        return None
    return Table(start, end, binding, name_at + names, content)
