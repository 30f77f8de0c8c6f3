"""The open segment: a file of rows per table, and a journal that says how far they count.

Every flush appends a block to each table's file, syncs it, and then writes one journal line: for
each table the new end and the checksum of what was added. Readers use what the journal vouches for
and nothing else: a torn tail, half a flush or flipped bits are never seen as data, and at most the
last flush is lost.

The recorder samples in this process, and Arrow takes 60 MB, so nothing here imports it to write. A
block of ``<table>.rows`` is a length (4 bytes, little endian) and that many bytes of zlib. Unpacked
it is a line of JSON, ``[[name, type, form, bytes], …]``, and the columns one after the other.
Types: "q" (int64), "Q" (uint64), "d" (float64), "i" (int32), "b" (bool), "s" (text), "m" (a mapping
as JSON text); "l" behind one is a list of it. Forms: "raw" (machine words) or "json" (a list, with
null where there is no value). Segments written before that hold Arrow IPC streams,
``<table>.arrows``; both are read.

A journal line is a checksum, a space and JSON. The first one is the segment's header; those after
it are flushes: ``{"ends": {"core_times": [offset, crc32], …}, "states": […]}``, with the sources'
states only where they changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import sys
import types
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from sexton.errors import StoreError
from sexton.model.row import Row, fields_of, table
from sexton.model.window import Batch, SourceState
from sexton.store.escaped import escape
from sexton.store.layout import (
    ASIDE,
    SCHEMA,
    check_format,
    check_states,
    read_plain,
    sync_directory,
    write_all,
)

if TYPE_CHECKING:
    import pyarrow as pa

JOURNAL = "journal"
READING = "reading"
ROWS, ARROWS = ".rows", ".arrows"
MONO, WALL, POSITION = TIME = ("read_mono_s", "read_wall_s", "read_position")
MOST_JOURNAL = 64 << 20
#: A block that unpacks to more is not ours.
_MOST_BLOCK = 256 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_LENGTH = struct.Struct("<I")
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_LITTLE = sys.byteorder == "little"
_LIMITS = {"q": (-(1 << 63), (1 << 63) - 1), "Q": (0, (1 << 64) - 1)}
_UNFIT = (AttributeError, OverflowError, RecursionError, TypeError, ValueError)


class _Shape(NamedTuple):
    """What is worked out once per row class: columns with their types, and how to get values."""

    columns: tuple[tuple[str, str], ...]
    values: Callable[[Row], tuple[Any, ...]]


_shapes: dict[type[Row], _Shape] = {}


def _shape(kind: type[Row]) -> _Shape:
    if kind not in _shapes:
        names = fields_of(kind)
        get = attrgetter(*names)
        values = get if len(names) > 1 else lambda row: (get(row),)
        _shapes[kind] = _Shape(tuple(columns_of(kind).items()), values)
    return _shapes[kind]


def columns_of(kind: type[Row]) -> dict[str, str]:
    """A row's columns and their types (see above)."""
    hints = get_type_hints(kind)
    return {name: column_type(hints[name], name in kind.unsigned) for name in fields_of(kind)}


