"""Where things are in a recording's directory.

::

    LOCK                  held by the recorder that writes here
    status.json           the recorder's cost, size and paused sources
    marks/                marks that the recorder has not read yet
    open/SEGMENT/         the last minutes: <table>.rows, and how far they count: journal
    segments/SEGMENT/     sealed minutes, or a compacted hour: tables.zip and manifest.json, and
                          manifest.sig if they are signed
    pins/                 spans that retention must keep
    stacks/, rings/       perf's rotated files, and event rings captured at an alarm
    symbols/              cache of program symbols by build id, for decoding

A segment is named ``<sequence>-<UTC time>``. The sequence alone gives the order: the time is for
people, and clocks jump. A compacted segment is named ``<first>-<UTC time>-<last>`` and replaces the
segments with these sequence numbers; until they are deleted, readers ignore them. A name that
starts with a dot is still being written.
All files are mode 0600: process names and kernel messages are private.

A manifest lists a sealed directory's tables with their places and checksums: a line with the
manifest's own checksum and a line of JSON. `FORMAT` counts changes of meaning; a recording with a
higher number is refused. Format 1 had a file per table. Nothing here imports Arrow.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from sexton.errors import StoreError
from sexton.model.text import printable

DIRECTORIES = ("open", "segments", "pins", "marks", "stacks", "rings", "symbols")
ASIDE = ".new-"
_NAME = re.compile(r"([0-9]{8,})-[0-9]{8}T[0-9]{6}Z(?:-([0-9]{8,}))?", re.ASCII)


class SegmentName(NamedTuple):
    """A segment's first sequence number, its directory's name, and its last sequence number, which
    differs from the first in a compacted segment."""

    sequence: int
    text: str
    last: int

    def replaces(self, other: SegmentName) -> bool:
        """Whether `other` was compacted into this segment."""
        inside = self.sequence <= other.sequence and other.last <= self.last
        return inside and self.last - self.sequence > other.last - other.sequence


def stamp(wall_s: float) -> str:
    """A UTC time as part of a file name."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(min(max(wall_s, 0.0), 2e11)))


def segment_name(sequence: int, wall_s: float, last: int | None = None) -> SegmentName:
    """A new segment's name.

    >>> segment_name(7, 0.0).text, segment_name(7, 0.0, last=36).text
    ('00000007-19700101T000000Z', '00000007-19700101T000000Z-00000036')
    """
    name = f"{sequence:08d}-{stamp(wall_s)}"
    if last is None:
        return SegmentName(sequence, name, sequence)
    return SegmentName(sequence, f"{name}-{last:08d}", last)


