r"""statvfs(2): space, inodes and state of local filesystems.

`/proc/self/mountinfo` lists them; the system call says how full each is. It may hang for as long
as a dying disk does, and a thread that hangs in the kernel keeps its process from ending. So it is
called by `stat` of coreutils or busybox, a child that can be left behind::

    $ stat -f -c '%S %b %f %a %c %d %n' -- / /dev/shm
    4096 65945894 60106411 17821689 16777216 16319405 /
    4096 6171025 6170297 6170297 3085512 3085490 /dev/shm

Fields: block size, blocks, free blocks, those free for users other than root (ext4 keeps 5 % for
root by default), inodes, free inodes, mount point.

Quirks: only filesystems on disks and tmpfs are queried, each once, by its shortest mount
point; never NFS, FUSE or autofs, nor anything mounted below those, which hang with their servers.
A mount point that another mount hides is left out. A filesystem that did not answer is not queried
again. btrfs has no number of inodes (0); XFS creates them as needed and says how many would fit.
Not through ``--root`` or in an archive: there, only the state is known.

>>> parse("4096 100 60 10 0 0 /mnt/my data\n")
{'/mnt/my data': Space(total=409600, free=245760, available=40960, inodes=0, free_inodes=0)}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceError, SourceMalformed, SourceTimeout
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.host.runner import run
from sexton.model.rows.filesystem import Filesystem
from sexton.sources.procfs.mountinfo import MountLine, lines
from sexton.sources.registry import Reading, source

PATH = "statvfs(2)"
_COMMAND = ("stat", "-f", "-c", "%S %b %f %a %c %d %n", "--")
#: A node with many pods has a tmpfs for each; disks come first.
MOST = 64
_DISKS = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "jfs", "reiserfs", "vfat", "zfs"}
)
_LOCAL = _DISKS | {"tmpfs"}
#: Below these a path may lead through a server that does not answer.
_REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs", "autofs"}
    | {"glusterfs", "ocfs2", "gfs2", "virtiofs", "orangefs", "wekafs"}
)
_NOT_HERE = ("/proc/", "/sys/")
_ALL_S, _ONE_S = 1.0, 0.3


class Space(NamedTuple):
    """What `stat` reported of one filesystem: bytes, and numbers of inodes."""

    total: int
    free: int
    available: int
    inodes: int
    free_inodes: int


class Found(NamedTuple):
    """A local filesystem to query."""

    mount_point: str
    device: str
    source: str
    fstype: str
    read_only: bool
    mount_read_only: bool


def parse(output: str) -> dict[str, Space]:
    """The lines of `stat` by mount point."""
    found = {}
    for number, line in enumerate(output.split("\n"), 1):
        if not line:
            continue
        *digits, point = line.split(" ", 6)
        if len(digits) != 6 or not all(map(_is_number, digits)):
            raise SourceMalformed(PATH, number, "not six numbers and a mount point")
        size, total, free, available, inodes, free_inodes = map(int, digits)
        found[point] = Space(size * total, size * free, size * available, inodes, free_inodes)
    return found


def local(mountinfo: str) -> list[Found]:
    """The local filesystems of a mountinfo, disks first, at most `MOST`."""
    visible: dict[str, MountLine] = {}
    for line in lines(mountinfo):
        visible[line.mount_point] = line
    remote = (f"{point}/" for point, line in visible.items() if _is_remote(line.fstype))
    skipped = (*_NOT_HERE, *remote)
    by_device: dict[str, list[MountLine]] = {}
    for point, line in visible.items():
        if line.fstype in _LOCAL and "\n" not in point and not point.startswith(skipped):
            by_device.setdefault(line.device, []).append(line)
    found = [_found(mounts) for mounts in by_device.values()]
    found.sort(key=lambda item: (item.fstype not in _DISKS, item.mount_point))
    return found[:MOST]


def _is_remote(fstype: str) -> bool:
    return fstype in _REMOTE or fstype.startswith("fuse")


def _found(mounts: list[MountLine]) -> Found:
    first = min(mounts, key=lambda line: (len(line.mount_point), line.mount_point))
    options = first.super_options.split(",")
    read_only = "ro" in options or "emergency_ro" in options or "shutdown" in options
    closed = all("ro" in line.options for line in mounts)
    return Found(first.mount_point, first.device, first.source, first.fstype, read_only, closed)


def _is_number(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) < 20


@source(PATH, rows=(Filesystem,), period_s=60.0, deadline_s=5.0)
class Filesystems(Reading):
    """A row per local filesystem."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._hung: set[str] = set()

    def collect(self) -> Iterator[Filesystem]:
        found = local(text(self._files, f"{self._host.self_dir}/mountinfo"))
        spaces = self._spaces([item.mount_point for item in found]) if self._host.live else {}
        for item in found:
            point = item.mount_point
            total, free, available, inodes, free_inodes = spaces.get(point, (None,) * 5)
            yield Filesystem(
                point, self._name(item), item.fstype, item.read_only, item.mount_read_only,
                total, free, available, inodes, free_inodes, point in self._hung,
            )  # fmt: skip

    def _spaces(self, points: Iterable[str]) -> dict[str, Space]:
        wanted = [point for point in points if point not in self._hung]
        try:
            return _query(wanted, _ALL_S)
        except SourceTimeout:
            pass
        found: dict[str, Space] = {}
        for point in wanted:  # one by one, up to the one that hangs; the rest next time
            try:
                found |= _query([point], _ONE_S)
            except SourceTimeout:
                self._hung.add(point)
                break
        return found

    def _name(self, item: Found) -> str:
        """The kernel's name of the disk, as in its log; a mapped one has another in `/dev`."""
        if item.fstype not in _DISKS:
            return ""
        try:
            return self._files.link(f"/sys/dev/block/{item.device}").rpartition("/")[2]
        except SourceError:
            return item.source.rpartition("/")[2]


def _query(points: list[str], deadline_s: float) -> dict[str, Space]:
    if not points:
        return {}
    try:
        ended = run([*_COMMAND, *points], deadline_s)
    except SourceAbsent:
        return {}
    return parse(ended.output.decode("utf-8", "surrogateescape"))
