"""A private tracing instance that follows memory cgroups from birth to release.

Tracefs is not a tree of plain files: making a directory in ``instances/`` makes a ring buffer,
writing arms events, and reading ``trace_pipe`` takes records away. So this module opens files of
its own, on the node itself only, and puts back what it took:

- the instance is named ``sexton-<pid>-<start time>-<n>`` and stays armed after a ``kill -9``, so
  opening first removes those whose process is gone (the kernel refuses, with EBUSY, to remove one
  whose pipe somebody still reads: another sexton in another pid namespace is safe);
- its buffer is 64 kB a core, not the 1.4 MB of the default: about a thousand events (6.18), so
  that a burst of deaths between two readings loses some, which `lost` counts;
- its clock is ``mono``, CLOCK_MONOTONIC, so that events join with every other reading;
- it is reached through a detached mount that nobody else sees (`sexton.sources.tracefs.detached`),
  whether tracefs is mounted or not; where the kernel will not give one, through the node's mount;
- events are filtered by ``root``, the hierarchy that memory is on (0 is v2).

See the kernel's Documentation/trace/ftrace.rst, "Instances".
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from itertools import count

from sexton.errors import SourceAbsent, SourceDenied, SourceError
from sexton.sources.cgroupfs.layout import controller
from sexton.sources.host import Host
from sexton.sources.procfs import mountinfo
from sexton.sources.reader import failure, text
from sexton.sources.tracefs.detached import detached

DEFAULT_MOUNT = "/sys/kernel/tracing"
GRANT = f"sudo mount -t tracefs nodev {DEFAULT_MOUNT}"
AS_ROOT = "sudo sexton diagnose"
BUFFER_KB = 64
#: What one reading takes at most; the rest stays in the buffer for the next one.
_MOST_BYTES = 4 << 20
_EVENTS = ("cgroup_mkdir", "cgroup_rmdir", "cgroup_release")
_NAME = re.compile(r"sexton-([0-9]+)-([0-9]+)-[0-9]+", re.ASCII)
_LOST = re.compile(
    r"^(?:overrun|commit overrun|dropped events): ([0-9]+)$", re.ASCII | re.MULTILINE
)
_numbers = count(1)


class CgroupTrace:
    """An armed instance; `close` removes it. Usable as a context manager."""

    def __init__(self, host: Host, buffer_kb: int = BUFFER_KB) -> None:
        host.require_live(DEFAULT_MOUNT)
        self._host = host
        self.root = _memory_root(host)
        self._pipe = -1
        place, self._mount = _place(host)
        instances = f"{place}/instances"
        remove_stale(host, instances)
        own = f"sexton-{os.getpid()}-{_start_time(host, os.getpid())}-{next(_numbers)}"
        self.path = f"{instances}/{own}"
        self._rest = b""
        self._lost = 0
        try:
            os.mkdir(self.path)
        except OSError as error:
            self.close()
            raise failure(self.path, error) from None
        try:
            self._arm(buffer_kb)
            self._lost = self._lost_so_far()
        except (OSError, SourceError) as error:
            self.close()
            if isinstance(error, OSError):
                raise failure(error.filename or self.path, error) from None
            raise

    def __enter__(self) -> CgroupTrace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> str:
        """Whole lines that came since the last call; never waits."""
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

    def lost(self) -> int:
        """How many records the buffer lost since the last call."""
        now = self._lost_so_far()
        lost, self._lost = now - self._lost, now
        return max(0, lost)

    def close(self) -> None:
        """Take the instance away; its events with it."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        with contextlib.suppress(OSError):  # next time it is stale, and removed then
            os.rmdir(self.path)
        if self._mount is not None:
            os.close(self._mount)
            self._mount = None

    def _arm(self, buffer_kb: int) -> None:
        _write(f"{self.path}/buffer_size_kb", str(buffer_kb))
        _write(f"{self.path}/trace_clock", "mono")
        # Read before the first event, so that none is missed.
        self._pipe = os.open(f"{self.path}/trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        for event in _EVENTS:
            _write(f"{self.path}/events/cgroup/{event}/filter", f"root=={self.root}")
            _write(f"{self.path}/events/cgroup/{event}/enable", "1")

    def _lost_so_far(self) -> int:
        files = self._host.files
        total = 0
        for core in files.names(f"{self.path}/per_cpu"):
            counted = text(files, f"{self.path}/per_cpu/{core}/stats")
            total += sum(int(number) for number in _LOST.findall(counted))
        return total


def find_tracefs(host: Host) -> str:
    """Where tracefs is mounted, by itself or inside debugfs."""
    mounts = list(mountinfo.parse(text(host.files, f"{host.self_dir}/mountinfo")))
    own = [mount.mount_point for mount in mounts if mount.fstype == "tracefs"]
    inside = [f"{mount.mount_point}/tracing" for mount in mounts if mount.fstype == "debugfs"]
    for place in (*reversed(own), *reversed(inside)):
        try:
            host.files.status(f"{place}/events/cgroup/cgroup_rmdir")
        except SourceAbsent:
            continue
        return place
    if own or inside:
        where = (own or inside)[-1]
        raise SourceAbsent(f"{where}/events/cgroup", "this kernel has no cgroup trace events")
    raise SourceAbsent(DEFAULT_MOUNT, "tracefs is not mounted")


def _place(host: Host) -> tuple[str, int | None]:
    """Where tracefs can be reached: through a mount of our own, else through the node's.

    Ours first, since nobody can take it away while we read.
    """
    try:
        mount = detached("tracefs")
    except OSError as error:
        try:
            return find_tracefs(host), None
        except SourceDenied as denied:
            raise SourceDenied(DEFAULT_MOUNT, denied.detail, grant=AS_ROOT) from None
        except SourceAbsent as absent:
            if error.errno in (errno.EPERM, errno.EACCES):
                why = f"{absent.detail}, and only root may"
                raise SourceDenied(DEFAULT_MOUNT, why, grant=AS_ROOT) from None
            raise
    return f"/proc/self/fd/{mount}", mount


def remove_stale(host: Host, instances: str) -> int:
    """Remove what killed processes of ours left armed; how many that were."""
    removed = 0
    for name in host.files.names(instances):
        found = _NAME.fullmatch(name)
        if found is None or _start_time(host, int(found[1])) == int(found[2]):
            continue
        with contextlib.suppress(OSError):  # EBUSY: somebody reads it, whom we cannot see
            os.rmdir(f"{instances}/{name}")
            removed += 1
    return removed


def _memory_root(host: Host) -> int:
    memory = controller(host, "memory")
    return 0 if memory is None else memory.hierarchy


def _start_time(host: Host, pid: int) -> int | None:
    """In clock ticks since boot; `None` where there is no such process."""
    try:
        fields = text(host.files, f"/proc/{pid}/stat").rpartition(")")[2].split()
    except SourceError:
        return None
    return int(fields[19])


def _write(path: str, content: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content.encode())
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror, path) from None
    finally:
        os.close(descriptor)
