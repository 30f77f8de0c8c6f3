r"""A root file system in a tar (``docker export``, ``tar -C /mnt -c .``), plain or compressed.

Read from front to back, never unpacked to disk. Keeps the names of all members, and the contents of
those that configure a machine: small files under ``/etc`` and unit files. Another small file
(kubelet's configuration at an unusual path) is fetched from the tar when it is read. The formats
are those of tar(5): ustar, GNU long names, pax. `tarfile` is not used to iterate, because it trusts
a header on how much to read into memory.

How hostile members are handled: names with ``..`` are skipped and counted; absolute names start at
the tree's root; a hard link shares what the *tar* holds under that name; devices, FIFOs and files
larger than `MOST_FILE` are kept as names only; overlong or overly deep names are skipped. The
number of members, the bytes kept and the bytes read are bounded.

>>> pax_records(b"30 path=usr/lib/systemd/x.timer\n")
Traceback (most recent call last):
    ...
sexton.errors.StoreError: the tar is damaged: pax record of the wrong length
>>> pax_records(b"12 path=a/b\n13 size=1024\n")
{'path': 'a/b', 'size': '1024'}
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, cast

from sexton.errors import SourceMalformed, StoreError
from sexton.host.archive import ArchiveFiles
from sexton.host.reader import DEFAULT_LIMIT, FileStatus
from sexton.model.text import printable

MOST_MEMBERS = 1_000_000
MOST_KEPT = 128 << 20
MOST_FILE = 1 << 20
#: Long names and pax records; a path has at most 4,096 bytes on Linux.
MOST_HEADER = 64 << 10
MOST_STREAM = 64 << 30
MOST_DEPTH = 64
MOST_NAME = 4096
#: Files fetched from a compressed tar; each fetch decompresses it up to that file.
MOST_FETCHES = 8
_BLOCK = 512
_STEP = 1 << 20
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
_MEMORY = 256 << 20
#: Compressions that are read; others are refused with the command to decompress them.
_SUPPORTED = ("gzip", "bzip2", "xz")


class Compression(NamedTuple):
    """`command` decompresses it."""

    name: str
    command: str


_COMPRESSIONS: dict[bytes, Compression] = {
    b"\x1f\x8b": Compression("gzip", "gunzip"),
    b"BZh": Compression("bzip2", "bunzip2"),
    b"\xfd7zXZ\x00": Compression("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": Compression("zstd", "zstd -d"),
    b"\x04\x22\x4d\x18": Compression("lz4", "lz4 -d"),
    b"LZIP": Compression("lzip", "lzip -d"),
    b"\x89LZO\x00": Compression("lzop", "lzop -d"),
    b"PK\x03\x04": Compression("zip", "unzip"),
}


def compression_of(start: bytes) -> Compression | None:
    r"""By the first bytes of a file; `None` if it is not compressed.

    >>> compression_of(b"\x1f\x8b\x08")
    Compression(name='gzip', command='gunzip')
    """
    return next((found for magic, found in _COMPRESSIONS.items() if start.startswith(magic)), None)


def _decompressed(stream: BinaryIO, name: str) -> BinaryIO:
    """The decompressed stream; the stream itself if it is not compressed."""
    found = {
        "gzip": lambda: gzip.GzipFile(fileobj=stream),
        "bzip2": lambda: bz2.BZ2File(stream),
        "xz": lambda: io.BufferedReader(_Xz(stream)),
    }.get(name, lambda: stream)()
    return cast("BinaryIO", found)


class _Xz(io.RawIOBase):
    """An .xz stream, decompressed with at most `_MEMORY`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decompressor = lzma.LZMADecompressor(memlimit=_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            if self._decompressor.eof:  # an .xz file may hold several streams
                rest = self._decompressor.unused_data or self._stream.read(1 << 16)
                if not rest.strip(b"\0"):
                    return 0
                self._decompressor = lzma.LZMADecompressor(memlimit=_MEMORY)
                piece = self._decompressor.decompress(rest, len(buffer))
            else:
                given = self._stream.read(1 << 16) if self._decompressor.needs_input else b""
                if self._decompressor.needs_input and not given:
                    raise EOFError("unexpected end")
                piece = self._decompressor.decompress(given, len(buffer))
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)


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
        for kept in (self._contents, self._links, self._unreadable, self._deferred):
            kept.pop(path, None)

    def deferred(self, path: str) -> tuple[int, int] | None:
        """Offset and size of a file that has not been fetched."""
        return self._deferred.get(path)

    def content(self, path: str) -> bytes | None:
        """The contents a hard link to `path` shares; links are not followed."""
        return self._contents.get(path)

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


