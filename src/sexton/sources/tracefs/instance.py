"""A private tracing instance, and one that follows memory cgroups from creation to release.

Tracefs is not a tree of plain files: making a directory in ``instances/`` makes a ring buffer,
writing arms events, and reading ``trace_pipe`` consumes records. So this module opens files itself,
on a live node only, and removes what it made:

- an instance is named ``sexton-<pid>-<start time>-<n>`` and stays armed after a ``kill -9``, so
  opening first removes those whose process is gone (the kernel refuses with EBUSY to remove one
  whose files are open: a sexton in another pid namespace is safe);
- its buffer is small: 64 kB a core for cgroups, not the 1.4 MB of the default. That is about a
  thousand events (6.18); a burst between two readings may lose some, which `lost` counts;
- its clock is ``mono``, CLOCK_MONOTONIC, so that events line up with every other reading;
- it is reached through a detached mount that nobody else sees (`detached`), whether tracefs is
  mounted or not; where the kernel refuses one, through the node's mount;
- cgroup events are filtered by ``root``, the hierarchy that memory is on (0 is v2).

See the kernel's Documentation/trace/ftrace.rst, "Instances".
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
from collections.abc import Iterator
from itertools import count
from typing import Self

from sexton.errors import SourceAbsent, SourceDenied, SourceError
from sexton.host.host import Host
from sexton.host.reader import failure, text
from sexton.sources.cgroupfs.layout import controller
from sexton.sources.procfs import mountinfo

DEFAULT_MOUNT = "/sys/kernel/tracing"
GRANT = f"sudo mount -t tracefs nodev {DEFAULT_MOUNT}"
AS_ROOT = "sudo sexton diagnose"
BUFFER_KB = 64
#: The most one reading takes; the rest stays in the buffer for the next one.
_MOST_BYTES = 4 << 20
_CGROUP_RMDIR = "cgroup/cgroup_rmdir"
_EVENTS = ("cgroup_mkdir", "cgroup_rmdir", "cgroup_release")
_NAME = re.compile(r"sexton-([0-9]+)-([0-9]+)-[0-9]+", re.ASCII)
_LOST = re.compile(
    r"^(?:overrun|commit overrun|dropped events): ([0-9]+)$", re.ASCII | re.MULTILINE
)
_numbers = count(1)


class Instance:
    """A private directory in ``instances/``, not armed yet; `close` removes it.

    `mount` is the descriptor of our own detached mount, if `path` goes through one: a child that
    inherits it can use the same path.
    """

    def __init__(self, host: Host, event: str) -> None:
        host.require_live(DEFAULT_MOUNT)
        self._host = host
        place, self.mount = _place(host, event)
        instances = f"{place}/instances"
        self.path = ""
        try:
            remove_stale(host, instances)
            own = f"sexton-{os.getpid()}-{_start_time(host, os.getpid())}-{next(_numbers)}"
            os.mkdir(f"{instances}/{own}")
            self.path = f"{instances}/{own}"
            self.write("trace_clock", "mono")
        except (OSError, SourceError) as error:
            Instance.close(self)
            if isinstance(error, OSError):
                raise failure(error.filename or instances, error) from None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, name: str, content: str) -> None:
        """Write one of the instance's files; `OSError` with its path if the kernel refuses."""
        path = f"{self.path}/{name}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, content.encode())
        except OSError as error:
            raise OSError(error.errno or errno.EIO, error.strerror, path) from None
        finally:
            os.close(descriptor)

    def stats(self) -> Iterator[tuple[int, str]]:
        """Each core's number and its ``stats``; cores that go offline are left out."""
        files = self._host.files
        for core in files.names(f"{self.path}/per_cpu"):
            number = core.removeprefix("cpu")
            if number.isascii() and number.isdigit():
                with contextlib.suppress(SourceAbsent):
                    yield int(number), text(files, f"{self.path}/per_cpu/{core}/stats")

    def close(self) -> None:
        """Remove the instance and its events."""
        if self.path:
            with contextlib.suppress(OSError):  # the next start removes it as stale
                os.rmdir(self.path)
        if self.mount is not None:
            os.close(self.mount)
            self.mount = None


