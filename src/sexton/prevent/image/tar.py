r"""A root file system in a tar (``docker export``, ``tar -C /mnt -c .``), plain or compressed.

Read from front to back, never unpacked. Names of all members are kept, and the contents of those
that say how a machine is set up: everything small under ``/etc`` and the unit files. Another small
file that is asked for (kubelet's configuration in a place of somebody's own) is looked up again.
The formats are those of tar(5): ustar, GNU's long names, pax. Written here and not left to
`tarfile`, which believes a header's word on how much to read into memory.

What a hostile tar may hold, and what becomes of it: a member with ``..`` is left out and counted;
an absolute name begins at the tree's root; a hard link shares what the *tar* holds under that name,
or nothing; devices and FIFOs are names; names of absurd length or depth are left out; what is
larger than `MOST_FILE` is a name; and the whole is bounded in members, bytes kept and bytes read.

>>> pax_records(b"30 path=usr/lib/systemd/x.timer\n")
Traceback (most recent call last):
    ...
sexton.errors.StoreError: the tar is damaged: a pax record that lies about its length
>>> pax_records(b"12 path=a/b\n13 size=1024\n")
{'path': 'a/b', 'size': '1024'}
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from sexton.errors import StoreError
from sexton.model.text import printable
from sexton.prevent.image.packing import READ, packing_of, unpacked
from sexton.prevent.image.tree import ImageTree

MOST_MEMBERS = 1_000_000
MOST_KEPT = 128 << 20
MOST_FILE = 1 << 20
#: A header's own texts: a path is at most 4,096 bytes on Linux.
MOST_HEADER = 64 << 10
MOST_STREAM = 64 << 30
MOST_DEPTH = 64
MOST_NAME = 4096
#: Files that are looked up again in a packed tar: each time it is unpacked as far as there.
MOST_AGAIN = 8
_BLOCK = 512
_STEP = 1 << 20
#: Where a machine's set-up is written down; other files are only names.
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


#: Disks travel in tars, too: an appliance (OVA), Google's disk.raw, Vagrant's box.img.
_DISKS = (".ovf", ".vmdk", ".raw", ".img", ".qcow2", ".vhd", ".vhdx")
_UNPACK_DISK = "tar -xf FILE, then qemu-img convert -O raw DISK OUT, and give that"


class Member(NamedTuple):
    """One member: `kind` is "file", "link", "hard", "dir" or what else it is, in words."""

    name: str
    kind: str
    size: int
    target: str


class TarImage(NamedTuple):
    """The tree, and what a reader should know of how it was read."""

    files: ImageTree
    notes: tuple[str, ...]


def is_tar(start: bytes) -> bool:
    """Does this look like a tar's first block, or like something a tar is packed in?"""
    return start[257:262] == b"ustar" or packing_of(start) is not None


def read_tar(stream: BinaryIO) -> TarImage:
    """The tree of a tar; `StoreError` where it is none, is damaged, or is more than we take.

    The stream has to stay open as long as the tree is read.
    """
    start = stream.read(_BLOCK)
    packing = packing_of(start)
    if packing is not None and packing.name not in READ:
        told = f"packed with {packing.name}, which is not read here"
        raise StoreError(f"{told}: {packing.unpack} FILE, and give what comes out")
    name = "" if packing is None else packing.name
    tree = ImageTree(_Again(stream, name))
    try:
        with _damage_told():
            return _fill(tree, _opened(stream, name))
    except _NoTarError:
        if packing is None:
            raise StoreError("no tar") from None
        told = f"packed with {name}, and no tar is in it"
        raise StoreError(f"{told}: {packing.unpack} FILE, and give what comes out") from None


class _NoTarError(StoreError):
    """Its very first block is no header."""


@contextmanager
def _damage_told() -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise StoreError(f"the tar is damaged or cut short: {error}") from None
    except OSError as error:
        raise StoreError(f"the tar cannot be read: {error}") from None


def _opened(stream: BinaryIO, packing: str) -> _Source:
    """The plain tar, from its beginning."""
    stream.seek(0)
    return _Source(unpacked(stream, packing), seekable=not packing)


class _Again:
    """Looks up one more file, by where it lies in the plain tar."""

    def __init__(self, stream: BinaryIO, packing: str) -> None:
        self._stream = stream
        self._packing = packing
        self._left = MOST_AGAIN

    def __call__(self, place: int, size: int) -> bytes:
        if self._packing:
            if not self._left:
                raise StoreError("not kept from the tar, which was unpacked often enough already")
            self._left -= 1
        with _damage_told():
            source = _opened(self._stream, self._packing)
            source.skip(place)
            return source.take(source.padded(size))[:size]


