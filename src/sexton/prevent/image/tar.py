r"""A root file system in a tar (``docker export``, ``tar -C /mnt -c .``), plain or compressed.

Read from front to back (`sexton.host.tar`), never unpacked to disk. Keeps the names of all members,
and the contents of those that configure a machine: small files under ``/etc`` and unit files.
Another small file (kubelet's configuration at an unusual path) is fetched from the tar when it is
read.

How hostile members are handled: names with ``..`` are skipped and counted; absolute names start at
the tree's root; a hard link shares what the *tar* holds under that name; devices, FIFOs and files
larger than `MOST_FILE` are kept as names only; overlong or overly deep names are skipped. The
number of members, the bytes kept and the bytes read are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from sexton.errors import SourceMalformed, StoreError
from sexton.host.archive import ArchiveFiles
from sexton.host.reader import DEFAULT_LIMIT, FileStatus
from sexton.host.tar import (
    BLOCK,
    SUPPORTED,
    Expansion,
    Member,
    NotATarError,
    TarStream,
    compression_of,
    damage_reported,
    length_of,
    members,
    padded,
)
from sexton.model.text import printable

MOST_KEPT = 128 << 20
MOST_FILE = 1 << 20
MOST_DEPTH = 64
MOST_NAME = 4096
#: Files fetched from a compressed tar; each fetch decompresses it up to that file.
MOST_FETCHES = 8
#: Paths that configure a machine; their contents are kept.
KEPT = (
    "etc/",
    "usr/lib/systemd/",
    "lib/systemd/",
    "usr/local/lib/systemd/",
    "usr/lib/os-release",
    "usr/share/dbus-1/system-services/",
    "var/lib/kubelet/",
    "opt/aws/",
    "run/systemd/",
    "boot/grub/",
    "boot/grub2/",
    "boot/loader/",
    "boot/cmdline.txt",
    "boot/firmware/cmdline.txt",
    "home/kubernetes/",
    "proc/",
    "sys/fs/cgroup/",
)
#: Disk images packed in a tar: an OVA, Google's disk.raw, Vagrant's box.img.
_DISKS = (".ovf", ".vmdk", ".raw", ".img", ".qcow2", ".vhd", ".vhdx")
_UNPACK_DISK = "tar -xf FILE, then qemu-img convert -O raw DISK OUT, and use OUT"


class ImageTree(ArchiveFiles):
    """A tree in memory in which some files have no contents yet, or are known by name only.

    `fetch` reads a file's contents on demand, by the offset and size it was added with.
    """

    def __init__(self, fetch: Callable[[int, int], bytes] | None = None) -> None:
        super().__init__()
        self._unreadable: dict[str, str] = {}
        self._deferred: dict[str, tuple[int, int]] = {}
        self._fetch = fetch

    def add_unreadable(self, path: str, why: str) -> None:
        """A file known by name only."""
        self._unreadable[self._enter(path, is_dir=False)] = why

    def add_deferred(self, path: str, offset: int, size: int) -> None:
        """A file whose contents are fetched on the first read."""
        self._deferred[self._enter(path, is_dir=False)] = offset, size

    def forget(self, path: str) -> None:
        """Drop a file: a later member of a tar replaces an earlier one of the same name."""
        for kept in (self._entries, self._unreadable, self._deferred):
            kept.pop(path, None)

    def deferred(self, path: str) -> tuple[int, int] | None:
        """Offset and size of a file that has not been fetched."""
        return self._deferred.get(path)

    def content(self, path: str) -> bytes | memoryview | None:
        """The contents a hard link to `path` shares; links are not followed."""
        entry = self._entries.get(path)
        return entry if isinstance(entry, (bytes, memoryview)) else None

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        found = self._find(path)
        why = self._unreadable.get(found)
        if why is not None:
            raise SourceMalformed(path, 0, why)
        deferred = self._deferred.get(found)
        if deferred is not None and self._fetch is not None:
            if deferred[1] > limit:
                raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
            try:
                content = self._fetch(*deferred)
            except StoreError as error:
                raise SourceMalformed(path, 0, str(error)) from None
            self.forget(found)
            self.add_file(found, content)
        return super().read(path, limit)

    def status(self, path: str) -> FileStatus:
        found = self._find(path, last=False)
        if found in self._unreadable or found in self._deferred:
            return FileStatus(0, 1, is_dir=False)
        return super().status(path)


class TarImage(NamedTuple):
    """The tree, and notes on skipped members; `incomplete` says why its end is missing."""

    files: ImageTree
    notes: tuple[str, ...]
    incomplete: str


def is_tar(start: bytes) -> bool:
    """Whether this is the first block of a tar or of a compressed file."""
    return start[257:262] == b"ustar" or compression_of(start) is not None


def read_tar(stream: BinaryIO) -> TarImage:
    """The tree of a tar; `StoreError` if it is no tar, is damaged, or exceeds the limits.

    The stream must stay open while the tree is in use.
    """
    start = stream.read(BLOCK)
    compression = compression_of(start)
    if compression is not None and compression.name not in SUPPORTED:
        raise StoreError(
            f"compressed with {compression.name}, which is not supported:"
            f" run {compression.command} FILE and use the result"
        )
    fetch = _Fetch(stream, start)
    try:
        with damage_reported():
            return _fill(ImageTree(fetch), fetch.source())
    except NotATarError:
        if compression is None:
            raise StoreError("not a tar") from None
        raise StoreError(
            f"compressed with {compression.name}, but not a tar: run {compression.command} FILE and"
            " use the result"
        ) from None


class _Fetch:
    """Reads one more file, by its offset in the decompressed tar."""

    def __init__(self, stream: BinaryIO, start: bytes) -> None:
        self._stream = stream
        self._start = start
        self._expansion = Expansion(length_of(stream))
        self._left = MOST_FETCHES

    def source(self) -> TarStream:
        """The tar from its start."""
        return TarStream(self._stream, self._expansion, self._start, seekable=True)

    def __call__(self, offset: int, size: int) -> bytes:
        if compression_of(self._start) is not None:
            if not self._left:
                raise StoreError(
                    f"not read: more than {MOST_FETCHES} such files in a compressed tar"
                )
            self._left -= 1
        with damage_reported():
            source = self.source()
            source.skip(offset)
            return source.content(size)


def _fill(tree: ImageTree, source: TarStream) -> TarImage:
    outside = invalid = kept = 0
    seen_layers = False
    disks: list[str] = []
    for member in members(source):
        path = _tree_path(member.name)
        if path is None:
            outside += ".." in member.name.split("/")
            invalid += ".." not in member.name.split("/")
            source.skip(padded(member.size))
            continue
        seen_layers |= path.endswith("/layer.tar") or path.startswith("/blobs/sha256/")
        if path.count("/") == 1 and path.endswith(_DISKS):
            disks.append(path[1:])
        if member.kind == "file" and path[1:].startswith(KEPT) and member.size <= MOST_FILE:
            kept += member.size
            if kept > MOST_KEPT:
                raise StoreError(
                    f"the tar has more than {MOST_KEPT >> 20} MB of configuration files"
                )
            tree.forget(path)
            tree.add_file(path, source.content(member.size))
            continue
        _add(tree, path, member, source.at)
        source.skip(padded(member.size))
    if seen_layers:
        raise StoreError(
            "a layered image (docker save, OCI): run docker create IMAGE, then docker export"
        )
    if disks and not {"etc", "usr"} & set(tree.names("/")):
        raise StoreError(f"a tar that holds a disk image ({printable(disks[0])}): {_UNPACK_DISK}")
    return TarImage(tree, tuple(_notes(outside, invalid)), source.incomplete)


def _add(tree: ImageTree, path: str, member: Member, offset: int) -> None:
    """Add a member whose contents, at `offset`, are not kept."""
    if member.kind == "dir":
        tree.add_directory(path)
        return
    target = _tree_path(member.target) or ""
    shared, deferred = tree.content(target), tree.deferred(target)
    tree.forget(path)
    if member.kind == "link":
        tree.add_link(path, member.target[:MOST_NAME])
    elif member.kind == "hard" and shared is not None:
        tree.add_file(path, shared)
    elif member.kind == "hard" and deferred is not None:
        tree.add_deferred(path, *deferred)
    elif member.kind == "hard":
        tree.add_unreadable(path, "a hard link to a file that is not kept")
    elif member.kind != "file":
        tree.add_unreadable(path, member.kind)
    elif member.size > MOST_FILE:
        tree.add_unreadable(path, f"larger than {MOST_FILE:,} bytes")
    else:
        tree.add_deferred(path, offset, member.size)


def _notes(outside: int, invalid: int) -> Iterator[str]:
    if outside:
        yield f"{outside:,} members skipped: .. in their names"
    if invalid:
        yield f"{invalid:,} members skipped: names too long or too deep"


def _tree_path(name: str) -> str | None:
    """A member's path in the tree; `None` if it must be skipped.

    >>> names = ("./etc//passwd", "/etc/shadow", "a/../../b", "./")
    >>> tuple(map(_tree_path, names))
    ('/etc/passwd', '/etc/shadow', None, '/')
    """
    if len(name) > MOST_NAME:
        return None
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(parts) > MOST_DEPTH or any("\0" in part for part in parts):
        return None
    return "/" + "/".join(parts)