def parse_name(text: str) -> SegmentName | None:
    """A segment's name parsed; `None` if it is something else."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    first = int(found[1])
    last = first if found[2] is None else int(found[2])
    return SegmentName(first, text, last) if last >= first else None


def prepare(directory: Path) -> None:
    """Create a recording's directories with mode 0700; `StoreError` if another user could change
    one of them and so redirect what is written or deleted there."""
    try:
        why = why_not_private(directory)  # before anything is created there
        for parent in [] if why else reversed(directory.parents):
            if not os.path.isdir(parent):  # `parents=True` would use the umask for them
                parent.mkdir(mode=0o700, exist_ok=True)
        if not why:
            directory.mkdir(mode=0o700, exist_ok=True)
            why = why_not_private(directory)
        for name in () if why else DIRECTORIES:
            place = directory / name
            place.mkdir(mode=0o700, exist_ok=True)
            status = place.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                why = f"{name} in it is not a directory of user {os.geteuid()}"
    except OSError as error:
        raise StoreError(f"{error.filename or directory}: {error.strerror}") from None
    if why:
        raise StoreError(f"{directory}: {why}; record into a directory of your own")


def why_not_private(place: str | os.PathLike[str]) -> str:
    """Why another user could replace or write to a directory; empty if only we and root can.

    It must be ours and not writable by others. For root, so must every directory above it: the
    owner of a directory can replace what is inside. If it does not exist yet, the nearest existing
    parent is checked.
    """
    us = os.geteuid()
    wanted = nearest = os.path.realpath(place)
    while not os.path.lexists(nearest):
        nearest = os.path.dirname(nearest)
    above = [os.fspath(parent) for parent in Path(nearest).parents] if us == 0 else []
    for path in (nearest, *above):
        status = os.lstat(path)
        shown = "it" if path == wanted else printable(path)
        if status.st_uid != us and (path == wanted or status.st_uid != 0):
            return f"{shown} belongs to user {status.st_uid}, not to user {us}"
        by_group = status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)
        open_to_others = by_group or status.st_mode & stat.S_IWOTH
        if (
            open_to_others
            and not status.st_mode & stat.S_ISVTX
            and not stat.S_ISLNK(status.st_mode)
        ):
            return f"other users may write into {shown}"
    return ""


def _is_own_group(group: int) -> bool:
    """Whether only root and we are in a group, as in the private ones that most distributions give
    their users. Root's counts as such with the system accounts that some put there, and so does one
    of no name, as in containers."""
    if group not in (0, os.getegid()):
        return False
    import grp
    import pwd

    us = os.geteuid()
    every = pwd.getpwall()
    try:
        members = {*grp.getgrgid(group).gr_mem}
    except KeyError:
        members = set()
    if group != 0:
        members |= {user.pw_name for user in every if user.pw_gid == group}
    return members <= {user.pw_name for user in every if user.pw_uid in (0, us)}


def segments_in(directory: Path) -> list[SegmentName]:
    """The current segments of one directory, oldest first, without compacted ones, links and other
    files."""
    return current(_segment_directories(directory))


def replaced_in(directory: Path) -> dict[str, str]:
    """Segments that were compacted and not deleted yet, each with the name of its successor."""
    names = _segment_directories(directory)
    whole = [name for name in names if name.last > name.sequence]
    return {
        name.text: next(other.text for other in whole if other.replaces(name))
        for name in names
        if any(other.replaces(name) for other in whole)
    }


def current(names: Iterable[SegmentName]) -> list[SegmentName]:
    """These segments in order, without those that another one of them replaces.

    >>> hour = segment_name(1, 0.0, last=30)
    >>> [each.sequence for each in current([segment_name(31, 0.0), segment_name(2, 0.0), hour])]
    [1, 31]
    """
    kept: list[SegmentName] = []
    whole: list[SegmentName] = []
    for name in sorted(names, key=lambda name: (name.sequence, -name.last, name.text)):
        # In this order a successor comes before what it replaces, and successors do not overlap.
        if not whole or not whole[-1].replaces(name):
            kept.append(name)
            if name.last > name.sequence:
                whole.append(name)
    return kept


def _segment_directories(directory: Path) -> list[SegmentName]:
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(name for name in map(parse_name, names) if name is not None)


def read_plain(path: Path, most: int, exactly: bool = False) -> bytes:
    """At most the first `most` bytes of a regular file; `OSError` if it is something else.

    With `exactly`, a file of another size is refused without reading it.
    """
    with open_plain(path) as (descriptor, size):
        if exactly and size != most:
            raise OSError(errno.EINVAL, f"{size} bytes, sealed with {most}")
        return _read(descriptor, 0, min(most, size + 1))


def read_part(path: Path, start: int, length: int) -> bytes:
    """These bytes of a regular file; `OSError` if it is something else, or shorter."""
    with open_plain(path) as (descriptor, size):
        if start + length > size:
            raise OSError(errno.EINVAL, f"{size} bytes, sealed with at least {start + length}")
        return _read(descriptor, start, length)


@contextlib.contextmanager
def open_plain(path: Path) -> Iterator[tuple[int, int]]:
    """A descriptor of a regular file, and its size; `OSError` if it is something else.

    Nothing in a recording's directory may block us: no pipe, device, link or endless file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except ValueError:  # NUL or half a surrogate pair in a name from a foreign file
        raise OSError(errno.EINVAL, "not a name of a file") from None
    try:  # not `fdopen`, which raises for a directory and leaves the descriptor open
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def _read(descriptor: int, start: int, length: int) -> bytes:
    """These bytes, or fewer at the end of the file."""
    pieces: list[bytes] = []  # mostly one, which is then not copied
    while length > 0 and (piece := os.pread(descriptor, length, start)):
        pieces.append(piece)
        start, length = start + len(piece), length - len(piece)
    return b"".join(pieces)


def unused(path: str) -> str:
    """The path, or with ``.1``, ``.2``, … appended the first that does not exist."""
    number, free = 0, path
    while os.path.lexists(free):
        number += 1
        free = f"{path}.{number}"
    return free


def lock_holder(directory: Path) -> str:
    """Who is recording here, for messages: "process 17", or "another process" if unknown."""
    try:
        holder = read_plain(directory / "LOCK", 32).decode("ascii", "replace").strip()
    except OSError:
        holder = ""
    return f"process {holder}" if holder.isdecimal() else "another process"