def column_type(hint: object, unsigned: bool) -> str:
    """The type of a column (see above), from a field's annotation."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (kind for kind in get_args(hint) if kind is not type(None))
    origin = get_origin(hint)
    if origin is tuple:
        return f"{column_type(get_args(hint)[0], unsigned)}l"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "m"
    simple: dict[object, str] = {bool: "b", int: "Q" if unsigned else "q", float: "d", str: "s"}
    return simple[hint]


def encode_rows(kind: type[Row], batches: Sequence[Batch[Any]]) -> tuple[bytes, int, int]:
    """Readings as a block, how many rows it has, and how many no column could hold."""
    shape = _shape(kind)
    rows = [shape.values(row) for batch in batches for row in batch.rows]
    moments = [(batch.mono_s, batch.wall_s, len(batch.rows)) for batch in batches]
    times: list[array[Any]] = [
        array("d", [mono for mono, _, number in moments for _ in range(number)]),
        array("d", [wall for _, wall, number in moments for _ in range(number)]),
        array("i", [place for _, _, number in moments for place in range(number)]),
    ]
    try:
        return _block(shape.columns, times, rows), len(rows), 0
    except _UNFIT:
        fit = [index for index, row in enumerate(rows) if _fits(shape, row)]
    times = [array(column.typecode, [column[index] for index in fit]) for column in times]
    kept = [rows[index] for index in fit]
    return _block(shape.columns, times, kept), len(kept), len(rows) - len(kept)


def _fits(shape: _Shape, row: tuple[Any, ...]) -> bool:
    try:
        for (_, kind), value in zip(shape.columns, row, strict=True):
            _column(kind, (value,))
    except _UNFIT:
        return False
    return True


def _block(
    columns: Sequence[tuple[str, str]], times: Sequence[Any], rows: Sequence[tuple[Any, ...]]
) -> bytes:
    head: list[tuple[str, str, str, int]] = []
    body: list[bytes] = []
    for name, made in zip(TIME, times, strict=True):
        head.append((name, made.typecode, "raw", len(made) * made.itemsize))
        body.append(_little(made))
    for (name, kind), values in zip(columns, zip(*rows, strict=True), strict=bool(rows)):
        form, content = _column(kind, values)
        head.append((name, kind, form, len(content)))
        body.append(content)
    return _packed(head, body)


def _packed(head: Sequence[object], body: Sequence[bytes]) -> bytes:
    content = b"".join((json.dumps(head, separators=(",", ":")).encode(), b"\n", *body))
    packed = zlib.compress(content, 1)
    return _LENGTH.pack(len(packed)) + packed


def _column(kind: str, values: Sequence[Any]) -> tuple[str, bytes]:
    """One column's form and bytes; raises one of `_UNFIT` for a value that is not of its type."""
    if kind in ("q", "Q", "d"):
        try:
            if kind == "d" or float not in set(map(type, values)):
                return "raw", _little(array(kind, values))
        except TypeError:  # some are absent, or worse
            pass
    if _is_plain(kind, values):
        with contextlib.suppress(UnicodeEncodeError):
            return "json", _json(values)
    return "json", _json(
        [None if value is None else _checked_value(kind, value) for value in values]
    )


def _is_plain(kind: str, values: Sequence[Any]) -> bool:
    """Whether JSON can hold these as they are, seen in a few passes over the column and not value
    by value."""
    found = set(map(type, values)) - {type(None)}
    if not found:
        return True
    if kind == "s" and found == {str}:
        return "\0" not in "".join(values if None not in values else filter(None, values))
    if kind in _LIMITS and found == {int}:
        there = [value for value in values if value is not None]
        least, most = _LIMITS[kind]
        return bool(least <= min(there) and max(there) <= most)
    return (kind, found) in (("b", {bool}), ("d", {float}))


def _checked_value(kind: str, value: Any) -> Any:
    """A value as JSON can hold it."""
    if kind[-1] == "l":
        return [
            None if element is None else _checked_value(kind[:-1], element) for element in value
        ]
    if kind == "m":
        return escape(json.dumps(dict(value)))
    if kind == "s":
        if not isinstance(value, str):
            raise TypeError("not text")
        return escape(value)
    if kind == "d" and not isinstance(value, (int, float)):
        raise TypeError("not a number")
    if kind == "b" and not isinstance(value, bool):
        raise TypeError("not a truth")
    if kind in _LIMITS:
        least, most = _LIMITS[kind]
        if not isinstance(value, int) or not least <= value <= most:
            raise OverflowError("not a whole number of 64 bits")
        return int(value)
    return float(value) if kind == "d" else value


def _json(values: object) -> bytes:
    return _to_json(values).encode()


def _little(values: array[Any]) -> bytes:
    if not _LITTLE:
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def _encode_readings(listed: Sequence[tuple[str, float, float, int]]) -> bytes:
    names, mono, wall, rows = zip(*listed, strict=True)
    columns = [
        ("table", "s", "json", _json(names)),
        (MONO, "d", "raw", _little(array("d", mono))),
        (WALL, "d", "raw", _little(array("d", wall))),
        ("rows", "i", "raw", _little(array("i", rows))),
    ]
    head = [(name, kind, form, len(content)) for name, kind, form, content in columns]
    return _packed(head, [content for *_, content in columns])


