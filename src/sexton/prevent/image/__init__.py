"""Opens a machine image: a directory, a tar, a raw disk image or a block device.

Nothing is mounted, unpacked or executed (docs/adr/0017-images-unmounted.md). Links are resolved
inside the image, and only regular files are opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from sexton.errors import SourceError, SourceMalformed, StoreError
from sexton.host.reader import DEFAULT_LIMIT, Closing, Files, FileStatus, RootedFiles, failure
from sexton.model.text import printable

_MAGIC_BYTES = 512
#: More than any real unit directory has.
MOST_NAMES = 50_000
_MOST_UNREAD = 20
#: Errors of the disk or the network, not of the path.
_BROKEN = frozenset(
    os.strerror(number)
    for number in (errno.EIO, errno.ESTALE, errno.EUCLEAN, errno.EBADMSG, errno.ENOTCONN)
)


class Image(Closing):
    """An opened image, used as a context manager; `StoreError` if it cannot be opened.

    `kind` and `notes` are for display. `unread` grows while the image is read: what is damaged or
    missing, a line each. Damage may hide anything, so nothing is then known to be absent.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.notes: tuple[str, ...] = ()
        self.unread: list[str] = []
        if not path:
            raise StoreError("the image path is empty")
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: {_reason(error)}") from None
        try:
            self.files, self.kind = self._open(mode)
        except SourceError as error:
            self._held.close()
            raise StoreError(str(error)) from None
        except StoreError as error:
            self._held.close()
            raise StoreError(f"{printable(path)}: {error}") from None

    def _open(self, mode: int) -> tuple[Files, str]:
        if stat.S_ISDIR(mode):
            tree = ImageDirectory(self.path)
            self._held.callback(tree.close)
            self.unread = tree.unread
            return tree, "a directory"
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            raise StoreError("not a directory, a file or a block device")
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise StoreError(_reason(error)) from None
        self._held.callback(os.close, descriptor)
        from sexton.prevent.image.tar import is_tar, read_tar

        try:
            start = os.pread(descriptor, _MAGIC_BYTES, 0)
        except OSError as error:
            raise StoreError(_reason(error)) from None
        if not start:
            raise StoreError("the file is empty")
        if is_tar(start):
            stream = self._held.enter_context(os.fdopen(os.dup(descriptor), "rb"))
            found = read_tar(stream)
            self.notes = found.notes
            self.unread += [found.incomplete] if found.incomplete else []
            return found.files, "a tar"
        from sexton.prevent.image.disk import find_root

        root = find_root(descriptor)
        self.notes, self.unread = root.notes, root.files.unread
        return root.files, f"a disk image, {root.place}"


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


class ImageDirectory(RootedFiles):
    """`Files` of an untrusted directory tree: an unpacked image, or a chroot.

    `RootedFiles` resolves links inside the tree and opens nothing but regular files and
    directories. A hostile tree may have a directory of ten million names, so listings are bounded.
    It may be on a failing disk: such errors are in `unread`.
    """

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.unread: list[str] = []

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        with self._noting():
            return super().read(path, limit)

    def link(self, path: str) -> str:
        with self._noting():
            return super().link(path)

    def status(self, path: str) -> FileStatus:
        with self._noting():
            return super().status(path)

    def names(self, path: str) -> list[str]:
        with self._noting():
            return self._names(path)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except SourceError as error:
            if error.detail in _BROKEN and len(self.unread) < _MOST_UNREAD:
                self.unread.append(str(error))
            raise

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
