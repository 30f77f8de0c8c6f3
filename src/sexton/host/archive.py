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

Nothing is unpacked to this machine's disk and no link is followed on it: the tree is in memory, and
a link that leads out of it is dangling. Every limit below is checked while reading, so a zip bomb
is refused early, and so is a path of 60,000 levels, in which each level would be a directory with
its whole path as its name.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Iterator
from enum import Enum
from typing import BinaryIO, NamedTuple

from sexton.errors import (
    SourceAbsent,
    SourceDenied,
    SourceError,
    SourceMalformed,
    SourceTimeout,
    StoreError,
)
from sexton.host.reader import DEFAULT_LIMIT, Files, FileStatus
from sexton.host.tar import (
    BLOCK,
    Expansion,
    NotATarError,
    TarStream,
    compression_of,
    damage_reported,
    members,
    padded,
)
from sexton.model.text import printable

SCHEMA = "sexton.collect/1"
BUNDLE_SCHEMA = "sexton.bundle/1"
MOST_BYTES = 256 << 20
#: Names of all trees together, directories included, and their bytes as whole paths.
MOST_NAMES = 600_000
MOST_NAME_BYTES = 96 << 20
MOST_LINES = 4_000_000
#: Of one path. The kernel allows at most 4,096 bytes; cgroups are seldom ten levels deep.
MOST_NAME = 4096
MOST_DEPTH = 128
MOST_SNAPSHOTS = 100
#: The script reads one byte more than this of a file, so that truncation is detected.
FILE_LIMIT = 4 << 20
_MOST_LINKS = 40


class Snapshot(NamedTuple):
    """A host at one moment (monotonic and UNIX seconds)."""

    files: Files
    moment: tuple[float, float]


class Room:
    """How many names trees may still take together, and how many lines may list them."""

    def __init__(self) -> None:
        self._names = MOST_NAMES
        self._bytes = MOST_NAME_BYTES
        self._lines = MOST_LINES

    def take(self, path: str) -> None:
        self._names -= 1
        self._bytes -= len(path)
        if self._names < 0:
            raise StoreError(f"more than {MOST_NAMES:,} names: not read further")
        if self._bytes < 0:
            raise StoreError(f"more than {MOST_NAME_BYTES >> 20} MB of names: not read further")

    def take_line(self) -> None:
        self._lines -= 1
        if self._lines < 0:
            raise StoreError(f"more than {MOST_LINES:,} lines in its bundles: not read further")


class _Missing(Enum):
    """Why the content of a file is not in the archive."""

    DENIED = "denied"
    LATE = "late"


#: A file's content, the target of a link, or why there is neither.
_Entry = bytes | memoryview | str | _Missing


