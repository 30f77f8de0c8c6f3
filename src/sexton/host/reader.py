"""The only module that opens the host's files.

Three hosts look the same from here: this machine (`LiveFiles`), another one's tree under a
directory (`RootedFiles`, for ``--root DIR``; links never lead out of it) and a snapshot out of a
tar (`sexton.host.archive`). Paths are always the host's own, absolute: ``/proc/stat``.

Every read is bounded in bytes, never blocks on a FIFO or a device, and fails with one of the
`SourceError` kinds, so that "not there" and "not allowed" stay two different answers.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed, SourceTimeout

#: Large enough for `/proc/interrupts` of 256 cores, small enough to bound us.
DEFAULT_LIMIT = 8 << 20

_ABSENT = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ESRCH,  # a process that vanished between listing and reading
    errno.ENODEV,  # a cgroup that died between listing and reading
    errno.ENXIO,
    errno.EOPNOTSUPP,  # /proc/pressure/* with psi=0
}
OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_HANDLE_FLAGS = os.O_PATH | os.O_CLOEXEC
_MOST_LINKS = 40
#: The kernel hands out a record that fits into a page in one read.
_PAGE = 4096
_TOP_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LIST_FLAGS = _TOP_FLAGS | os.O_NOFOLLOW
_GONE = {errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ELOOP}


class FileStatus(NamedTuple):
    """What `stat` says and we use."""

    inode: int
    links: int
    is_dir: bool


class Directory(NamedTuple):  # and no dataclass: ten thousand are made in each walk
    """One directory of a `walk`: `path` starts at the top, which is ``/``."""

    path: str
    inode: int
    children: int


class Files(Protocol):
    """A host's file tree."""

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        """The whole file, at most `limit` bytes of it; more is `SourceMalformed`."""

    def names(self, path: str) -> list[str]:
        """The entries of a directory, unsorted."""

    def link(self, path: str) -> str:
        """Where a symbolic link points, unresolved."""

    def status(self, path: str) -> FileStatus:
        """`lstat`, so to speak: the last component is not followed."""


def text(files: Files, path: str, limit: int = DEFAULT_LIMIT) -> str:
    """A file as text; bytes that are no UTF-8 survive as surrogates (see `printable`)."""
    return files.read(path, limit).decode("utf-8", "surrogateescape")


def walk(files: Files, path: str, depth: int | None = None) -> Iterator[Directory]:
    """Every directory under `path`, itself first, at most `depth` levels down; parents first.

    Not a method of `Files`, so that a tree without directories to open (an archive) need not
    write its own. One that vanishes meanwhile is left out; one that may not be listed raises,
    because whoever counts directories must not take "not shown" for "not there".
    """
    if isinstance(files, LiveFiles | RootedFiles):
        return files.walk(path, depth)
    return _walk_by_name(files, path, depth)


def exists(files: Files, path: str) -> bool:
    """Is there anything at that path, itself and not what it may link to?"""
    try:
        files.status(path)
    except SourceAbsent:
        return False
    return True


def failure(path: str, error: OSError) -> SourceError:
    """The kind of `SourceError` an `OSError` is."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _ABSENT:
        return SourceAbsent(path, reason)
    if error.errno in (errno.EACCES, errno.EPERM):
        return SourceDenied(path, reason)
    if error.errno in (errno.EAGAIN, errno.ETIMEDOUT):
        return SourceTimeout(path, "no data without waiting")
    return SourceMalformed(path, 0, reason)


class LiveFiles:
    """This machine's own tree. Fast: one open, one read, one close."""

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        try:
            descriptor = os.open(path, OPEN_FLAGS)
        except OSError as error:
            raise failure(path, error) from None
        return _gulp(descriptor, path, limit) if limit < _PAGE else _drain(descriptor, path, limit)

    def names(self, path: str) -> list[str]:
        try:
            return os.listdir(path)
        except OSError as error:
            raise failure(path, error) from None

    def link(self, path: str) -> str:
        try:
            return os.readlink(path)
        except OSError as error:
            raise failure(path, error) from None

    def status(self, path: str) -> FileStatus:
        try:
            return _status(os.lstat(path))
        except OSError as error:
            raise failure(path, error) from None

    def handle(self, path: str) -> int:
        """The file itself, held but not opened: no device wakes, no FIFO waits (`images`)."""
        try:
            return os.open(path, _HANDLE_FLAGS)
        except OSError as error:
            raise failure(path, error) from None

    def walk(self, path: str, depth: int | None) -> Iterator[Directory]:
        return _walk(lambda: os.open(path, _TOP_FLAGS), path, depth)


