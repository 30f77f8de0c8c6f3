"""Our own directory on the node: what was done, and all that is needed to undo it.

``/var/lib/sexton-fix`` (root's alone, 0700)::

    lock               who may act now (`sexton.cure.lock`)
    audit.log.jsonl    every decision, ever (`sexton.cure.log`)
    runs/ID.jsonl      one apply, journalled step by step (`sexton.cure.journal`)

Not inside ``/var/lib/sexton``, where `sexton record` keeps its recording and calls every other file
foreign. Appending is the only way to write: a line is whole and on the disk before `append`
returns, or it was never written.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from sexton.errors import CommandError
from sexton.model.text import printable

DIRECTORY = "/var/lib/sexton-fix"
RUNS = "runs"
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_MOST_BYTES = 64 << 20


class State:
    """The directory; it is made when something is first written to it."""

    def __init__(self, directory: str = DIRECTORY) -> None:
        self.directory = directory

    def make(self) -> None:
        """Make it where it is missing; refuse one that others could write to."""
        try:
            for place in (self.directory, f"{self.directory}/{RUNS}"):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(place, 0o700)
                    _sync(os.path.dirname(place) or ".")
        except OSError as error:
            raise CommandError(
                f"{self.directory}: {error.strerror}: nothing is done that could not be journalled"
            ) from None
        with self._open():
            pass

    def append(self, name: str, line: bytes) -> None:
        """One line at the end of a file, on the disk when this returns."""
        try:
            self._append(name, line)
        except OSError as error:
            raise CommandError(
                f"{self.directory}/{name}: {error.strerror}: nothing is done that cannot be"
                " written down first"
            ) from None

    def _append(self, name: str, line: bytes) -> None:
        with self._open() as directory:
            new = not _exists(name, directory)
            descriptor = os.open(
                name, os.O_RDWR | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600, dir_fd=directory
            )
            try:
                size = os.fstat(descriptor).st_size
                # A line that was cut off by a crash stays by itself, and is no line.
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                _write_all(descriptor, (b"\n" if torn else b"") + line + b"\n")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if new:
                _sync(f"{self.directory}/{os.path.dirname(name)}".rstrip("/"))

    def read(self, name: str) -> bytes | None:
        """A whole file; `None` where there is none."""
        if not os.path.isdir(self.directory):
            return None
        with self._open() as directory:
            try:
                descriptor = os.open(name, os.O_RDONLY | _FLAGS, dir_fd=directory)
            except FileNotFoundError:
                return None
            with os.fdopen(descriptor, "rb") as stream:
                content = stream.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise CommandError(f"{self.directory}/{name}: over {_MOST_BYTES:,} bytes: not ours")
        return content

    def runs(self) -> list[str]:
        """Ids of every apply that was journalled, oldest first."""
        try:
            names = os.listdir(f"{self.directory}/{RUNS}")
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError:
            raise CommandError(f"{self.directory}: for root only; use sudo") from None
        return sorted(name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl"))

    @contextmanager
    def _open(self) -> Iterator[int]:
        """Its descriptor, after a look at whose it is."""
        try:
            directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        except PermissionError:
            raise CommandError(f"{self.directory}: for root only; use sudo") from None
        except OSError as error:
            raise CommandError(f"{printable(self.directory)}: {error.strerror}") from None
        try:
            about = os.fstat(directory)
            if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise CommandError(
                    f"{self.directory}: others may write to it, so what it says cannot be trusted;"
                    " it must be root's alone (chmod 700)"
                )
            yield directory
        finally:
            os.close(directory)


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