class Lock:
    """One recorder per directory, by flock(2), which ends with the process."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "LOCK"
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from None
        try:
            self._take()
        except BlockingIOError:
            os.close(self._descriptor)
            who = lock_holder(directory)
            raise StoreError(f"{directory}: {who} is recording here already") from None
        except OSError as error:
            os.close(self._descriptor)
            raise StoreError(f"{self._path}: {error.strerror}") from None
        # For error messages only, so a full disk does not matter.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _take(self) -> None:
        """Take it or raise `BlockingIOError`. Retried: `is_locked` holds it for an instant."""
        for pause_s in (0.01, 0.05, 0.2):
            try:
                return fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(pause_s)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        os.close(self._descriptor)


def is_locked(directory: Path) -> bool:
    """Whether a recorder is writing here now."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(directory / "LOCK", flags)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def remove(segment: Path) -> None:
    """Delete a segment's directory; renamed first, so that readers never see half of it."""
    aside = segment.with_name(f"{ASIDE}{segment.name}")
    try:
        segment.rename(aside)
    except OSError:
        aside = segment
    shutil.rmtree(aside, ignore_errors=True)


def new_file(path: str | os.PathLike[str], directory: int | None = None) -> int:
    """A descriptor of a new file, mode 0600, for a temporary name (below an open `directory`).

    What has this name is removed and never opened: it may be a leftover, or a link or a file that
    another user made, who could read through it what we write.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600, dir_fd=directory)
    os.fchmod(descriptor, 0o600)  # a umask may take away even that
    return descriptor


def write_whole(path: Path, content: bytes, links: bool = True) -> None:
    """Replace a file atomically: write under a temporary name, sync, rename. Without `links` it
    fails if its directory is a link."""
    aside = f"{ASIDE}{path.name}"
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    place = os.open(path.parent, flags)
    try:
        descriptor = new_file(aside, place)
        try:
            write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(aside, path.name, src_dir_fd=place, dst_dir_fd=place)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(aside, dir_fd=place)
        raise
    finally:
        os.close(place)


@contextlib.contextmanager
def written_aside(target: Path) -> Iterator[IO[bytes]]:
    """A stream into a temporary file (0600) that is synced and renamed to `target` at the end, and
    deleted if anything fails."""
    aside = target.with_name(f"{ASIDE}{target.name}")
    try:
        with os.fdopen(new_file(aside), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        aside.rename(target)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def write_all(descriptor: int, content: bytes, start: int = 0) -> None:
    """Write everything at offset `start`, or raise `OSError`."""
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, start)
        view, start = view[written:], start + written


def sync_directory(path: Path) -> None:
    """fsync a directory, so that renames in it are durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


FORMAT = 2
#: The schema that manifests and journals declare.
SCHEMA = f"sexton.recording/{FORMAT}"
MANIFEST = "manifest.json"
#: Beside a manifest, if the recorder signs (see `sexton.store.signing`).
SIGNATURE = "manifest.sig"
#: All tables of a sealed directory: a ZIP archive of Parquet files.
TABLES = "tables.zip"
_MOST_MANIFEST = 16 << 20
#: More tables or sources than any version will have.
_MOST_TABLES = 2000
#: Later times are invalid, as are larger numbers with a fraction, which are seconds, milliseconds
#: and percent: UNIX seconds of the year 33,658.
MOST_S = 1e12