class RootedFiles:
    """Another host's tree under a directory, resolved as `chroot` would, without leaving it.

    Absolute links start again at the root and ``..`` stops there, so a hostile tree cannot make
    us read a file of this machine.
    """

    def __init__(self, root: str) -> None:
        try:
            self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise failure(root, error) from None

    def close(self) -> None:
        """Let go of the root: whoever looks into many (one per process) must."""
        os.close(self._root)

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        return _drain(self._open(path, OPEN_FLAGS), path, limit)

    def names(self, path: str) -> list[str]:
        descriptor = self._open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return os.listdir(descriptor)
        except OSError as error:
            raise failure(path, error) from None
        finally:
            os.close(descriptor)

    def link(self, path: str) -> str:
        parent, name = self._parent(path)
        try:
            return os.readlink(name, dir_fd=parent)
        except OSError as error:
            raise failure(path, error) from None
        finally:
            os.close(parent)

    def status(self, path: str) -> FileStatus:
        parent, name = self._parent(path)
        try:
            return _status(os.stat(name, dir_fd=parent, follow_symlinks=False))
        except OSError as error:
            raise failure(path, error) from None
        finally:
            os.close(parent)

    def handle(self, path: str) -> int:
        """The file itself, held but not opened."""
        return self._open(path, _HANDLE_FLAGS)

    def walk(self, path: str, depth: int | None) -> Iterator[Directory]:
        return _walk(lambda: self._resolve(path, _TOP_FLAGS), path, depth)

    def _parent(self, path: str) -> tuple[int, str]:
        head, _, name = path.rstrip("/").rpartition("/")
        return self._open(head or "/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), name or "."

    def _open(self, path: str, flags: int) -> int:
        try:
            return self._resolve(path, flags)
        except OSError as error:
            raise failure(path, error) from None

    def _resolve(self, path: str, flags: int) -> int:
        parts = deque(_components(path))
        held = [os.dup(self._root)]
        links = 0
        try:
            if not parts:
                return os.open(".", flags, dir_fd=held[-1])
            while True:
                part = parts.popleft()
                if part == "..":
                    if len(held) > 1:
                        os.close(held.pop())
                    if not parts:
                        return os.open(".", flags, dir_fd=held[-1])
                    continue
                target = _link_target(part, held[-1])
                if target is not None:
                    links += 1
                    if links > _MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    if target.startswith("/"):
                        while len(held) > 1:
                            os.close(held.pop())
                    parts.extendleft(reversed(_components(target)))
                    if not parts:
                        return os.open(".", flags, dir_fd=held[-1])
                    continue
                if not parts:
                    return os.open(part, flags | os.O_NOFOLLOW, dir_fd=held[-1])
                step = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                held.append(os.open(part, step, dir_fd=held[-1]))
        finally:
            for descriptor in held:
                os.close(descriptor)


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _link_target(name: str, directory: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.EINVAL:  # there, and no link
            return None
        raise


def _status(result: os.stat_result) -> FileStatus:
    return FileStatus(result.st_ino, result.st_nlink, stat.S_ISDIR(result.st_mode))


def _gulp(descriptor: int, path: str, limit: int) -> bytes:
    """A file of one record, in one read: for files that are read by the thousand.

    Opened without blocking, so that neither a FIFO nor a device could hold us up; what is longer
    than asked for is refused as ever.
    """
    try:
        content = os.read(descriptor, limit + 1)
    except OSError as error:
        raise failure(path, error) from None
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
    return content


def _drain(descriptor: int, path: str, limit: int) -> bytes:
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise SourceMalformed(path, 0, what)
        pieces = []
        left = limit + 1
        # Most files are small, and a large buffer costs twice the read itself.
        step = 1 << 14
        while left > 0:
            piece = os.read(descriptor, min(left, step))
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
            step = 1 << 18
        if left <= 0:
            raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
        return b"".join(pieces)
    except OSError as error:
        raise failure(path, error) from None
    finally:
        os.close(descriptor)


def _walk(open_top: Callable[[], int], shown: str, depth: int | None) -> Iterator[Directory]:
    """Walk from an opened directory.

    On a file system whose directories have 2 + their child directories as `st_nlink` (cgroupfs,
    procfs, tmpfs, ext4) a leaf is known from its parent's listing and never opened: this is what
    makes the walk several times as fast as `find`. Whether that holds is tried on the top
    directory: btrfs says 1, overlayfs and network file systems say what they like. Only one
    directory per level is held open, and no symbolic link or mount point is stepped over.
    """
    held: list[int] = []
    here = ""
    try:
        held.append(open_top())
        found = os.fstat(held[0])
        listed = _subdirectories(held[0], None)
        honest = len(listed) == found.st_nlink - 2
        yield Directory("/", found.st_ino, len(listed))
        pending = [("", iter(listed if depth != 0 else ()))]
        while pending:
            path, siblings = pending[-1]
            for name, inode, links, device in siblings:
                here = f"{path}/{name}"
                deepest = len(pending) == depth
                if device != found.st_dev:
                    continue
                if honest and (links == 2 or deepest):
                    yield Directory(here, inode, links - 2)
                    continue
                try:
                    opened = os.open(name, _LIST_FLAGS, dir_fd=held[-1])
                except OSError as error:
                    if error.errno in _GONE:
                        continue
                    raise
                held.append(opened)
                listed = _subdirectories(opened, links - 2 if honest else None)
                yield Directory(here, inode, len(listed))
                pending.append((here, iter(() if deepest else listed)))
                break
            else:
                pending.pop()
                os.close(held.pop())
    except OSError as error:
        raise failure(f"{shown}{here}", error) from None
    finally:
        for descriptor in held:
            os.close(descriptor)


def _subdirectories(directory: int, expected: int | None) -> list[tuple[str, int, int, int]]:
    """Name, inode, links and device of each; the listing ends once `expected` were found."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed since it was listed
                continue
            found.append((entry.name, status.st_ino, status.st_nlink, status.st_dev))
            if len(found) == expected:
                break
    return found


def _walk_by_name(files: Files, path: str, depth: int | None) -> Iterator[Directory]:
    """The same for trees that can only be asked by name."""
    pending = deque([("", 0)])
    while pending:
        here, level = pending.popleft()
        try:
            status = files.status(f"{path}{here}")
            children = []
            for name in files.names(f"{path}{here}"):
                if files.status(f"{path}{here}/{name}").is_dir:
                    children.append((f"{here}/{name}", level + 1))
        except SourceAbsent:
            if not here:
                raise
            continue
        yield Directory(here or "/", status.inode, len(children))
        if level != depth:
            pending.extend(children)