class Member(NamedTuple):
    """`kind` is "file", "link", "hard", "dir", or a description such as "a FIFO"."""

    name: str
    kind: str
    size: int
    target: str


class TarImage(NamedTuple):
    """The tree, and notes on skipped members."""

    files: ImageTree
    notes: tuple[str, ...]


def is_tar(start: bytes) -> bool:
    """Is this the first block of a tar, or of a compressed file?"""
    return start[257:262] == b"ustar" or compression_of(start) is not None


def read_tar(stream: BinaryIO) -> TarImage:
    """The tree of a tar; `StoreError` if it is no tar, is damaged, or exceeds the limits.

    The stream must stay open while the tree is in use.
    """
    start = stream.read(_BLOCK)
    compression = compression_of(start)
    if compression is not None and compression.name not in _SUPPORTED:
        raise StoreError(
            f"compressed with {compression.name}, which is not supported:"
            f" run {compression.command} FILE and use the result"
        )
    name = "" if compression is None else compression.name
    tree = ImageTree(_Fetch(stream, name))
    try:
        with _damage_reported():
            return _fill(tree, _source(stream, name))
    except _NotATarError:
        if compression is None:
            raise StoreError("not a tar") from None
        raise StoreError(
            f"compressed with {name}, but not a tar: run {compression.command} FILE and use the"
            " result"
        ) from None


class _NotATarError(StoreError):
    """The first block is not a tar header."""


@contextmanager
def _damage_reported() -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise StoreError(f"the tar is damaged or truncated: {error}") from None
    except OSError as error:
        raise StoreError(f"cannot read the tar: {error}") from None


def _source(stream: BinaryIO, compression: str) -> _Source:
    """The decompressed tar, from its start."""
    stream.seek(0)
    return _Source(_decompressed(stream, compression), seekable=not compression)


class _Fetch:
    """Reads one more file, by its offset in the decompressed tar."""

    def __init__(self, stream: BinaryIO, compression: str) -> None:
        self._stream = stream
        self._compression = compression
        self._left = MOST_FETCHES

    def __call__(self, offset: int, size: int) -> bytes:
        if self._compression:
            if not self._left:
                raise StoreError(
                    f"not read: more than {MOST_FETCHES} such files in a compressed tar"
                )
            self._left -= 1
        with _damage_reported():
            source = _source(self._stream, self._compression)
            source.skip(offset)
            return source.take(source.padded(size))[:size]


