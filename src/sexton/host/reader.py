"""The only module that opens the host's files.

Three kinds of host look the same from here: this machine (`LiveFiles`), another one's tree under a
directory (`RootedFiles`, for ``--root DIR``; links never lead out of it) and a snapshot from a tar
(`sexton.host.archive`). Paths are always the host's own, absolute: ``/proc/stat``.

Every read is bounded in bytes, never blocks on a FIFO or a device, and fails with one of the
`SourceError` kinds, so that "does not exist" and "permission denied" stay distinct.

`HeldFiles` keeps small files open between readings. Half the time of reading a process's line goes
into opening and closing the file, and a recorder reads a thousand of them every ten seconds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
from collections import deque
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple, Protocol, Self

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
#: The kernel returns a record that fits into a page in one read.
_PAGE = 4096
_TOP_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LIST_FLAGS = _TOP_FLAGS | os.O_NOFOLLOW
_GONE = {errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ELOOP}
#: PROC_SUPER_MAGIC (linux/magic.h).
_PROCFS = 0x9FA0


class FileStatus(NamedTuple):
    """The part of `stat` that we use; `modified_s` (UNIX) is `None` in an archive."""

    inode: int
    links: int
    is_dir: bool
    modified_s: float | None = None


class Directory(NamedTuple):  # not a dataclass: a walk makes ten thousand
    """One directory of a `walk`: `path` starts at the top, which is ``/``."""

    path: str
    inode: int
    children: int


class Files(Protocol):
    """A host's file tree."""

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        """The whole file; `SourceMalformed` if it is larger than `limit` bytes."""

    def names(self, path: str) -> list[str]:
        """The entries of a directory, unsorted."""

    def link(self, path: str) -> str:
        """Where a symbolic link points, unresolved."""

    def status(self, path: str) -> FileStatus:
        """Like `lstat`: the last component is not followed."""


def text(files: Files, path: str, limit: int = DEFAULT_LIMIT) -> str:
    """A file as text; bytes that are not UTF-8 become surrogates (see `printable`)."""
    return files.read(path, limit).decode("utf-8", "surrogateescape")