def read_manifest(directory: Path) -> dict[str, Any]:
    """A sealed segment's manifest; `StoreError` if missing, damaged or of a newer version."""
    try:
        content = read_plain(directory / MANIFEST, _MOST_MANIFEST)
    except OSError as error:
        raise StoreError(f"{directory.name}: {MANIFEST}: {error.strerror}") from None
    checksum, _, text = content.partition(b"\n")
    try:
        if checksum != b"%08x" % zlib.crc32(text):
            raise StoreError(f"{directory.name}: {MANIFEST} is damaged")
        manifest: dict[str, Any] = json.loads(text)
        try:
            check_format(manifest["schema"])
        except StoreError as error:
            raise StoreError(f"{directory.name}: {error}") from None
        check_manifest(manifest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StoreError(f"{directory.name}: {MANIFEST} is not a valid manifest") from None
    return manifest


def table_bytes(manifest: Mapping[str, Any]) -> int:
    """The size of a sealed directory's tables on disk."""
    return sum(int(entry.get("bytes", 0)) for entry in manifest["tables"].values())


def require_recording(path: Path) -> None:
    """`StoreError` if this is not the directory of a recording."""
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        raise StoreError(f"{path}: no such directory") from None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None
    if not {"segments", "open"} & {*names}:
        raise StoreError(f"{path}: not a recording: it has neither segments/ nor open/")


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Check types and ranges of what readers use: a foreign file may have a checksum too. Raises
    `ValueError`, `KeyError`, `TypeError` or `AttributeError`."""
    described = manifest["tables"]
    if len(described) > _MOST_TABLES:
        raise ValueError("too many tables")
    for name, entry in described.items():
        if not is_table_name(name) or not isinstance(entry, dict):
            raise ValueError("not a table")
        needed = ("bytes", "crc32", "rows") if "crc32" in entry else ()
        for key in ("bytes", "crc32", "rows", "batches", "offset"):
            if (key in entry or key in needed) and not is_count(entry[key]):
                raise ValueError("not a number")
        for edge in ("first", "last"):
            if edge in entry or entry.get("batches"):
                check_moment(entry[edge])
    for key in ("bytes", "crc32") if "file" in manifest else ():
        if not is_count(manifest["file"][key]):
            raise ValueError("not a number")
    for edge in ("start", "end"):
        if manifest[edge] is not None:
            check_moment(manifest[edge])
    if (manifest["start"] is None) != (manifest["end"] is None):
        raise ValueError("not a span")
    check_states(manifest.get("states", []))
    compacted = manifest.get("compacted", {})
    if not isinstance(compacted, dict):
        raise ValueError("not compacted")
    for _, _, number in compacted.get("states", ()):
        if not is_count(number):
            raise ValueError("not a number")
    if not isinstance(manifest.get("profile", {}), dict):
        raise ValueError("not profile")
    check_header(manifest)


def check_header(header: Mapping[str, Any]) -> None:
    """`ValueError` if a value that the recorder writes into every segment has another type."""
    texts = [header.get(key, "") for key in ("boot_id", "host", "sexton")]
    texts += _values_in(header, "providers")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("its header is not valid")
    numbers = [header.get("recorder_start", 0.0), *_values_in(header, "periods")]
    if not is_count(header.get("sequence", 0)) or not all(map(_is_number, numbers)):
        raise ValueError("its header is not valid")


def _values_in(header: Mapping[str, Any], key: str) -> list[object]:
    found = header.get(key, {})
    if not isinstance(found, dict):
        raise ValueError("its header is not valid")
    return list(found.values())


def check_moment(pair: Sequence[Any]) -> None:
    """`ValueError` if this is not a (monotonic, wall) time of a reading."""
    mono, wall = pair
    if not _is_number(mono) or not _is_number(wall):
        raise ValueError("not a time")


def check_states(states: Any) -> None:
    """`ValueError` if these are not states of sources."""
    if not isinstance(states, list) or len(states) > _MOST_TABLES:
        raise ValueError("not states")
    for state in states:
        if not isinstance(state, list) or len(state) < 6:
            raise ValueError("not a source's state")
        name, path, which, *more = state[:5]
        known = isinstance(name, str) and isinstance(which, str)
        if not known or not all(isinstance(word, (str, type(None))) for word in (path, *more)):
            raise ValueError("not a source's state")


def is_count(number: object) -> bool:
    """Whether this is a number of bytes, rows or readings, or an offset."""
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 62


def is_table_name(name: str) -> bool:
    """Whether a table can have this name, which becomes a file's.

    >>> [is_table_name(name) for name in ("core_times", "../x", "a\\0b", "\\ud800")]
    [True, False, False, False]
    """
    return name.isascii() and name.isidentifier()


def _is_number(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and abs(value) <= MOST_S  # type: ignore[arg-type]  # refuses NaN too


def with_checksum(manifest: Mapping[str, Any]) -> bytes:
    """A manifest's bytes: a checksum on the first line, the JSON it covers on the second."""
    text = json.dumps(manifest, separators=(",", ":")).encode()
    return b"%08x\n%s" % (zlib.crc32(text), text)


def check_format(schema: object) -> None:
    """`ValueError` if this is not the schema of a recording, `StoreError` if it is a newer one.

    >>> check_format("sexton.recording/9")
    Traceback (most recent call last):
    sexton.errors.StoreError: written by a newer Sexton (sexton.recording/9)
    """
    name, _, number = str(schema).rpartition("/")
    if name != SCHEMA.rpartition("/")[0] or not number.isdecimal():
        raise ValueError("not a recording of ours")
    if int(number) > FORMAT:
        raise StoreError(f"written by a newer Sexton ({schema})")
