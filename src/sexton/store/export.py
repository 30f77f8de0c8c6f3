"""Export parts of a recording: one file per table, or a smaller recording.

Tables are written as Parquet (as stored, in time order), JSON lines or CSV. In the last two, text
is escaped like everything Sexton prints (`sexton.model.text.printable`), and in CSV text that a
spreadsheet would take for a formula gets a leading apostrophe. Export streams one table of one
segment at a time; files are written under a temporary name, renamed when complete, and mode 0600.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from sexton.errors import StoreError
from sexton.model.row import Row, table
from sexton.model.text import printable
from sexton.store.arrays import longest_text, whole
from sexton.store.encoding import unescape
from sexton.store.layout import ASIDE, sync_directory, write_all, written_aside
from sexton.store.pieces import Piece, loose_pieces, pieces_of, pieces_of_open
from sexton.store.pins import Pin, add_pin
from sexton.store.recording import Recording, Segment
from sexton.store.schema import MONO, POSITION, WALL, schema_of, tables, texts_of

FORMATS = ("parquet", "jsonl", "csv")
_ROWS = 10_000
#: Rows that are put in order, decoded and written at once.
_SORTED_ROWS = 1 << 18
#: Bytes of text in them, at most.
_TEXT_AT_ONCE = 64 << 20
_FORMULA = ("=", "+", "-", "@")

Tick = Callable[[int, int], None]


class Span(NamedTuple):
    """From `start_s` to `end_s`: UNIX seconds, or with a `boot_id` its monotonic seconds."""

    start_s: float
    end_s: float
    boot_id: str = ""

    def touches(self, segment: Segment) -> bool:
        clock = 0 if self.boot_id else 1
        reach = segment.reach
        edges = sorted((reach.start[clock], reach.end[clock]))  # wall clocks jump
        same = not self.boot_id or segment.boot_id == self.boot_id
        return same and edges[0] <= self.end_s and edges[1] >= self.start_s

    def of(self, content: pa.Table) -> pa.Table:
        """The rows that were read in this span."""
        clock = content.column(MONO if self.boot_id else WALL)
        return content.filter(
            pc.and_(pc.greater_equal(clock, self.start_s), pc.less_equal(clock, self.end_s))
        )


def span_of(pin: Pin) -> Span:
    """The span of a pin."""
    return Span(pin.start_s, pin.end_s, pin.boot_id)


def touched(recording: Recording, spans: Sequence[Span]) -> list[Segment]:
    """Segments that touch one of the spans; all of them if none is given."""
    return [
        segment
        for segment in recording.segments
        if not spans or any(span.touches(segment) for span in spans)
    ]


class Wanted(NamedTuple):
    """What to export. Empty `tables`: all that have rows; empty `spans`: all of the time."""

    tables: Sequence[type[Row]] = ()
    spans: Sequence[Span] = ()
    format: str = "parquet"
    force: bool = False


class Exported(NamedTuple):
    """A file that was written."""

    path: Path
    rows: int


def export_tables(
    recording: Recording, out: Path, wanted: Wanted, tick: Tick | None = None
) -> list[Exported]:
    """Write one file per table into the directory `out`. Unreadable parts are listed in
    `recording.problems`; `StoreError` if a file already exists, `OSError` if writing fails."""
    segments = touched(recording, wanted.spans)
    kinds = list(wanted.tables) or [
        kind
        for _, kind in sorted(tables().items())
        if any(segment.rows(kind) for segment in segments)
    ]
    targets = {kind: out / f"{table(kind)}.{wanted.format}" for kind in kinds}
    if not wanted.force:
        _refuse_existing(targets.values())
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = []
    for number, (kind, target) in enumerate(targets.items()):
        rows = 0
        with written_aside(target) as stream:
            writer = _WRITERS[wanted.format](stream, schema_of(kind))
            for place, segment in enumerate(segments):
                if tick is not None:
                    tick(number * len(segments) + place, len(targets) * len(segments))
                if segment.rows(kind):
                    rows += _copy(segment, kind, wanted.spans, writer)
            writer.close()
        made.append(Exported(target, rows))
    return made


def _copy(segment: Segment, kind: type[Row], spans: Sequence[Span], writer: _Writer) -> int:
    stored = segment.table(kind, None, texts_of(kind))
    if stored is None:  # damaged; reported in `problems`
        return 0
    content = pa.table([whole(column) for column in stored.columns], stored.column_names)
    del stored
    if spans:
        parts = [span.of(content) for span in spans if span.touches(segment)]
        content = parts[0] if len(parts) == 1 else _united(parts)
    keys = [(MONO, "ascending"), (POSITION, "ascending")]
    order = pc.sort_indices(content.select([MONO, POSITION]), sort_keys=keys)
    step = _at_once(content)
    for at in range(0, content.num_rows, step):
        part = content.take(order.slice(at, step))
        writer.write(conformed(part, schema_of(kind)))
    return int(content.num_rows)


def _at_once(content: pa.Table) -> int:
    """How many rows to decode at a time: texts are many times as large as their codes."""
    longest = sum(map(longest_text, content.columns))
    return max(1, min(_SORTED_ROWS, _TEXT_AT_ONCE // max(longest, 1)))


def _united(parts: Sequence[pa.Table]) -> pa.Table:
    """Rows of several spans, without duplicates where the spans overlap."""
    whole = pa.concat_tables(parts)
    keys = zip(whole.column(MONO).to_pylist(), whole.column(POSITION).to_pylist(), strict=True)
    first = {key: index for index, key in reversed(list(enumerate(keys)))}
    return whole.take(pa.array(sorted(first.values()), pa.int64()))


def conformed(content: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table of any version with the current columns: missing ones are null, others left out."""
    columns = [
        content.column(field.name).cast(field.type)
        if field.name in content.column_names
        else pa.nulls(content.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


class _Writer(Protocol):
    def write(self, content: pa.Table) -> None: ...
    def close(self) -> None: ...


class _Lines:
    def __init__(self, stream: IO[bytes], schema: pa.Schema) -> None:
        self._stream = stream
        self._names = schema.names

    def write(self, content: pa.Table) -> None:
        safe = pa.table([_escaped(column) for column in content.columns], self._names)
        for batch in safe.to_batches(max_chunksize=_ROWS):
            lines = (json.dumps(row, separators=(",", ":")) + "\n" for row in batch.to_pylist())
            self._stream.write("".join(lines).encode())

    def close(self) -> None:
        pass


class _Csv:
    def __init__(self, stream: IO[bytes], schema: pa.Schema) -> None:
        fields = [
            pa.field(field.name, pa.string() if pa.types.is_list(field.type) else field.type)
            for field in schema
        ]
        self._names = schema.names
        self._writer = pyarrow.csv.CSVWriter(stream, pa.schema(fields))

    def write(self, content: pa.Table) -> None:
        columns = [_no_formula(_flat(_escaped(column))) for column in content.columns]
        for batch in pa.table(columns, self._names).to_batches(max_chunksize=_ROWS):
            self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


_WRITERS: dict[str, Callable[[IO[bytes], pa.Schema], _Writer]] = {
    "parquet": partial(pq.ParquetWriter, compression="zstd"),
    "jsonl": _Lines,
    "csv": _Csv,
}


def _escaped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_string(column.type):
        return _mapped(column, lambda text: printable(unescape(text)))
    if column.type == pa.list_(pa.string()):
        values = [
            None if value is None else [printable(unescape(text)) for text in value]
            for value in column.to_pylist()
        ]
        return pa.chunked_array([pa.array(values, column.type)])
    return column


def _mapped(column: pa.ChunkedArray, change: Callable[[str], str]) -> pa.ChunkedArray:
    """Change texts, each distinct one once: names repeat with every reading."""
    coded = column.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    changed = pa.array([change(text) for text in coded.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([changed.take(coded.indices)])


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_list(column.type):
        return column
    values = [None if value is None else json.dumps(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(values, pa.string())])


def _no_formula(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_string(column.type):
        return column
    return _mapped(column, lambda text: f"'{text}" if text.startswith(_FORMULA) else text)


def export_recording(
    recording: Recording, out: Path, segments: Sequence[Segment], pins: Sequence[Pin]
) -> tuple[int, int]:
    """Write whole segments as a new recording, with the pins that hold them and the rings and
    stacks of their time; returns the number of files and bytes.

    `StoreError` if `out` already exists: a recording is never merged into another.
    """
    _refuse_existing([out])
    aside = out.with_name(f"{ASIDE}{out.name}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        out.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside.mkdir(mode=0o700)
        for name in ("segments", "open", "pins"):
            (aside / name).mkdir(mode=0o700)
        written = [size for segment in segments for size in _placed(aside, recording, segment)]
        written += [_place(aside, piece) for piece in loose_pieces(recording.path, segments)]
        for pin in pins:
            if any(pin.holds(segment) for segment in segments):
                add_pin(aside, pin)
        sync_directory(aside)
        aside.rename(out)
    except (OSError, StoreError):
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return len(written), sum(written)


def _placed(aside: Path, recording: Recording, segment: Segment) -> list[int]:
    """Copy a segment's files; returns their sizes. If it was just sealed, copy the sealed one."""
    if segment.sealed:
        return [_place(aside, piece) for piece in pieces_of(segment.path)]
    try:
        return [_place(aside, piece) for piece in pieces_of_open(segment.path)]
    except StoreError:
        sealed = recording.path / "segments" / segment.name
        if not sealed.is_dir():
            raise
        shutil.rmtree(aside / "open" / segment.name, ignore_errors=True)
        return [_place(aside, piece) for piece in pieces_of(sealed)]


def _place(root: Path, piece: Piece) -> int:
    path = root / piece.name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        end = 0
        for chunk in piece.read():
            write_all(descriptor, chunk, end)
            end += len(chunk)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return piece.length


def _refuse_existing(paths: Iterable[Path]) -> None:
    for path in paths:
        if os.path.lexists(path):
            raise StoreError(f"{path}: already exists")
