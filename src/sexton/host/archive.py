r"""The tar that ``sexton collect``'s script writes: a host's files at a few moments.

Layout (``sexton.collect/1``)::

    manifest             "sexton.collect/1", then "snapshots 3", "seconds 10", "notes …"
    0/bundle             what does not change between the snapshots; part of every snapshot
    1/bundle  2/bundle   what was read at each moment
    1/proc/stat          plain members are read too, so that a tree can be packed by hand

A bundle holds many small files without a header block for each (so a shell can write it without
starting a process per file)::

    sexton.bundle/1 0b9a…                a random mark
                                         (each entry starts on a line of its own)
    0b9a… file /proc/stat                and the file's bytes follow, up to the next mark
    0b9a… link /sys/class/net/eth0       the target follows
    0b9a… denied /dev/kmsg               exists, but the collecting user may not read it
    0b9a… late /commands/systemctl_show  a program that did not end in time; its output is dropped
    0b9a… dir                            lines of inode, link count and path follow
    0b9a… end

Nothing is ever unpacked to this machine's disk and no link is followed on it: the tree is in
memory, and a link that leads out of it is dangling. Every limit below is checked while reading, so
a zip bomb is refused early.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections import deque
from collections.abc import Container
from typing import BinaryIO, NamedTuple, cast

from sexton.errors import SourceAbsent, SourceDenied, SourceMalformed, SourceTimeout, StoreError
from sexton.host.reader import DEFAULT_LIMIT, Files, FileStatus

SCHEMA = "sexton.collect/1"
BUNDLE_SCHEMA = "sexton.bundle/1"
MOST_BYTES = 256 << 20
MOST_MEMBERS = 400_000
MOST_SNAPSHOTS = 100
#: The script reads one byte more than this of a file, so that truncation is detected.
FILE_LIMIT = 4 << 20
_MOST_LINKS = 40


class Snapshot(NamedTuple):
    """A host at one moment (monotonic and UNIX seconds)."""

    files: Files
    moment: tuple[float, float]


class ArchiveFiles:
    """A host's tree in memory. Paths are looked up as recorded first, then through its links."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._denied: set[str] = set()
        self._late: set[str] = set()
        self._statuses: dict[str, FileStatus] = {}
        self._children: dict[str, dict[str, bool]] = {"/": {}}

    def add_file(self, path: str, content: bytes) -> None:
        self._contents[self._enter(path, is_dir=False)] = content

    def add_link(self, path: str, target: str) -> None:
        self._links[self._enter(path, is_dir=False)] = target

    def add_denied(self, path: str) -> None:
        self._denied.add(self._enter(path, is_dir=False))

    def add_late(self, path: str) -> None:
        self._late.add(self._enter(path, is_dir=False))

    def add_directory(self, path: str, inode: int = 0, links: int | None = None) -> None:
        clean = self._enter(path, is_dir=True)
        if links is not None:
            self._statuses[clean] = FileStatus(inode, links, is_dir=True)

    def overlay(self, below: ArchiveFiles) -> None:
        """Add everything of `below` that this tree does not have."""
        self._contents = {**below._contents, **self._contents}
        self._links = {**below._links, **self._links}
        self._denied |= below._denied - self._contents.keys()
        self._late |= below._late - self._contents.keys()
        self._statuses = {**below._statuses, **self._statuses}
        for path, names in below._children.items():
            self._children[path] = {**names, **self._children.get(path, {})}

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        found = self._find(path)
        content = self._contents.get(found)
        if content is None:
            if found in self._denied:
                raise SourceDenied(path, "not readable by the user who collected")
            if found in self._children:
                raise SourceMalformed(path, 0, "a directory")
            if found in self._late:
                raise SourceTimeout(path, "did not finish in time when it was collected")
            raise SourceAbsent(path, "not in the archive")
        if len(content) > min(limit, FILE_LIMIT):
            raise SourceMalformed(path, 0, f"larger than {min(limit, FILE_LIMIT):,} bytes")
        return content

    def names(self, path: str) -> list[str]:
        found = self._find(path)
        if found in self._children:
            return list(self._children[found])
        if found in self._denied:
            raise SourceDenied(path, "not readable by the user who collected")
        raise SourceAbsent(path, "not in the archive")

    def link(self, path: str) -> str:
        found = self._find(path, last=False)
        if found in self._links:
            return self._links[found]
        if found in self._denied:
            raise SourceDenied(path, "not readable by the user who collected")
        if found in self._contents or found in self._children:
            raise SourceMalformed(path, 0, "not a link")
        raise SourceAbsent(path, "not in the archive")

    def status(self, path: str) -> FileStatus:
        found = self._find(path, last=False)
        if found in self._statuses:
            return self._statuses[found]
        if found in self._children:
            below = sum(1 for is_dir in self._children[found].values() if is_dir)
            return FileStatus(0, 2 + below, is_dir=True)
        files: tuple[Container[str], ...] = (self._contents, self._links, self._denied, self._late)
        if any(found in file for file in files):
            return FileStatus(0, 1, is_dir=False)
        raise SourceAbsent(path, "not in the archive")

    def _enter(self, path: str, *, is_dir: bool) -> str:
        """Make the directories above `path`, and it in its parent's list."""
        clean = _clean(path)
        if is_dir:
            self._children.setdefault(clean, {})
        child, directory = clean, is_dir
        while child != "/":
            head, _, name = child.rpartition("/")
            parent = head or "/"
            known = self._children.get(parent)
            if known is None:
                known = self._children[parent] = {}
            if name in known and known[name] >= directory:
                break
            known[name] = directory
            child, directory = parent, True
        return clean

    def _find(self, path: str, *, last: bool = True) -> str:
        """The recorded path that `path` resolves to (the last link too, if `last`).

        ``..`` after a link leads up from where the link points, as in the kernel.
        """
        if ".." not in path:
            clean = _clean(path)
            if clean in self._contents or clean in self._children or clean in self._denied:
                return clean
        parts = deque(path.split("/"))
        here: list[str] = []
        links = 0
        while parts:
            part = parts.popleft()
            if part == "..":
                del here[-1:]
            elif part not in ("", "."):
                target = self._links.get("/" + "/".join([*here, part]))
                if target is None or links == _MOST_LINKS or not (last or any(parts)):
                    here.append(part)
                    continue
                links += 1
                if target.startswith("/"):
                    here.clear()
                parts.extendleft(reversed(target.split("/")))
        return "/" + "/".join(here)