def read_regular(files: Files, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
    """A regular file whose path comes from elsewhere: an option, a unit, another user's process.

    On this machine too it is looked at before it is opened: a device may act on being opened.
    """
    if isinstance(files, LiveFiles):
        return _read_handle(files.handle(path), path, limit)
    return files.read(path, limit)


def walk(files: Files, path: str, depth: int | None = None) -> Iterator[Directory]:
    """Every directory under `path`, itself first, at most `depth` levels down; parents first.

    Not a method of `Files`, so that a tree without directories to open (an archive) need not
    implement it. A directory that vanishes during the walk is left out; one that may not be listed
    raises, because a count of directories must not treat "not shown" as "does not exist".
    """
    if isinstance(files, LiveFiles | RootedFiles):
        return files.walk(path, depth)
    return _walk_by_name(files, path, depth)


def exists(files: Files, path: str) -> bool:
    """Does the path exist? A symbolic link is not followed."""
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
        return SourceTimeout(path, "no data available without blocking")
    return SourceMalformed(path, 0, reason)


class LiveFiles:
    """This machine's own tree. Fast: one open, one read, one close."""

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        try:
            descriptor = os.open(path, OPEN_FLAGS)
        except OSError as error:
            raise failure(path, error) from None
        read = _read_record if limit < _PAGE else _read_all
        return read(descriptor, path, limit)

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
        """An `O_PATH` descriptor: the file is not opened, so no device or FIFO reacts."""
        try:
            return os.open(path, _HANDLE_FLAGS)
        except OSError as error:
            raise failure(path, error) from None

    def walk(self, path: str, depth: int | None) -> Iterator[Directory]:
        return _walk(lambda: os.open(path, _TOP_FLAGS), path, depth)


class RootedFiles:
    """Another host's tree under a directory, resolved as `chroot` would, without leaving it.

    Absolute links start again at the root and ``..`` stops there, so a hostile tree cannot make
    us read a file of this machine. Only regular files and directories are opened: a device in the
    tree would act on it (a watchdog is armed by that, and reboots the machine).
    """

    def __init__(self, root: str) -> None:
        try:
            self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise failure(root, error) from None

    def close(self) -> None:
        """Close the root; needed where many are opened (one per process)."""
        os.close(self._root)

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        return _read_handle(self.handle(path), path, limit)

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
        """An `O_PATH` descriptor, as in `LiveFiles`."""
        return self._open(path, _HANDLE_FLAGS)

    def on_procfs(self, path: str) -> bool:
        """Whether the kernel's procfs is mounted there; files named like its own prove nothing."""
        handle = self.handle(path)
        try:
            return _file_system(handle) == _PROCFS
        except OSError as error:
            raise failure(path, error) from None
        finally:
            os.close(handle)

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


def _file_system(descriptor: int) -> int:
    """`f_type` of fstatfs(2), which `os.fstatvfs` does not return."""
    import ctypes  # slow to import, and only a gate on a directory needs it

    # Its first word; struct statfs is at most 120 bytes long.
    answer = (ctypes.c_ulong * 32)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fstatfs(descriptor, answer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(answer[0])


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _link_target(name: str, directory: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.EINVAL:  # exists, but is not a link
            return None
        raise


def _status(result: os.stat_result) -> FileStatus:
    is_dir = stat.S_ISDIR(result.st_mode)
    return FileStatus(result.st_ino, result.st_nlink, is_dir, result.st_mtime)


def _read_record(descriptor: int, path: str, limit: int) -> bytes:
    """A file of one record, in one read: for files that are read by the thousand.

    Opened without blocking, so neither a FIFO nor a device can stall us.
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


_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def _read_handle(handle: int, path: str, limit: int) -> bytes:
    """The regular file behind an `O_PATH` descriptor, which is closed."""
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            kind = next((word for test, word in _KINDS if test(found.st_mode)), "a special file")
            raise SourceMalformed(path, 0, f"{kind}, not a regular file")
        if found.st_size > limit:
            raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
        # Through /proc: by now the path may lead to another file, the descriptor cannot.
        opened = os.open(f"/proc/self/fd/{handle}", OPEN_FLAGS)
    except FileNotFoundError:
        raise SourceDenied(path, "/proc must be mounted here to read it safely") from None
    except OSError as error:
        raise failure(path, error) from None
    finally:
        os.close(handle)
    return _read_all(opened, path, limit)


def _read_all(descriptor: int, path: str, limit: int) -> bytes:
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
    procfs, tmpfs, ext4) a leaf is recognised in its parent's listing and never opened, which makes
    the walk several times as fast as `find`. The top directory shows whether that holds: btrfs
    reports 1, overlayfs and network file systems arbitrary numbers. Only one directory per level is
    open at a time, and no symbolic link or mount point is crossed.
    """
    held: list[int] = []
    here = ""
    try:
        held.append(open_top())
        found = os.fstat(held[0])
        listed = _subdirectories(held[0], None)
        exact_links = len(listed) == found.st_nlink - 2
        yield Directory("/", found.st_ino, len(listed))
        pending = [("", iter(listed if depth != 0 else ()))]
        while pending:
            path, siblings = pending[-1]
            for name, inode, links, device in siblings:
                here = f"{path}/{name}"
                deepest = len(pending) == depth
                if device != found.st_dev:
                    continue
                if exact_links and (links == 2 or deepest):
                    yield Directory(here, inode, links - 2)
                    continue
                try:
                    opened = os.open(name, _LIST_FLAGS, dir_fd=held[-1])
                except OSError as error:
                    if error.errno in _GONE:
                        continue
                    raise
                held.append(opened)
                listed = _subdirectories(opened, links - 2 if exact_links else None)
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
            except FileNotFoundError:  # removed after it was listed
                continue
            found.append((entry.name, status.st_ino, status.st_nlink, status.st_dev))
            if len(found) == expected:
                break
    return found


def _walk_by_name(files: Files, path: str, depth: int | None) -> Iterator[Directory]:
    """The same for trees without directories to open, by path."""
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


#: Descriptors left for everything else.
_SPARE = 256
_MOST = 2048


def room() -> int:
    """How many files may be kept open, by this process's limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(0, min(soft - _SPARE, _MOST)) if soft != resource.RLIM_INFINITY else _MOST


class HeldFiles:
    """Reads like `LiveFiles`, for long-lived files of one record.

    Past `most` descriptors a file is opened and closed each time. A read of a process that ended
    fails with ESRCH; then the path is opened again, since a new process may have the same pid.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = room() if most is None else most
        self._open: dict[str, int] = {}
        self._live = LiveFiles()

    def read(self, path: str, limit: int) -> bytes:
        """The file's record; `SourceMalformed` if it is larger than `limit` bytes."""
        descriptor = self._open.get(path)
        if descriptor is not None:
            try:
                return _record(descriptor, path, limit)
            except OSError:  # the process ended
                self._drop(path)
        if len(self._open) >= self._most:
            return self._live.read(path, limit)
        try:
            descriptor = os.open(path, OPEN_FLAGS)
        except OSError as error:
            raise failure(path, error) from None
        self._open[path] = descriptor
        try:
            return _record(descriptor, path, limit)
        except OSError as error:
            self._drop(path)
            raise failure(path, error) from None

    def keep_only(self, paths: Container[str]) -> None:
        """Close all others."""
        for path in [known for known in self._open if known not in paths]:
            self._drop(path)

    def close(self) -> None:
        self.keep_only(())

    def __len__(self) -> int:
        return len(self._open)

    def _drop(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.close(self._open.pop(path))


def _record(descriptor: int, path: str, limit: int) -> bytes:
    content = os.pread(descriptor, limit + 1, 0)
    if len(content) > limit:
        raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
    return content


class Closing:
    """A context manager that closes what is registered in `_held`."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.close()