class _Source:
    """A stream read forwards that counts its position and can skip."""

    def __init__(self, stream: BinaryIO, seekable: bool) -> None:
        self._stream = stream
        self._end = _length(stream) if seekable else None
        self.at = 0

    def take(self, size: int) -> bytes:
        piece = self._stream.read(size)
        self.at += len(piece)
        if len(piece) < size and size > _BLOCK:
            raise EOFError("it ends inside a member")
        return piece

    def skip(self, size: int) -> None:
        self.at += size
        if self.at > MOST_STREAM:
            raise StoreError(f"the tar is larger than {MOST_STREAM >> 30} GB uncompressed")
        if self._end is not None:
            if self.at > self._end:
                raise EOFError("it ends inside a member")
            self._stream.seek(size, io.SEEK_CUR)
            return
        while size > 0:
            piece = self._stream.read(min(size, _STEP))
            if not piece:
                raise EOFError("it ends inside a member")
            size -= len(piece)

    def padded(self, size: int) -> int:
        return -(-size // _BLOCK) * _BLOCK


def _length(stream: BinaryIO) -> int:
    """The file's size; leaves it at the start."""
    length = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    return length


def _fill(tree: ImageTree, source: _Source) -> TarImage:
    outside = invalid = kept = 0
    seen_layers = False
    disks: list[str] = []
    for member in _members(source):
        path = _tree_path(member.name)
        if path is None:
            outside += ".." in member.name.split("/")
            invalid += ".." not in member.name.split("/")
            source.skip(source.padded(member.size))
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
            tree.add_file(path, source.take(source.padded(member.size))[: member.size])
            continue
        _add(tree, path, member, source.at)
        source.skip(source.padded(member.size))
    if seen_layers:
        raise StoreError(
            "a layered image (docker save, OCI): run docker create IMAGE, then docker export"
        )
    if disks and not {"etc", "usr"} & set(tree.names("/")):
        raise StoreError(f"a tar that holds a disk image ({printable(disks[0])}): {_UNPACK_DISK}")
    return TarImage(tree, tuple(_notes(outside, invalid)))


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


def _members(source: _Source) -> Iterator[Member]:
    """Each member, with the source at the start of its contents."""
    names: dict[str, str] = {}
    for number in range(MOST_MEMBERS + 1):
        block = source.take(_BLOCK)
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            if number == 0:
                raise _NotATarError("not a tar") from None
            if not _is_end(block):
                raise StoreError(f"the tar is damaged or truncated: {error}") from None
            return
        except (ValueError, OverflowError) as error:
            raise StoreError(f"the tar is damaged: {error}") from None
        if header.size < 0:
            raise StoreError("the tar is damaged: negative member size")
        if header.type in (b"L", b"K", b"x", b"X"):
            names |= _long_names(header, source)
            continue
        if header.type == b"g":  # global pax header: nothing in it is used
            source.skip(source.padded(header.size))
            continue
        if header.type == b"S":
            _skip_sparse_map(block, source)
        yield _member(header, names)
        names = {}
    raise StoreError(f"the tar has more than {MOST_MEMBERS:,} members")


def _is_end(block: bytes) -> bool:
    """A tar ends with a block of zeros; some writers just stop."""
    return not block.strip(b"\0")


def _long_names(header: tarfile.TarInfo, source: _Source) -> dict[str, str]:
    if header.size > MOST_HEADER:
        raise StoreError(f"the tar has a name with {header.size:,} bytes")
    raw = source.take(source.padded(header.size))[: header.size]
    if header.type in (b"x", b"X"):
        return pax_records(raw)
    key = "path" if header.type == b"L" else "linkpath"
    return {key: raw.rstrip(b"\0").decode("utf-8", "surrogateescape")}


def pax_records(raw: bytes) -> dict[str, str]:
    """``LENGTH KEY=VALUE`` lines, where LENGTH counts the whole line."""
    found = {}
    while raw:
        word, _, _ = raw[:21].partition(b" ")
        length = int(word) if word.isdigit() and len(word) <= 20 else 0
        line = raw[:length]
        key, equals, value = line[len(word) + 1 : -1].partition(b"=")
        if not equals or line[-1:] != b"\n" or len(line) != length:
            raise StoreError("the tar is damaged: pax record of the wrong length")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        raw = raw[length:]
    return found


def _member(header: tarfile.TarInfo, names: dict[str, str]) -> Member:
    size = header.size
    pax_size = names.get("size", "")
    if pax_size:
        if not (pax_size.isascii() and pax_size.isdigit() and len(pax_size) < 20):
            raise StoreError("the tar is damaged: invalid pax size")
        size = int(pax_size)
    name, target = names.get("path", header.name), names.get("linkpath", header.linkname)
    if any(key.startswith("GNU.sparse") for key in names) or header.type == b"S":
        return Member(names.get("GNU.sparse.name", name), "a sparse file", size, "")
    if header.type == b"2":
        return Member(name, "link", 0, target)
    if header.type == b"1":
        return Member(name, "hard", 0, target)
    if header.type in (b"3", b"4", b"6"):
        return Member(name, "a FIFO" if header.type == b"6" else "a device", 0, "")
    if header.type == b"5" or (header.type == b"\0" and name.endswith("/")):
        return Member(name, "dir", 0 if header.type == b"5" else size, "")
    return Member(name, "file", size, "")


def _skip_sparse_map(block: bytes, source: _Source) -> None:
    """In GNU's old sparse format each block says whether another one follows."""
    more = block[482]
    for _ in range(1 << 16):
        if not more:
            return
        more = source.take(_BLOCK).ljust(_BLOCK, b"\0")[504]
    raise StoreError("the tar is damaged: sparse map too long")
