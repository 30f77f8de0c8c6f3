"""Reads an untrusted directory tree: an unpacked image, or a chroot.

`RootedFiles` resolves links inside the tree and opens nothing but regular files and directories.
A tree may hold a directory of ten million names as well, so listings are bounded; and it may lie on
a disk that fails, so errors of the disk are in `unread`.
"""

from __future__ import annotations

import errno
import os

from sexton.errors import SourceError, SourceMalformed
from sexton.host.reader import DEFAULT_LIMIT, FileStatus, RootedFiles, failure

#: More than any real unit directory has.
MOST_NAMES = 50_000
_MOST_UNREAD = 20
#: Errors of the disk or the network, not of the path.
_BROKEN = frozenset(
    os.strerror(number)
    for number in (errno.EIO, errno.ESTALE, errno.EUCLEAN, errno.EBADMSG, errno.ENOTCONN)
)


class ImageDirectory(RootedFiles):
    """`Files` of an untrusted directory tree."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.unread: list[str] = []

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        try:
            return super().read(path, limit)
        except SourceError as error:
            raise self._noted(error) from None

    def link(self, path: str) -> str:
        try:
            return super().link(path)
        except SourceError as error:
            raise self._noted(error) from None

    def status(self, path: str) -> FileStatus:
        try:
            return super().status(path)
        except SourceError as error:
            raise self._noted(error) from None

    def names(self, path: str) -> list[str]:
        try:
            return self._names(path)
        except SourceError as error:
            raise self._noted(error) from None

    def _noted(self, error: SourceError) -> SourceError:
        if error.detail in _BROKEN and len(self.unread) < _MOST_UNREAD:
            self.unread.append(str(error))
        return error

    def _names(self, path: str) -> list[str]:
        handle = self.handle(path)
        try:
            opened = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise failure(path, error) from None
        finally:
            os.close(handle)
        found: list[str] = []
        try:
            with os.scandir(opened) as entries:
                for entry in entries:
                    found.append(entry.name)
                    if len(found) > MOST_NAMES:
                        raise SourceMalformed(path, 0, f"more than {MOST_NAMES:,} names")
        except OSError as error:
            raise failure(path, error) from None
        finally:
            os.close(opened)
        return found