def _clean(path: str) -> str:
    r"""An absolute path without ``.``, ``..`` and doubled slashes; ``..`` stops at the root.

    >>> _clean("/sys/class/net/../../../../../etc//./passwd")
    '/etc/passwd'
    """
    if "//" not in path and "/." not in path and path.startswith("/") and path[-1] != "/":
        return path
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


class _Bounded(io.RawIOBase):
    """A stream that raises after `MOST_BYTES`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.given = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > MOST_BYTES:
            raise StoreError("the archive is damaged: a header with an impossible size")
        piece = self._stream.read(size)
        self.given += len(piece)
        if self.given > MOST_BYTES:
            raise StoreError(f"the archive is larger than {MOST_BYTES >> 20} MB unpacked")
        return piece


def read_archive(stream: BinaryIO) -> list[Snapshot]:
    """Every snapshot in a tar (plain or gzipped) made by ``sexton collect``, oldest first."""
    buffered = cast("BinaryIO", io.BufferedReader(_Raw(stream)))
    start = cast("io.BufferedReader", buffered).peek(2)[:2]
    if not start:
        raise StoreError("the archive is empty: did the collect script fail?")
    if start == b"\x1f\x8b":
        buffered = cast("BinaryIO", gzip.GzipFile(fileobj=buffered))
    bounded = _Bounded(buffered)
    try:
        members = _members(bounded)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise StoreError(f"the archive is damaged or truncated: {error}") from None
    except tarfile.TarError as error:
        if bounded.given <= tarfile.RECORDSIZE:
            raise StoreError("not an archive of `sexton collect`: not a tar") from None
        raise StoreError(f"the archive is damaged or truncated: {error}") from None
    except (ValueError, OverflowError) as error:  # numbers in a hostile header
        raise StoreError(f"the archive is damaged: {error}") from None
    except OSError as error:
        raise StoreError(f"the archive cannot be read: {error}") from None
    return _snapshots(members)


class _Raw(io.RawIOBase):
    """Any object with `read` as a raw stream, so that its first bytes can be peeked at."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._stream.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def _members(stream: _Bounded) -> dict[str, bytes | str]:
    """Regular members as bytes, symbolic links as their target; the last of a name wins."""
    found: dict[str, bytes | str] = {}
    # tarfile needs only `read`; typeshed declares more.
    with tarfile.open(
        fileobj=cast("BinaryIO", stream), mode="r|", encoding="utf-8", errors="surrogateescape"
    ) as tar:
        for number, member in enumerate(tar, 1):
            tar.members = []  # type: ignore[attr-defined] # else it keeps every header
            if number > MOST_MEMBERS:
                raise StoreError(f"the archive has more than {MOST_MEMBERS:,} members")
            name = member.name.removeprefix("./")
            if name in ("", ".") or member.isdir():
                continue
            if name.startswith("/") or ".." in name.split("/"):
                raise StoreError(f"the archive has a member that leads out of it: {name[:200]}")
            if member.issym():
                found[name] = member.linkname
            elif member.isreg() and not member.issparse():
                content = tar.extractfile(member)
                found[name] = b"" if content is None else content.read()
            else:
                raise StoreError(f"the archive has a member that is not a plain file: {name[:200]}")
    return found


