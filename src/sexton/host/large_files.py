"""Files too large to read whole: programs and libraries, of which only a few sections are needed.

Their paths come from captures, so they are not trusted. A file is first opened with `O_PATH`, and
for reading only if it is a regular one, so no device or FIFO reacts. Under a root (a container's
``/proc/PID/root``) links cannot lead out of it. Every read is bounded, and a short read is
`SourceMalformed`.
"""

from __future__ import annotations

import os
import stat
from typing import Protocol

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.reader import OPEN_FLAGS, Closing, Files, LiveFiles, RootedFiles, failure


class Image(Protocol):
    """Bytes with random access."""

    path: str
    size: int

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes from `offset` on."""


class BytesImage:
    """An image in memory."""

    def __init__(self, content: bytes, path: str = "") -> None:
        self.path = path
        self.size = len(content)
        self._content = content

    def read(self, offset: int, size: int) -> bytes:
        _check(self, offset, size)
        return self._content[offset : offset + size]


class FileImage(Closing):
    """A regular file. `identity` changes with its content: device, inode, size, time."""

    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__()
        self._held.callback(os.close, descriptor)
        found = os.fstat(descriptor)
        self.path = path
        self.size = found.st_size
        self.inode = found.st_ino
        self.changed_s = found.st_mtime
        self.identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        self._descriptor = descriptor

    def read(self, offset: int, size: int) -> bytes:
        _check(self, offset, size)
        pieces = []
        while size > 0:
            try:
                piece = os.pread(self._descriptor, size, offset)
            except OSError as error:
                raise failure(self.path, error) from None
            if not piece:
                raise SourceMalformed(self.path, 0, "truncated while it was read")
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _check(image: Image, offset: int, size: int) -> None:
    if offset < 0 or size < 0 or offset + size > image.size:
        raise SourceMalformed(image.path, 0, "points past its end")


def open_image(files: Files, path: str) -> FileImage:
    """A regular file of a host's tree; anything else is `SourceMalformed`."""
    if not isinstance(files, LiveFiles | RootedFiles):
        raise SourceAbsent(path, "an archive holds no programs")
    if "\0" in path:
        raise SourceMalformed(path, 0, "a path cannot contain a NUL byte")
    held = files.handle(path)
    try:
        if not stat.S_ISREG(os.fstat(held).st_mode):
            raise SourceMalformed(path, 0, "not a regular file")
        # By descriptor, so that it is the same file that was checked.
        opened = os.open(f"/proc/self/fd/{held}", OPEN_FLAGS)
    except OSError as error:
        raise failure(path, error) from None
    finally:
        os.close(held)
    return FileImage(opened, path)