class ArchiveFiles:
    """A host's tree in memory. Paths are looked up as recorded first, then through its links.

    What it does not have is looked up in `below`, if given: the part that all snapshots share.
    """

    def __init__(self, room: Room | None = None, below: ArchiveFiles | None = None) -> None:
        self._room = room or Room()
        self._below = below
        shared = [] if below is None else [below]
        self._entries: ChainMap[str, _Entry] = ChainMap({}, *(tree._entries for tree in shared))
        self._statuses: ChainMap[str, FileStatus] = ChainMap(
            {}, *(tree._statuses for tree in shared)
        )
        self._children: dict[str, dict[str, bool]] = {"/": {}}

    def add_file(self, path: str, content: bytes | memoryview) -> None:
        self._entries[self._enter(path, is_dir=False)] = content

    def add_link(self, path: str, target: str) -> None:
        if len(target) > MOST_NAME:
            raise StoreError(f"a link with {len(target):,} bytes: {printable(path[:200])}")
        self._entries[self._enter(path, is_dir=False)] = target

    def add_denied(self, path: str) -> None:
        self._entries.setdefault(self._enter(path, is_dir=False), _Missing.DENIED)

    def add_late(self, path: str) -> None:
        self._entries.setdefault(self._enter(path, is_dir=False), _Missing.LATE)

    def add_directory(self, path: str, inode: int = 0, links: int | None = None) -> None:
        clean = self._enter(path, is_dir=True)
        if links is not None:
            self._statuses[clean] = FileStatus(inode, links, is_dir=True)

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        found = self._find(path)
        entry = self._entries.get(found)
        if isinstance(entry, (bytes, memoryview)):
            if len(entry) > min(limit, FILE_LIMIT):
                raise SourceMalformed(path, 0, f"larger than {min(limit, FILE_LIMIT):,} bytes")
            return bytes(entry)
        if entry is not _Missing.DENIED and self._is_directory(found):
            raise SourceMalformed(path, 0, "a directory")
        raise _not_there(path, entry)

    def names(self, path: str) -> list[str]:
        found = self._find(path)
        if self._is_directory(found):
            return list(self._listed(found))
        raise _not_there(path, self._entries.get(found))

    def link(self, path: str) -> str:
        found = self._find(path, last=False)
        entry = self._entries.get(found)
        if isinstance(entry, str):
            return entry
        if isinstance(entry, (bytes, memoryview)) or self._is_directory(found):
            raise SourceMalformed(path, 0, "not a link")
        raise _not_there(path, entry)

    def status(self, path: str) -> FileStatus:
        found = self._find(path, last=False)
        known = self._statuses.get(found)
        if known is not None:
            return known
        if self._is_directory(found):
            directories = sum(1 for is_dir in self._listed(found).values() if is_dir)
            return FileStatus(0, 2 + directories, is_dir=True)
        if found in self._entries:
            return FileStatus(0, 1, is_dir=False)
        raise SourceAbsent(path, "not in the archive")

    def _listed(self, path: str) -> dict[str, bool]:
        own = self._children.get(path, {})
        return own if self._below is None else {**self._below._children.get(path, {}), **own}

    def _is_directory(self, path: str) -> bool:
        return path in self._children or (
            self._below is not None and self._below._is_directory(path)
        )

    def _enter(self, path: str, *, is_dir: bool) -> str:
        """Make the directories above `path`, and it in its parent's list."""
        clean = _clean(path)
        if len(clean) > MOST_NAME or clean.count("/") > MOST_DEPTH:
            levels = clean.count("/")
            raise StoreError(f"a path of {levels:,} levels and {len(clean):,} bytes: not read")
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
            self._room.take(child)
            known[name] = directory
            child, directory = parent, True
        return clean

    def _find(self, path: str, *, last: bool = True) -> str:
        """The recorded path that `path` resolves to (the last link too, if `last`).

        ``..`` after a link leads up from where the link points, as in the kernel.
        """
        if ".." not in path:
            clean = _clean(path)
            entry = self._entries.get(clean)
            if self._is_directory(clean) or (entry is not None and not isinstance(entry, str)):
                return clean
        parts = deque(path.split("/"))
        here: list[str] = []
        links = 0
        while parts:
            part = parts.popleft()
            if part == "..":
                del here[-1:]
            elif part not in ("", "."):
                if len(here) == MOST_DEPTH:
                    return ""  # nothing is that deep
                entry = self._entries.get("/" + "/".join([*here, part]))
                target = entry if isinstance(entry, str) else None
                if target is None or links == _MOST_LINKS or not (last or any(parts)):
                    here.append(part)
                    continue
                links += 1
                if target.startswith("/"):
                    here.clear()
                parts.extendleft(reversed(target.split("/")))
        return "/" + "/".join(here)


def _not_there(path: str, entry: _Entry | None) -> SourceError:
    if entry is _Missing.DENIED:
        return SourceDenied(path, "not readable by the user who collected")
    if entry is _Missing.LATE:
        return SourceTimeout(path, "did not finish in time when it was collected")
    return SourceAbsent(path, "not in the archive")


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


def read_archive(stream: BinaryIO) -> list[Snapshot]:
    """Every snapshot in a tar (plain or gzipped) made by ``sexton collect``, oldest first."""
    with damage_reported():
        start = stream.read(BLOCK)
    if not start:
        raise StoreError("the archive is empty: did the collect script fail?")
    found = compression_of(start)
    if found is not None and found.name != "gzip":
        raise StoreError(f"compressed with {found.name}: run {found.command} FILE first")
    try:
        with damage_reported():
            return _snapshots(dict(_contents(TarStream(stream, Expansion(), start))))
    except NotATarError:
        raise StoreError("not an archive of `sexton collect`: not a tar") from None
    except StoreError as error:
        raise StoreError(str(error).replace("the tar", "the archive")) from None


