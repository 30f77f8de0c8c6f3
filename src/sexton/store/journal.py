"""The open segment: one Arrow IPC stream per table, and a journal that says how far they count.

Every flush appends to the streams, syncs them, and then writes one journal line: for each table the
new end and the checksum of what was added. Readers trust what the journal vouches for and nothing
else: a torn tail, half a flush or flipped bits are never seen as data, and at most the last flush
is lost. The streams by themselves are ordinary Arrow: ``pyarrow.ipc.open_stream`` reads them.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from sexton.errors import StoreError
from sexton.model.row import Row, table
from sexton.model.window import Batch, SourceState
from sexton.store.layout import ASIDE, read_plain, sync_directory, write_all
from sexton.store.manifest import FORMAT, SCHEMA, check_format
from sexton.store.schema import MONO, WALL, encode, schema_of

JOURNAL = "journal"
READING = "reading"
READINGS = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field(MONO, pa.float64(), nullable=False),
        pa.field(WALL, pa.float64(), nullable=False),
        pa.field("rows", pa.int32(), nullable=False),
    ],
    metadata={"sexton.table": READING, "sexton.format": str(FORMAT)},
)
MOST_JOURNAL = 64 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4")
#: Smaller batches cost more to pack than to write.
_WORTH_PACKING = 32 << 10
#: What closes an Arrow stream: ours end where the file ends.
_END = 8


class _Stream:
    """One table's stream, and how much of it the journal vouches for."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.descriptor = -1
        self.end = 0
        self._schema = schema
        self._head: bytes = schema.serialize().to_pybytes()

    def encode(self, batch: pa.RecordBatch, is_first: bool) -> bytes:
        """A batch as it stands in the stream, behind the schema where it is the first."""
        head = self._head if is_first else b""
        if batch.nbytes < _WORTH_PACKING:
            body: bytes = batch.serialize().to_pybytes()
            return head + body
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema, options=_PACKED) as writer:
            writer.write_batch(batch)
        whole: bytes = sink.getvalue().to_pybytes()
        return head + whole[len(self._head) : -_END]

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
        self,
        pending: Mapping[type[Row], Sequence[Batch[Any]]],
        states: Sequence[SourceState] = (),
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
            told = [[*state[:5], state.requested] for state in states]
            if told != self._states:
                line["states"] = told
            self._vouch(line)
        except OSError:
            self._rewind()
            raise
        for name, (end, _) in ends.items():
            self.bytes += end - self._streams[name].end
            self._streams[name].end = end
        self._states = told
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
            listed += [(name, each.mono_s, each.wall_s, len(each.rows)) for each in batches]
            if any(batch.rows for batch in batches):
                encoded, refused = encode(kind, batches)
                lost += refused
                self._waiting_rows += encoded.num_rows
                self._wait(name, schema_of(kind), encoded)
        if listed:
            columns = [
                pa.array(column, type=field.type)
                for column, field in zip(zip(*listed, strict=True), READINGS, strict=True)
            ]
            self._wait(READING, READINGS, pa.RecordBatch.from_arrays(columns, schema=READINGS))
        return lost

    def _wait(self, name: str, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        if name not in self._streams:
            self._streams[name] = _Stream(self.directory / f"{name}.arrows", schema)
        before, stream = self._waiting.get(name, b""), self._streams[name]
        self._waiting[name] = before + stream.encode(batch, not before and stream.end == 0)

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


class Recovered(NamedTuple):
    """What an open segment's journal vouches for. `cut` says where the journal itself ends early.

    `tables` may hold some that this version does not know.
    """

    header: dict[str, Any]
    tables: dict[str, pa.Table]
    states: list[list[Any]]
    problems: list[str]
    cut: str = ""


def recover(directory: Path, only: frozenset[str] | None = None) -> Recovered:
    """Everything that was flushed whole; `StoreError` where not even the header can be read.

    `only` names the tables wanted; the others are not looked at.
    """
    try:
        content = read_plain(directory / JOURNAL, MOST_JOURNAL)
    except OSError as error:
        raise StoreError(f"{directory.name}: journal: {error.strerror}") from None
    lines, length = whole_lines(content)
    if b"\n" not in content and not any(_size(path) for path in directory.glob("*.arrows")):
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
    found: dict[str, pa.Table] = {}
    problems: list[str] = []
    for name, parts in pieces.items():
        if only is not None and name not in only:
            continue
        try:
            kept, bad = _vouched(directory / f"{name}.arrows", parts)
            found[name] = pa.ipc.open_stream(kept).read_all()
        except (OSError, StoreError, pa.ArrowException) as error:
            problems.append(f"{directory.name}/{name}.arrows: {_first_line(error)}")
            continue
        if bad:
            problems.append(
                f"{directory.name}/{name}.arrows: {bad} of {len(parts)} flushes damaged, skipped"
            )
    if READING in pieces and (only is None or READING in only) and problems:
        listed = found.get(READING)
        found[READING] = with_unlisted(READINGS.empty_table() if listed is None else listed, found)
    return Recovered(header, found, states, problems, _cut(directory.name, content[length:]))


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


def with_unlisted(readings: pa.Table, found: Mapping[str, pa.Table]) -> pa.Table:
    """The list of readings, and those that only their rows tell of, since the list is damaged."""
    from pyarrow import compute as pc  # dear to load, and seldom of use here

    every = [readings]
    for name, content in found.items():
        if name == READING or MONO not in content.column_names:
            continue
        listed = readings.filter(pc.equal(readings.column("table"), name)).column(MONO)
        times = content.select([MONO, WALL]).group_by([MONO, WALL]).aggregate([([], "count_all")])
        new = times.filter(pc.invert(pc.is_in(times.column(MONO), value_set=listed)))
        columns = [
            pa.array([name] * new.num_rows, pa.string()),
            new.column(MONO),
            new.column(WALL),
            new.column("count_all").cast(pa.int32()),
        ]
        every.append(pa.table(columns, schema=READINGS))
    return pa.concat_tables([each.cast(READINGS) for each in every])


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
    if not isinstance(line, dict) or any(len(state) < 6 for state in line.get("states", ())):
        raise ValueError("not a line of a journal")
    for name, (end, checksum) in dict(line.get("ends", {})).items():
        if "/" in name or not isinstance(end, int) or not isinstance(checksum, int) or end < 0:
            raise ValueError("not a line of a journal")
    return line


def _vouched(path: Path, parts: Sequence[tuple[int, int, int]]) -> tuple[bytes, int]:
    """The stream's bytes without the damaged flushes, and how many those are."""
    content = read_plain(path, max(end for _, end, _ in parts))
    good = [
        content[start:end]
        for start, end, checksum in parts
        if len(content) >= end and zlib.crc32(content[start:end]) == checksum
    ]
    if zlib.crc32(content[: parts[0][1]]) != parts[0][2]:
        raise StoreError("its beginning, which holds the schema, is damaged")
    return b"".join(good), len(parts) - len(good)


def _first_line(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).split("\n")[0]