class _Source:
    """A stream read forwards, counted, and skipped over without keeping what is skipped."""

    def __init__(self, stream: BinaryIO, seekable: bool) -> None:
        self._stream = stream
        self._end = _length(stream) if seekable else None
        self.at = 0

    def take(self, size: int) -> bytes:
        piece = self._stream.read(size)
        self.at += len(piece)
        if len(piece) < size and size > _BLOCK:
            raise EOFError("ends inside a member")
        return piece

    def skip(self, size: int) -> None:
        self.at += size
        if self.at > MOST_STREAM:
            raise StoreError(f"the tar is larger than {MOST_STREAM >> 30} GB unpacked")
        if self._end is not None:
            if self.at > self._end:
                raise EOFError("ends inside a member")
            self._stream.seek(size, io.SEEK_CUR)
            return
        while size > 0:
            piece = self._stream.read(min(size, _STEP))
            if not piece:
                raise EOFError("ends inside a member")
            size -= len(piece)

    def padded(self, size: int) -> int:
        return -(-size // _BLOCK) * _BLOCK


def _length(stream: BinaryIO) -> int:
    """The file's size, from its beginning."""
    length = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    return length


def _fill(tree: ImageTree, source: _Source) -> TarImage:
    outside = strange = kept = 0
    seen_layers = False
    disks: list[str] = []
    for member in _members(source):
        path = _place(member.name)
        if path is None:
            outside += ".." in member.name.split("/")
            strange += ".." not in member.name.split("/")
            source.skip(source.padded(member.size))
            continue
        seen_layers |= path.endswith("/layer.tar") or path.startswith("/blobs/sha256/")
        if path.count("/") == 1 and path.endswith(_DISKS):
            disks.append(path[1:])
        if member.kind == "file" and path[1:].startswith(KEPT) and member.size <= MOST_FILE:
            kept += member.size
            if kept > MOST_KEPT:
                raise StoreError(f"the tar has more than {MOST_KEPT >> 20} MB of settings")
            tree.forget(path)
            tree.add_file(path, source.take(source.padded(member.size))[: member.size])
            continue
        _name(tree, path, member, source.at)
        source.skip(source.padded(member.size))
    if seen_layers:
        raise StoreError(
            "this is an image in layers (docker save, OCI): docker create IMAGE, then docker export"
        )
    if disks and not {"etc", "usr"} & set(tree.names("/")):
        raise StoreError(f"a tar with a disk in it ({printable(disks[0])}): {_UNPACK_DISK}")
    return TarImage(tree, tuple(_notes(outside, strange)))


def _name(tree: ImageTree, path: str, member: Member, place: int) -> None:
    """A member whose contents are not kept; `place` is where they lie."""
    if member.kind == "dir":
        tree.add_directory(path)
        return
    target = _place(member.target) or ""
    shared, later = tree.content(target), tree.later(target)
    tree.forget(path)
    if member.kind == "link":
        tree.add_link(path, member.target[:MOST_NAME])
    elif member.kind == "hard" and shared is not None:
        tree.add_file(path, shared)
    elif member.kind == "hard" and later is not None:
        tree.add_later(path, *later)
    elif member.kind == "hard":
        tree.add_closed(path, "a hard link to a file whose contents are not kept")
    elif member.kind != "file":
        tree.add_closed(path, member.kind)
    elif _big(member):
        tree.add_closed(path, f"larger than {MOST_FILE:,} bytes")
    else:
        tree.add_later(path, place, member.size)


def _big(member: Member) -> bool:
    return member.kind == "file" and member.size > MOST_FILE


def _notes(outside: int, strange: int) -> Iterator[str]:
    if outside:
        yield f"{outside:,} members with .. in their names would lead out of the tree: left out"
    if strange:
        yield f"{strange:,} members with names too long or too deep for a file system: left out"


def _place(name: str) -> str | None:
    """The path a member has in the tree; `None` for one that must not be there.

    >>> _place("./etc//passwd"), _place("/etc/shadow"), _place("a/../../b"), _place("./")
    ('/etc/passwd', '/etc/shadow', None, '/')
    """
    if len(name) > MOST_NAME:
        return None
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(parts) > MOST_DEPTH or any("\0" in part for part in parts):
        return None
    return "/" + "/".join(parts)


def _members(source: _Source) -> Iterator[Member]:
    """Each member, with the source at the beginning of its contents."""
    names: dict[str, str] = {}
    for number in range(MOST_MEMBERS + 1):
        block = source.take(_BLOCK)
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            if number == 0:
                raise _NoTarError("no tar") from None
            if not _is_end(block):
                raise StoreError(f"the tar is damaged or cut short: {error}") from None
            return
        except (ValueError, OverflowError) as error:
            raise StoreError(f"the tar is damaged: {error}") from None
        if header.size < 0:
            raise StoreError("the tar is damaged: a member of negative size")
        if header.type in (b"L", b"K", b"x", b"X"):
            names |= _texts(header, source)
            continue
        if header.type == b"g":  # for all that follows: nothing in it is ours to use
            source.skip(source.padded(header.size))
            continue
        if header.type == b"S":
            _skip_sparse_map(block, source)
        yield _member(header, names)
        names = {}
    raise StoreError(f"the tar has more than {MOST_MEMBERS:,} members")


def _is_end(block: bytes) -> bool:
    """A block of zeros ends a tar; some writers just stop."""
    return not block.strip(b"\0")


def _texts(header: tarfile.TarInfo, source: _Source) -> dict[str, str]:
    if header.size > MOST_HEADER:
        raise StoreError(f"the tar has a name of {header.size:,} bytes")
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
            raise StoreError("the tar is damaged: a pax record that lies about its length")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        raw = raw[length:]
    return found


def _member(header: tarfile.TarInfo, names: dict[str, str]) -> Member:
    size = header.size
    told = names.get("size", "")
    if told:
        if not (told.isascii() and told.isdigit() and len(told) < 20):
            raise StoreError("the tar is damaged: a size that is no number")
        size = int(told)
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
    """GNU's old sparse format goes on in further blocks as long as each says so."""
    more = block[482]
    for _ in range(1 << 16):
        if not more:
            return
        more = source.take(_BLOCK).ljust(_BLOCK, b"\0")[504]
    raise StoreError("the tar is damaged: a sparse map without end")