class _Stream:
    """One table's file, and how much of it the journal vouches for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = -1
        self.end = 0

    def append(self, content: bytes) -> list[int]:
        """Write and sync; the new end and the checksum, for the journal. The file is made here,
        where a disk that has no room for it is a failed flush like any other."""
        if self.descriptor < 0:
            self.descriptor = os.open(self.path, _NEW, 0o600)
        # At its place, not behind what is there: a torn write may have left something.
        write_all(self.descriptor, content, self.end)
        os.fdatasync(self.descriptor)
        return [self.end + len(content), zlib.crc32(content)]

    def rewind(self) -> None:
        """Back to what the journal vouches for."""
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
        aside = directory.with_name(f"{ASIDE}{directory.name}")  # no reader meets one that is empty
        with contextlib.suppress(FileNotFoundError):  # what a disk that refuses says is the reason
            shutil.rmtree(aside)
        try:
            aside.mkdir(mode=0o700)
            self._journal = os.open(aside / JOURNAL, _NEW, 0o600)
            self._vouch({"schema": SCHEMA, **header})
            aside.rename(directory)
            sync_directory(directory.parent)
        except OSError:  # leave nothing half made: the next attempt uses the same name
            self.close()
            shutil.rmtree(aside, ignore_errors=True)
            raise

    def flush(
        self, pending: Mapping[type[Row], Sequence[Batch[Any]]], states: Sequence[SourceState] = ()
    ) -> int:
        """Append these readings; how many rows no column could hold. `OSError` if it failed: then
        what was given stays with this segment and goes out with the next flush."""
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
            self._vouch(line)
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
        """What failed flushes left in memory."""
        return sum(map(len, self._waiting.values()))

    def drop_waiting(self) -> int:
        """Forget what could not be written; how many rows that were."""
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
            self._wait(READING, _encode_readings(listed))
        return lost

    def _wait(self, name: str, block: bytes) -> None:
        if name not in self._streams:
            self._streams[name] = _Stream(self.directory / f"{name}{ROWS}")
        self._waiting[name] = self._waiting.get(name, b"") + block

    def _vouch(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")).encode()
        whole = b"%08x %s\n" % (zlib.crc32(text), text)
        write_all(self._journal, whole, self._journal_end)
        os.fdatasync(self._journal)
        self._journal_end += len(whole)
        self.bytes += len(whole)

    def _rewind(self) -> None:
        """Give the room back. Where even that fails, the next flush writes over it."""
        for stream in self._streams.values():
            with contextlib.suppress(OSError):
                stream.rewind()
        with contextlib.suppress(OSError):
            os.ftruncate(self._journal, self._journal_end)


class Unborn(StoreError):
    """A segment without one whole flush: its recorder has just begun it, or was killed then."""


class TooLarge(StoreError):
    """It takes more memory than this process may use; another one may read it."""


class Recovered(NamedTuple):
    """What an open segment's journal vouches for. `cut` says where the journal itself ends early.

    `tables` may hold some that this version does not know. `too_large`: one of them is left out
    that a process with more memory could read.
    """

    header: dict[str, Any]
    tables: dict[str, pa.Table]
    states: list[list[Any]]
    problems: list[str]
    cut: str = ""
    too_large: bool = False


def recover(directory: Path, only: frozenset[str] | None = None) -> Recovered:
    """Everything that was flushed whole; `StoreError` where not even the header can be read.

    `only` names the tables wanted; the others are not looked at.
    """
    try:
        content = read_plain(directory / JOURNAL, MOST_JOURNAL)
    except OSError as error:
        raise StoreError(f"{directory.name}: journal: {error.strerror}") from None
    lines, length = whole_lines(content)
    if b"\n" not in content and not any(map(_size, stream_files(directory))):
        raise Unborn(f"{directory.name}: its journal was not begun")
    if not lines:
        raise StoreError(f"{directory.name}: its journal has no whole line")
    header, flushes = lines[0], lines[1:]
    try:
        check_format(header.get("schema", SCHEMA))
    except (StoreError, ValueError) as error:
        raise StoreError(f"{directory.name}: {error}") from None
    states: list[list[Any]] = []
    pieces: dict[str, list[tuple[int, int, int]]] = {}
    ends: dict[str, int] = {}
    for flush in flushes:
        states = flush.get("states", states)
        for name, (end, checksum) in flush.get("ends", {}).items():
            pieces.setdefault(name, []).append((ends.get(name, 0), end, checksum))
            ends[name] = end
    from sexton.store.schema import (
        READINGS,
        check_columns,
        check_times,
        checked_table,
        read_stream,
        with_unlisted,
    )

    found: dict[str, pa.Table] = {}
    problems: list[str] = []
    too_large = False
    for name, parts in pieces.items():
        if only is not None and name not in only:
            continue
        path = stream_path(directory, name)
        try:
            good, bad = _vouched(path, parts)
            rows = checked_table(name, read_stream(good, path.suffix))
            check_columns(name, rows.column_names)
            if name == READING:
                check_times(rows)
            found[name] = rows
        except (OSError, StoreError) as error:
            problems.append(f"{directory.name}/{path.name}: {_first_line(error)}")
            too_large |= isinstance(error, TooLarge)
            continue
        if bad:
            problems.append(
                f"{directory.name}/{path.name}: {bad} of {len(parts)} flushes damaged, skipped"
            )
    if READING in pieces and (only is None or READING in only) and problems:
        listed = found.get(READING)
        found[READING] = with_unlisted(READINGS.empty_table() if listed is None else listed, found)
    cut = _cut(directory.name, content[length:])
    return Recovered(header, found, states, problems, cut, too_large)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _cut(name: str, left: bytes) -> str:
    """What is behind the journal's last line that counts, in words."""
    if not left:
        return ""
    later = sum(1 for line in left.split(b"\n")[1:] if whole_lines(line)[0])
    if not later:
        return f"{name}/{JOURNAL}: its last line is torn, one flush is lost"
    return f"{name}/{JOURNAL}: a line is damaged, {later} flushes after it are lost with it"