class CgroupTrace(Instance):
    """An instance armed for memory cgroups."""

    def __init__(self, host: Host, buffer_kb: int = BUFFER_KB) -> None:
        host.require_live(DEFAULT_MOUNT)
        memory = controller(host, "memory")
        self.root = 0 if memory is None else memory.hierarchy
        self._pipe = -1
        self._rest = b""
        self._lost = 0
        self._little = buffer_kb * 1024 // 4
        super().__init__(host, _CGROUP_RMDIR)
        try:
            self._arm(buffer_kb)
            self._lost = self._lost_so_far()
        except (OSError, SourceError) as error:
            self.close()
            if isinstance(error, OSError):
                raise failure(error.filename or self.path, error) from None
            raise

    def read(self) -> str:
        """Complete lines since the last call; never blocks."""
        pieces = [self._rest]
        left = _MOST_BYTES
        while left > 0:
            try:
                piece = os.read(self._pipe, min(left, 1 << 16))
            except BlockingIOError:
                break
            except OSError as error:
                raise failure(f"{self.path}/trace_pipe", error) from None
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        whole, newline, self._rest = b"".join(pieces).rpartition(b"\n")
        return (whole + newline).decode("utf-8", "surrogateescape")

    def lost(self, among: str | None = None) -> int:
        """How many records were lost since the last call; `among` is what was just read.

        Records are lost when a core's buffer is full, and a full buffer reads as more text than it
        has bytes. After less than a quarter of that the counters are not read: on a large node that
        would be one file per core, every second.
        """
        if among is not None and len(among) < self._little:
            return 0
        now = self._lost_so_far()
        lost, self._lost = now - self._lost, now
        return max(0, lost)

    def close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        super().close()

    def _arm(self, buffer_kb: int) -> None:
        self.write("buffer_size_kb", str(buffer_kb))
        # Opened before the first event, so that none is missed.
        self._pipe = os.open(f"{self.path}/trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        for event in _EVENTS:
            self.write(f"events/cgroup/{event}/filter", f"root=={self.root}")
            self.write(f"events/cgroup/{event}/enable", "1")

    def _lost_so_far(self) -> int:
        return sum(int(number) for _, counted in self.stats() for number in _LOST.findall(counted))


def find_tracefs(host: Host, event: str = _CGROUP_RMDIR) -> str:
    """The mount point of a tracefs with that event, on its own or inside debugfs."""
    mounts = list(mountinfo.parse(text(host.files, f"{host.self_dir}/mountinfo")))
    own = [mount.mount_point for mount in mounts if mount.fstype == "tracefs"]
    inside = [f"{mount.mount_point}/tracing" for mount in mounts if mount.fstype == "debugfs"]
    for place in (*reversed(own), *reversed(inside)):
        try:
            host.files.status(f"{place}/events/{event}")
        except SourceAbsent:
            continue
        return place
    if own or inside:
        where = (own or inside)[-1]
        group = event.partition("/")[0]
        raise SourceAbsent(f"{where}/events/{group}", f"this kernel has no {group} trace events")
    raise SourceAbsent(DEFAULT_MOUNT, "tracefs is not mounted")


def _place(host: Host, event: str) -> tuple[str, int | None]:
    """Path of tracefs and our mount's descriptor: a detached mount, else the node's own mount.

    The detached one first, since nobody can unmount it while we read.
    """
    try:
        mount = detached("tracefs")
    except OSError as error:
        try:
            return find_tracefs(host, event), None
        except SourceDenied as denied:
            raise SourceDenied(DEFAULT_MOUNT, denied.detail, grant=AS_ROOT) from None
        except SourceAbsent as absent:
            if error.errno in (errno.EPERM, errno.EACCES):
                why = f"{absent.detail}, and only root can mount it"
                raise SourceDenied(DEFAULT_MOUNT, why, grant=AS_ROOT) from None
            raise
    return f"/proc/self/fd/{mount}", mount


def remove_stale(host: Host, instances: str) -> None:
    """Remove instances that killed sextons left armed."""
    for name in host.files.names(instances):
        found = _NAME.fullmatch(name)
        if found is None or _start_time(host, int(found[1])) == int(found[2]):
            continue
        with contextlib.suppress(OSError):  # EBUSY: in use by a process we cannot see
            os.rmdir(f"{instances}/{name}")


def _start_time(host: Host, pid: int) -> int | None:
    """In clock ticks since boot; `None` if there is no such process."""
    try:
        fields = text(host.files, f"/proc/{pid}/stat").rpartition(")")[2].split()
    except SourceError:
        return None
    return int(fields[19])


_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CLOEXEC = 1
_CMD_CREATE = 6
_NOSUID_NODEV_NOEXEC = 2 | 4 | 8


def detached(fstype: str) -> int:
    """A descriptor of the root of a detached mount; `OSError` if the kernel refuses.

    `fsopen`, `fsconfig` and `fsmount` (Linux 5.2, Documentation/filesystems/mount_api.rst) make a
    mount that is attached nowhere: only this process can use it, it is in no mount table, and it is
    gone when the descriptor is closed. Many C libraries have no wrappers for them, hence the
    numbers, which are the same on every architecture.
    """
    context = _syscall(_FSOPEN, fstype.encode(), _CLOEXEC)
    try:
        _syscall(_FSCONFIG, context, _CMD_CREATE, None, None, 0)
        return _syscall(_FSMOUNT, context, _CLOEXEC, _NOSUID_NODEV_NOEXEC)
    finally:
        os.close(context)


def _syscall(number: int, *arguments: bytes | int | None) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    result: int = library.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
