"""Opens a machine image: a directory, a tar, a raw disk image or a block device.

Nothing is mounted, unpacked or executed (docs/adr/0017-images-unmounted.md). Links are resolved
inside the image, and only regular files are opened.
"""

from __future__ import annotations

import os
import stat

from sexton.errors import SourceError, StoreError
from sexton.host.reader import Closing, Files
from sexton.model.text import printable
from sexton.prevent.image.directory import ImageDirectory

_MAGIC_BYTES = 512


class Image(Closing):
    """An opened image: a directory, a tar, a raw disk image or a block device; `StoreError` says
    why not. Use as a context manager. `kind` and `notes` are for display.

    `unread` grows while it is read: what is damaged or missing, a line each. It may hide anything,
    so nothing that was not found in such an image is known to be absent.
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
        return self._disk(descriptor)

    def _disk(self, descriptor: int) -> tuple[Files, str]:
        from sexton.prevent.image.disk import find_root

        root, where = find_root(descriptor)
        self.unread = root.unread
        return root, f"a disk image, {where}"


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