def whole_lines(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """The lines of a journal that count, and how many bytes of it they are.

    They end at the first one that is torn or damaged: those after it cannot be placed.
    """
    found = []
    length = 0
    for line in content.split(b"\n"):
        checksum, _, text = line.partition(b" ")
        try:
            if int(checksum, 16) != zlib.crc32(text):
                break
            found.append(_checked(json.loads(text)))
        except (ValueError, TypeError, RecursionError):
            break
        length += len(line) + 1
    return found, min(length, len(content))


def _checked(line: dict[str, Any]) -> dict[str, Any]:
    """A journal line that is of the shape of one: a foreign file may have a checksum too."""
    if not isinstance(line, dict):
        raise ValueError("not a line of a journal")
    check_states(line.get("states", []))
    ends = line.get("ends", {})
    if not isinstance(ends, dict):
        raise ValueError("not a line of a journal")
    for name, (end, checksum) in ends.items():
        if "/" in name or not isinstance(end, int) or not isinstance(checksum, int) or end < 0:
            raise ValueError("not a line of a journal")
    return line


def stream_path(directory: Path, name: str) -> Path:
    """A table's file in an open segment: of this version, or where there is none of an older."""
    old = directory / f"{name}{ARROWS}"
    return old if os.path.lexists(old) else directory / f"{name}{ROWS}"


def stream_files(directory: Path) -> list[Path]:
    """Every table's file in an open segment; links are not followed."""
    found = [path for suffix in (ROWS, ARROWS) for path in directory.glob(f"*{suffix}")]
    return [path for path in found if not path.is_symlink()]


def _vouched(path: Path, parts: Sequence[tuple[int, int, int]]) -> tuple[list[bytes], int]:
    """The flushes in a table's file that are as they were written, and how many are not."""
    if any(end < start for start, end, _ in parts):  # the same bytes, again and again
        raise StoreError("its journal goes backwards")
    content = read_plain(path, max(end for _, end, _ in parts))
    good = [
        content[start:end]
        for start, end, checksum in parts
        if len(content) >= end and zlib.crc32(content[start:end]) == checksum
    ]
    if path.suffix == ARROWS and zlib.crc32(content[: parts[0][1]]) != parts[0][2]:
        raise StoreError("its beginning, which holds the schema, is damaged")
    return good, len(parts) - len(good)


def blocks_in(content: bytes, most: int = _MOST_BLOCK) -> Iterable[tuple[list[list[Any]], bytes]]:
    """The blocks of one flush: each one's columns, and their bytes, of which there are at most so
    many together."""
    at = 0
    while at < len(content):
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        unpacker = zlib.decompressobj()
        whole = unpacker.decompress(content[at : at + length], min(max(most, 1), _MOST_BLOCK))
        if unpacker.unconsumed_tail:
            raise MemoryError
        if not unpacker.eof:
            raise ValueError("not a block of rows")
        at += length
        most -= len(whole)
        head, _, body = whole.partition(b"\n")
        yield json.loads(head), body


def _first_line(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).split("\n")[0]
