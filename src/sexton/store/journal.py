"""The open segment: a file of rows per table, and a journal that says how much of each is valid.

Every flush appends a block to each table's file, syncs it, and then writes one journal line: for
each table the new end and the checksum of what was added. Readers use only what the journal covers:
a torn tail, half a flush or flipped bits are never taken for data, and at most the last flush is
lost.

Blocks of ``<table>.rows`` are described in `sexton.store.encoding`. Segments of older versions hold
Arrow IPC streams, ``<table>.arrows``; both are read. The recorder samples in this process, and
Arrow takes 60 MB, so it is imported only to read.

A journal line is a checksum, a space and JSON. The first one is the segment's header; those after
it are flushes: ``{"ends": {"core_times": [offset, crc32], …}, "states": […]}``, with the sources'
states only where they changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.errors import StoreError, first_line
from sexton.model.row import Row, table
from sexton.model.window import Batch, SourceState
from sexton.store.encoding import encode_readings, encode_rows
from sexton.store.layout import (
    ASIDE,
    SCHEMA,
    check_format,
    check_header,
    check_states,
    is_count,
    is_table_name,
    read_part,
    read_plain,
    sync_directory,
    write_all,
)

if TYPE_CHECKING:
    import pyarrow as pa

JOURNAL = "journal"
READING = "reading"
ROWS, ARROWS = ".rows", ".arrows"
MOST_JOURNAL = 64 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class _Stream:
    """One table's file, and how much of it the journal covers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = -1
        self.end = 0

    def append(self, content: bytes) -> list[int]:
        """Write and sync; the new end and the checksum, for the journal. The file is created here,
        so that a full disk is a failed flush like any other."""
        if self.descriptor < 0:
            self.descriptor = os.open(self.path, _NEW, 0o600)
        # At its offset and not at the end of the file: a torn write may have left something.
        write_all(self.descriptor, content, self.end)
        os.fdatasync(self.descriptor)
        return [self.end + len(content), zlib.crc32(content)]

    def rewind(self) -> None:
        """Truncate to what the journal covers."""
        if self.descriptor >= 0:
            os.ftruncate(self.descriptor, self.end)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class OpenSegment:
    """Takes flushes. A flush that fails leaves the segment as it was before."""

    def __init__(self, directory: Path, header: Mapping[str, Any]) -> None:
        self.directory = directory
        self.bytes = 0
        self._streams: dict[str, _Stream] = {}
        #: Encoded but not yet on disk.
        self._waiting: dict[str, bytes] = {}
        self._waiting_rows = 0
        self._states: object = None
        self._journal = -1
        self._journal_end = 0
        aside = directory.with_name(f"{ASIDE}{directory.name}")  # readers never see an empty one
        with contextlib.suppress(FileNotFoundError):  # but the error of a failing disk is raised
            shutil.rmtree(aside)
        try:
            aside.mkdir(mode=0o700)
            self._journal = os.open(aside / JOURNAL, _NEW, 0o600)
            self._append_line({"schema": SCHEMA, **header})
            aside.rename(directory)
            sync_directory(directory.parent)
        except OSError:  # leave nothing half made: the next attempt uses the same name
            self.close()
            shutil.rmtree(aside, ignore_errors=True)
            raise

    def flush(
        self, pending: Mapping[type[Row], Sequence[Batch[Any]]], states: Sequence[SourceState] = ()
    ) -> int:
        """Append these readings; returns how many rows fit no column. After an `OSError` the
        readings stay in memory and are written with the next flush."""
        lost = self._encode(pending)
        ends: dict[str, list[int]] = {}
        try:
            fresh = any(self._streams[name].descriptor < 0 for name in self._waiting)
            for name, content in self._waiting.items():
                ends[name] = self._streams[name].append(content)
            if fresh:
                sync_directory(self.directory)
            line: dict[str, Any] = {"ends": ends}
            current = [[*state[:5], state.requested] for state in states]
            if current != self._states:
                line["states"] = current
            self._append_line(line)
        except OSError:
            self._rewind()
            raise
        for name, (end, _) in ends.items():
            self.bytes += end - self._streams[name].end
            self._streams[name].end = end
        self._states = current
        self._waiting, self._waiting_rows = {}, 0
        return lost

    @property
    def waiting_bytes(self) -> int:
        """Bytes that failed flushes left in memory."""
        return sum(map(len, self._waiting.values()))

    def drop_waiting(self) -> int:
        """Drop what could not be written; returns the number of rows."""
        dropped = self._waiting_rows
        self._waiting, self._waiting_rows = {}, 0
        return dropped

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams = {}
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1

    def _encode(self, pending: Mapping[type[Row], Sequence[Batch[Any]]]) -> int:
        lost = 0
        listed: list[tuple[str, float, float, int]] = []
        for kind, batches in pending.items():
            name = table(kind)
            listed += [(name, batch.mono_s, batch.wall_s, len(batch.rows)) for batch in batches]
            if any(batch.rows for batch in batches):
                block, rows, refused = encode_rows(kind, batches)
                lost += refused
                self._waiting_rows += rows
                self._wait(name, block)
        if listed:
            self._wait(READING, encode_readings(listed))
        return lost

    def _wait(self, name: str, block: bytes) -> None:
        if name not in self._streams:
            self._streams[name] = _Stream(self.directory / f"{name}{ROWS}")
        self._waiting[name] = self._waiting.get(name, b"") + block

    def _append_line(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")).encode()
        whole = b"%08x %s\n" % (zlib.crc32(text), text)
        write_all(self._journal, whole, self._journal_end)
        os.fdatasync(self._journal)
        self._journal_end += len(whole)
        self.bytes += len(whole)

    def _rewind(self) -> None:
        """Free the space again. If that fails too, the next flush overwrites it."""
        for stream in self._streams.values():
            with contextlib.suppress(OSError):
                stream.rewind()
        with contextlib.suppress(OSError):
            os.ftruncate(self._journal, self._journal_end)


class EmptySegment(StoreError):
    """A segment without a complete flush: its recorder has just started it, or was killed then."""


class TooLarge(StoreError):
    """It takes more memory than this process may use; another process may be able to read it."""


class Recovered(NamedTuple):
    """What an open segment's journal covers. `cut` says where the journal itself ends early;
    `torn`: only its last line does, as it does for an instant while a recorder writes it.

    `tables` may include tables that this version does not know. `too_large`: one was left out that
    a process with more memory could read. The journal's whole lines take `length` bytes and cover
    each table's file up to `ends`.
    """

    header: dict[str, Any]
    tables: dict[str, pa.Table]
    states: list[list[Any]]
    problems: list[str]
    cut: str = ""
    torn: bool = False
    too_large: bool = False
    length: int = 0
    ends: Mapping[str, int] = {}


def recover(
    directory: Path, before: Recovered | None = None, only: Collection[str] | None = None
) -> Recovered:
    """Every complete flush, of `only` these tables if given; `StoreError` where not even the header
    can be read.

    `before` is what was found earlier in the same segment, of the same tables: only what was
    appended since is read, unless there was or is anything wrong.
    """
    if before is not None and not before.problems:
        found = _continued(directory, before, only)
        if found is not None:
            return found
    try:
        content = read_plain(directory / JOURNAL, MOST_JOURNAL)
    except OSError as error:
        raise StoreError(f"{directory.name}: journal: {error.strerror}") from None
    lines, length = whole_lines(content)
    if b"\n" not in content and not has_rows(directory):
        raise EmptySegment(f"{directory.name}: its journal was not begun")
    if not lines:
        raise StoreError(f"{directory.name}: its journal has no whole line")
    try:
        check_format(lines[0].get("schema", SCHEMA))
        check_header(lines[0])
    except (StoreError, ValueError) as error:
        raise StoreError(f"{directory.name}: {error}") from None
    found = _with_flushes(directory, Recovered(lines[0], {}, [], []), lines[1:], only)
    if READING in found.ends and found.problems:
        from sexton.store.schema import READINGS, with_unlisted

        listed = found.tables.get(READING, READINGS.empty_table())
        found.tables[READING] = with_unlisted(listed, found.tables)
    return _cut(directory, found, content, length)


#: Parts of a table's file, by its name: start, end, checksum.
Pieces = Mapping[str, Sequence[tuple[int, int, int]]]


class Flushes(NamedTuple):
    """Flushes that were appended to a segment: the parts of each table's file, and the states of
    sources if they changed. The journal's whole lines now take `length` bytes and cover each
    table's file up to `ends`."""

    pieces: Pieces
    states: list[list[Any]] | None
    length: int
    ends: Mapping[str, int]


def flushes_since(directory: Path, length: int, ends: Mapping[str, int]) -> Flushes | None:
    """What was appended since the journal's whole lines took `length` bytes; `None` if it cannot be
    read on from there, or is damaged."""
    content = _appended(directory, length)
    if content is None:
        return None
    lines, more = whole_lines(content)
    if b"\n" in content[more:]:
        return None
    return _flushes(lines, length + more, ends)


def _appended(directory: Path, length: int) -> bytes | None:
    """The journal after its first `length` bytes, which are whole lines."""
    try:
        size = min((directory / JOURNAL).stat().st_size, MOST_JOURNAL)
        content = read_part(directory / JOURNAL, length - 1, size - length + 1)
    except (OSError, ValueError):  # it is gone, or shorter
        return None
    # Else the last line was read while it was written.
    return content[1:] if content[:1] == b"\n" else None


def _flushes(lines: Sequence[Mapping[str, Any]], length: int, ends: Mapping[str, int]) -> Flushes:
    states, reached = None, dict(ends)
    pieces: dict[str, list[tuple[int, int, int]]] = {}
    for line in lines:
        states = line.get("states", states)
        for name, (end, checksum) in line.get("ends", {}).items():
            pieces.setdefault(name, []).append((reached.get(name, 0), end, checksum))
            reached[name] = end
    return Flushes(pieces, states, length, reached)


def rows_in(directory: Path, name: str, pieces: Sequence[tuple[int, int, int]]) -> pa.Table:
    """The rows of these parts of a table's file; `StoreError` or `OSError` if any is damaged."""
    from sexton.store.schema import check_columns, checked_table, read_stream

    path = stream_path(directory, name)
    good, bad = _intact(path, pieces)
    if bad:
        raise StoreError(f"{bad} of {len(pieces)} flushes damaged")
    rows = read_stream(good, path.suffix)
    check_columns(name, rows.schema)
    return checked_table(name, rows)


def _continued(
    directory: Path, before: Recovered, only: Collection[str] | None
) -> Recovered | None:
    """With the flushes since then; `None` if the whole segment has to be read."""
    content = _appended(directory, before.length)
    if content is None:
        return None
    lines, length = whole_lines(content)
    tables, states = dict(before.tables), before.states
    known = Recovered(before.header, tables, states, [], length=before.length, ends=before.ends)
    found = _with_flushes(directory, known, lines, only)
    return None if found.problems else _cut(directory, found, content, length)


def _with_flushes(
    directory: Path,
    known: Recovered,
    lines: Sequence[Mapping[str, Any]],
    only: Collection[str] | None,
) -> Recovered:
    new = _flushes(lines, known.length, known.ends)
    states, ends = known.states if new.states is None else new.states, new.ends
    from sexton.store.schema import check_columns, checked_table, extended, read_stream

    tables, problems, too_large = known.tables, list(known.problems), known.too_large
    for name, parts in new.pieces.items():
        if only is not None and name not in only:
            continue
        path = stream_path(directory, name)
        try:
            good, bad = _intact(path, parts)
            rows = read_stream(good, path.suffix)
            if name not in tables or rows.schema != tables[name].schema:
                check_columns(name, rows.schema)
            checked_table(name, rows)
            tables[name] = extended(tables[name], rows) if name in tables else rows
        except (OSError, StoreError) as error:
            problems.append(f"{directory.name}/{path.name}: {first_line(error)}")
            too_large |= isinstance(error, TooLarge)
            continue
        if bad:
            problems.append(
                f"{directory.name}/{path.name}: {bad} of {len(parts)} flushes damaged, skipped"
            )
    return known._replace(states=states, problems=problems, too_large=too_large, ends=ends)


def _cut(directory: Path, found: Recovered, content: bytes, length: int) -> Recovered:
    """With what is behind the journal's whole lines: `length` bytes of `content`, where it was read
    on."""
    left = content[length:]
    later = flushes_after(left)
    cut = f"{directory.name}/{JOURNAL}: " if left else ""
    made = no_recorders_line(left)
    if made:
        cut += "holds a line that no recorder writes, it and what follows is lost"
    elif later:
        cut += f"a line is damaged, {later} flushes after it are lost with it"
    elif left:
        cut += "its last line is torn, one flush is lost"
    torn = bool(left) and not later and not made
    return found._replace(cut=cut, torn=torn, length=found.length + length)


def no_recorders_line(left: bytes) -> bool:
    """Whether the line at which the valid ones end has a valid checksum: it is not torn."""
    return _text_in(left.partition(b"\n")[0]) is not None


def flushes_after(left: bytes) -> int:
    """How many lines after a damaged one are intact: each is a flush that is lost with it."""
    return sum(1 for line in left.split(b"\n")[1:] if whole_lines(line)[0])


def whole_lines(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """The valid lines of a journal, and how many bytes they take.

    They end at the first one that is torn or damaged: offsets after it are unknown.
    """
    found = []
    length = 0
    for line in content.split(b"\n"):
        text = _text_in(line)
        if text is None:
            break
        try:
            found.append(_checked(json.loads(text)))
        except (ValueError, TypeError, RecursionError):
            break
        length += len(line) + 1
    return found, min(length, len(content))


def _text_in(line: bytes) -> bytes | None:
    """What a line's checksum covers; `None` if it differs."""
    checksum, _, text = line.partition(b" ")
    return text if checksum == b"%08x" % zlib.crc32(text) else None


def _checked(line: dict[str, Any]) -> dict[str, Any]:
    """The line itself; `ValueError` if it is malformed: a foreign file may have a checksum too."""
    if not isinstance(line, dict):
        raise ValueError("not a line of a journal")
    check_states(line.get("states", []))
    ends = line.get("ends", {})
    if not isinstance(ends, dict):
        raise ValueError("not a line of a journal")
    for name, (end, checksum) in ends.items():
        if not is_table_name(name) or not is_count(end) or not is_count(checksum):
            raise ValueError("not a line of a journal")
    return line


def stream_path(directory: Path, name: str) -> Path:
    """A table's file in an open segment, of this version or of an older one."""
    old = directory / f"{name}{ARROWS}"
    return old if os.path.lexists(old) else directory / f"{name}{ROWS}"


def has_rows(directory: Path) -> bool:
    """Whether a table's file in an open segment has any bytes; links are not followed."""
    for suffix in (ROWS, ARROWS):
        for path in directory.glob(f"*{suffix}"):
            try:
                if not path.is_symlink() and path.stat().st_size:
                    return True
            except FileNotFoundError:
                continue
            except OSError:  # a failing disk: it may have some
                return True
    return False


def _intact(path: Path, parts: Sequence[tuple[int, int, int]]) -> tuple[list[bytes], int]:
    """The intact flushes of these in a table's file, and how many are damaged."""
    if any(end < start for start, end, _ in parts):  # would read the same bytes again and again
        raise StoreError("its journal goes backwards")
    first, last = parts[0][0], max(end for _, end, _ in parts)
    if path.suffix == ARROWS and first:
        raise StoreError("its schema is at its beginning")
    content = read_part(path, first, last - first) if first else read_plain(path, last)
    good = [
        content[start - first : end - first]
        for start, end, checksum in parts
        if len(content) >= end - first
        and zlib.crc32(content[start - first : end - first]) == checksum
    ]
    if path.suffix == ARROWS and zlib.crc32(content[: parts[0][1]]) != parts[0][2]:
        raise StoreError("its beginning, which holds the schema, is damaged")
    return good, len(parts) - len(good)