def _contents(tar: TarStream) -> Iterator[tuple[str, bytes | str]]:
    """Regular members as bytes, symbolic links as their target; the last of a name wins."""
    room = Room()
    for member in members(tar):
        name = member.name.removeprefix("./")
        room.take(name)
        if len(name) > MOST_NAME:
            raise StoreError(f"a path of {len(name):,} bytes: not read")
        if tar.at + member.size > MOST_BYTES:
            raise StoreError(f"the archive is larger than {MOST_BYTES >> 20} MB unpacked")
        if name in ("", ".") or member.kind == "dir":
            tar.skip(padded(member.size))
        elif name.startswith("/") or ".." in name.split("/"):
            raise StoreError(
                f"the archive has a member that points outside it: {printable(name[:200])}"
            )
        elif member.kind == "link":
            yield name, member.target
        elif member.kind == "file":
            yield name, tar.content(member.size)
        else:
            raise StoreError(
                f"the archive has a member that is not a plain file: {printable(name[:200])}"
            )
    if tar.incomplete:
        raise StoreError(tar.incomplete)


def _snapshots(members: dict[str, bytes | str]) -> list[Snapshot]:
    manifest = members.pop("manifest", b"")
    lines = manifest.decode("utf-8", "replace").splitlines() if isinstance(manifest, bytes) else []
    if not lines or lines[0] != SCHEMA:
        raise StoreError(f"not an archive of `sexton collect`: no {SCHEMA} manifest")
    facts = dict(line.partition(" ")[::2] for line in lines[1:])
    expected = min(_number(facts.get("snapshots", "")) or 0, MOST_SNAPSHOTS)
    room = Room()
    below = ArchiveFiles(room)
    trees: dict[int, ArchiveFiles] = {0: below}
    for name, content in members.items():
        first, _, rest = name.partition("/")
        number = _number(first)
        if number is None or number > MOST_SNAPSHOTS:
            continue
        tree = trees.setdefault(number, ArchiveFiles(room, below))
        if isinstance(content, str):
            tree.add_link("/" + rest, content)
        elif rest == "bundle":
            _unbundle(content, tree, room)
        else:
            tree.add_file("/" + rest, content)
    del trees[0]
    missing = [str(number) for number in range(1, expected + 1) if number not in trees]
    if missing or not trees:
        raise StoreError(
            f"the archive is truncated: snapshot {', '.join(missing) or '1'} is missing"
        )
    return [Snapshot(trees[number], _moment(trees[number])) for number in sorted(trees)]


def _unbundle(content: bytes, tree: ArchiveFiles, room: Room) -> None:
    first, _, _ = content[:200].partition(b"\n")
    schema, _, mark = first.partition(b" ")
    if schema.decode("ascii", "replace") != BUNDLE_SCHEMA or len(mark) < 8:
        raise StoreError(f"the archive has a bundle that is not {BUNDLE_SCHEMA}")
    ended = False
    for start, end in _entries(content, len(first) + 1, b"\n" + mark + b" "):
        room.take_line()
        head, line_end = _line(content, start, end)
        kind, _, name = head.partition(" ")
        path = "/" + name.lstrip("/")
        if kind == "file":
            tree.add_file(path, memoryview(content)[line_end:end])
        elif kind == "link":
            target = content[line_end : min(end, line_end + MOST_NAME + 2)]
            tree.add_link(path, target.decode("utf-8", "surrogateescape").rstrip("\n"))
        elif kind == "denied":
            tree.add_denied(path)
        elif kind == "late":
            tree.add_late(path)
        elif kind == "dir":
            _add_directories(content, (line_end, end), tree, room)
        ended = kind == "end"
    if not ended:
        raise StoreError("the archive is truncated: a bundle without its end")


def _entries(content: bytes, start: int, mark: bytes) -> Iterator[tuple[int, int]]:
    """Where each entry of a bundle starts, behind its mark, and ends."""
    at = content.find(mark, start)
    while at >= 0:
        following = content.find(mark, at + len(mark))
        yield at + len(mark), following if following >= 0 else len(content)
        at = following


def _line(content: bytes, start: int, end: int) -> tuple[str, int]:
    """The line at `start`, and where the next one begins. A line longer than any path is cut."""
    found = content.find(b"\n", start, end)
    line_end = found if found >= 0 else end
    line = content[start : min(line_end, start + 2 * MOST_NAME)]
    return line.decode("utf-8", "surrogateescape"), min(line_end + 1, end)


def _add_directories(content: bytes, span: tuple[int, int], tree: ArchiveFiles, room: Room) -> None:
    """Lines of ``INODE LINKS PATH``, parents first or not."""
    at, end = span
    while at < end:
        room.take_line()
        line, at = _line(content, at, end)
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