def _snapshots(members: dict[str, bytes | str]) -> list[Snapshot]:
    manifest = members.pop("manifest", b"")
    lines = manifest.decode("utf-8", "replace").splitlines() if isinstance(manifest, bytes) else []
    if not lines or lines[0] != SCHEMA:
        raise StoreError(f"not an archive of `sexton collect`: no {SCHEMA} manifest")
    facts = dict(line.partition(" ")[::2] for line in lines[1:])
    expected = min(_number(facts.get("snapshots", "")) or 0, MOST_SNAPSHOTS)
    trees: dict[int, ArchiveFiles] = {0: ArchiveFiles()}
    for name, content in members.items():
        first, _, rest = name.partition("/")
        number = _number(first)
        if number is None or number > MOST_SNAPSHOTS:
            continue
        tree = trees.setdefault(number, ArchiveFiles())
        if isinstance(content, str):
            tree.add_link("/" + rest, content)
        elif rest == "bundle":
            _unbundle(content, tree)
        else:
            tree.add_file("/" + rest, content)
    below = trees.pop(0)
    missing = [str(number) for number in range(1, expected + 1) if number not in trees]
    if missing or not trees:
        raise StoreError(
            f"the archive is truncated: snapshot {', '.join(missing) or '1'} is missing"
        )
    snapshots = []
    for number in sorted(trees):
        trees[number].overlay(below)
        snapshots.append(Snapshot(trees[number], _moment(trees[number])))
    return snapshots


def _unbundle(content: bytes, tree: ArchiveFiles) -> None:
    first, _, body = content.partition(b"\n")
    schema, _, mark = first.partition(b" ")
    if schema.decode("ascii", "replace") != BUNDLE_SCHEMA or len(mark) < 8:
        raise StoreError(f"the archive has a bundle that is not {BUNDLE_SCHEMA}")
    ended = False
    for entry in body.split(b"\n" + mark + b" ")[1:]:
        head, _, value = entry.partition(b"\n")
        kind, _, name = head.decode("utf-8", "surrogateescape").partition(" ")
        path = "/" + name.lstrip("/")
        text = value.decode("utf-8", "surrogateescape")
        if kind == "file":
            tree.add_file(path, value)
        elif kind == "link":
            tree.add_link(path, text.rstrip("\n"))
        elif kind == "denied":
            tree.add_denied(path)
        elif kind == "late":
            tree.add_late(path)
        elif kind == "dir":
            _add_directories(text, tree)
        ended = kind == "end"
    if not ended:
        raise StoreError("the archive is truncated: a bundle without its end")


def _add_directories(text: str, tree: ArchiveFiles) -> None:
    """Lines of ``INODE LINKS PATH``, parents first or not."""
    for line in text.split("\n"):
        inode, _, rest = line.partition(" ")
        links, _, path = rest.partition(" ")
        known, count = _number(inode), _number(links)
        if known is not None and count is not None and path.startswith("/"):
            tree.add_directory(path, known, count)


def _number(text: str) -> int | None:
    """A decimal of at most 20 digits: longer ones cost time and are junk."""
    return int(text) if len(text) <= 20 and text.isascii() and text.isdecimal() else None


def _moment(tree: ArchiveFiles) -> tuple[float, float]:
    """From `/commands/clock`: uptime's first field, and `date +%s`."""
    try:
        words = tree.read("/commands/clock").split()
        mono_s, wall_s = float(words[0]), float(words[1])
    except (SourceAbsent, SourceDenied, SourceMalformed, ValueError, IndexError):
        raise StoreError("the archive has a snapshot without a time") from None
    if not 0 <= mono_s < 1e11 or not 0 <= wall_s < 1e11:  # refuses NaN as well
        raise StoreError("the archive has a snapshot with an impossible time")
    return mono_s, wall_s
