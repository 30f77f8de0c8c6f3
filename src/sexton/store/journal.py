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
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from sexton.errors import StoreError
from sexton.model.row import Row, table
from sexton.model.window import Batch, SourceState
from sexton.store.layout import write_all
from sexton.store.schema import FORMAT, MONO, WALL, encode, schema_of, tables

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
_MOST_JOURNAL = 64 << 20
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class _Sink:
    """Where an Arrow stream writes to: bytes that wait for their flush."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> int:
        self._pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


class _Stream:
    """One table's stream, and how much of it the journal vouches for."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.descriptor = os.open(path, flags, 0o600)
        self.end = 0
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, "w"), schema, options=_OPTIONS)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._sink.take()


class OpenSegment:
    """Takes flushes. A flush that fails leaves the segment as it was before."""

    def __init__(self, directory: Path, header: Mapping[str, Any]) -> None:
        self.directory = directory
        self.bytes = 0
        self._streams: dict[str, _Stream] = {}
        #: Encoded but not yet on disk: an Arrow stream cannot be rewound, its bytes can wait.
        self._waiting: dict[str, bytes] = {}
        self._states: object = None
        directory.mkdir(mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._journal = os.open(directory / JOURNAL, flags, 0o600)
        self._journal_end = 0
        try:
            self._vouch(dict(header))
        except OSError:
            self.close()
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
            for name, content in self._waiting.items():
                stream = self._streams[name]
                write_all(stream.descriptor, content)
                os.fdatasync(stream.descriptor)
                ends[name] = [stream.end + len(content), zlib.crc32(content)]
            line: dict[str, Any] = {"ends": ends}
            told = [[*state[:5], state.asked] for state in states]
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
        self._waiting = {}
        return lost

    @property
    def waiting_bytes(self) -> int:
        """What failed flushes left in memory."""
        return sum(map(len, self._waiting.values()))

    def drop_waiting(self) -> bool:
        """Forget what could not be written. The streams' first piece holds their schema, so
        a stream that never reached the disk is started anew."""
        dropped = bool(self._waiting)
        for name in self._waiting:
            stream = self._streams[name]
            if stream.end == 0:
                os.close(stream.descriptor)
                del self._streams[name]
                with contextlib.suppress(OSError):
                    (self.directory / f"{name}.arrows").unlink()
        self._waiting = {}
        return dropped

    def close(self) -> None:
        for stream in self._streams.values():
            os.close(stream.descriptor)
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
        encoded = self._streams[name].encode(batch)
        self._waiting[name] = self._waiting.get(name, b"") + encoded

    def _vouch(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")).encode()
        whole = b"%08x %s\n" % (zlib.crc32(text), text)
        write_all(self._journal, whole)
        os.fdatasync(self._journal)
        self._journal_end += len(whole)
        self.bytes += len(whole)

    def _rewind(self) -> None:
        for stream in self._streams.values():
            with contextlib.suppress(OSError):
                os.ftruncate(stream.descriptor, stream.end)
                os.lseek(stream.descriptor, stream.end, os.SEEK_SET)
        with contextlib.suppress(OSError):
            os.ftruncate(self._journal, self._journal_end)
            os.lseek(self._journal, self._journal_end, os.SEEK_SET)


class Recovered(NamedTuple):
    """What an open segment's journal vouches for."""

    header: dict[str, Any]
    tables: dict[str, pa.Table]
    states: list[list[Any]]
    problems: list[str]


def recover(directory: Path, only: frozenset[str] | None = None) -> Recovered:
    """Everything that was flushed whole; `StoreError` where not even the header can be read.

    `only` names the tables wanted; the others are not looked at.
    """
    try:
        lines = list(_lines(directory / JOURNAL))
    except OSError as error:
        raise StoreError(f"{directory.name}: journal: {error.strerror}") from None
    if not lines:
        raise StoreError(f"{directory.name}: its journal has no whole line")
    header, flushes = lines[0], lines[1:]
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
        if name != READING and name not in tables():
            problems.append(f"{directory.name}/{name}.arrows: a table this version does not know")
            continue
        try:
            content, bad = _vouched(directory / f"{name}.arrows", parts)
            found[name] = pa.ipc.open_stream(content).read_all()
        except (OSError, StoreError, pa.ArrowException) as error:
            problems.append(f"{directory.name}/{name}.arrows: {_first_line(error)}")
            continue
        if bad:
            problems.append(
                f"{directory.name}/{name}.arrows: {bad} of {len(parts)} flushes damaged, skipped"
            )
    return Recovered(header, found, states, problems)


def _lines(path: Path) -> list[dict[str, Any]]:
    """Lines up to the first one that is torn or damaged: those after it cannot be placed."""
    with path.open("rb") as stream:
        content = stream.read(_MOST_JOURNAL)
    found = []
    for line in content.split(b"\n"):
        checksum, _, text = line.partition(b" ")
        try:
            if int(checksum, 16) != zlib.crc32(text):
                break
            found.append(json.loads(text))
        except ValueError:
            break
    return found


def _vouched(path: Path, parts: Sequence[tuple[int, int, int]]) -> tuple[bytes, int]:
    """The stream's bytes without the damaged flushes, and how many those are."""
    content = path.read_bytes()
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
