"""A sealed segment: tables that never change again, and a manifest with their checksums.

All tables are in one file, a ZIP archive of Parquet files: a night of 35 tables an hour would be
hundreds of files. The archive does not compress again, so the manifest says where each table
begins, it is read from there, and any other tool can unpack it. Before format 2 each table was a
file of its own.

A segment is written under a temporary name, synced and renamed, so one with a final name is
complete. Within a table the rows of one thing (a core, a process, a counter) are together in time
order: neighbouring values of a counter differ little and compress well. `read_position` restores
the order within a reading.

Tables are read as a whole and checked against the manifest before Arrow parses them: flipped bits
and foreign files are reported and skipped, never parsed. A checksum does not protect against a file
that was crafted, so the memory a table needs is checked before it is decoded, and every offset and
code after that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sexton.errors import StoreError, first_line
from sexton.model.row import Row, table
from sexton.sandbox import largest_read
from sexton.store.arrays import coded, numbers
from sexton.store.journal import READING, has_rows, recover
from sexton.store.layout import (
    ASIDE,
    MANIFEST,
    SCHEMA,
    SIGNATURE,
    TABLES,
    open_plain,
    read_manifest,
    read_part,
    read_plain,
    remove,
    sync_directory,
    with_checksum,
    write_all,
)
from sexton.store.runs import LISTED, Runs, decoded, described, encoded
from sexton.store.schema import MONO, POSITION, TIME, WALL, check_columns, checked_table, tables

if TYPE_CHECKING:
    from sexton.store.signing import Signer

_ZSTD_LEVEL = 3
_COUNTERS = (pa.types.is_int64, pa.types.is_uint64)
#: Bytes of files that stay open, in all and of each. A larger one would push out many small ones.
_MOST_OPEN, _LARGEST_OPEN = 24 << 20, 1 << 20


class Contents(NamedTuple):
    """The contents of a segment: its header, its tables, and the state of each source.

    `readings` lists every reading of every table (see `schema.READINGS`), empty ones included.
    `unknown` are tables of a later version by name, kept for a version that knows them.
    """

    header: Mapping[str, Any]
    tables: Mapping[type[Row], pa.Table]
    readings: pa.Table
    states: Sequence[Sequence[Any]] = ()
    unknown: Mapping[str, pa.Table] = MappingProxyType({})


def write_segment(
    segments: Path, name: str, contents: Contents, signer: Signer | None = None
) -> Path:
    """Write one sealed segment; returns its path. A failure leaves nothing behind."""
    with new_directory(segments / f"{ASIDE}{name}", segments / name) as aside:
        with TablesFile(aside) as file:
            described = {READING: _write(file, READING, contents.readings)}
            for kind, found in contents.tables.items():
                described[table(kind)] = _write(file, table(kind), ordered(kind, found))
            for unknown, found in contents.unknown.items():
                described[unknown] = _write(file, unknown, found)
        spans = spans_of(contents.readings)
        for key, span in spans.items():
            described.setdefault(key, {"rows": 0}).update(span)
        manifest = {
            **contents.header,
            "schema": SCHEMA,
            "segment": name,
            "start": _edge(spans, "first", min),
            "end": _edge(spans, "last", max),
            "tables": described,
            "file": file.whole(),
            "states": list(contents.states),
        }
        store_file(aside / MANIFEST, with_checksum(manifest))
        if signer is not None:
            store_file(aside / SIGNATURE, signer.segment(aside, name))
    return segments / name


@contextmanager
def new_directory(aside: Path, target: Path) -> Iterator[Path]:
    """A directory with a temporary name to fill; afterwards it is synced and renamed to `target`,
    or removed if anything fails."""
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(mode=0o700, parents=True)
        yield aside
        sync_directory(aside)
        aside.rename(target)
        sync_directory(target.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def seal(
    opened: Path, segments: Path, signer: Signer | None = None
) -> tuple[Path | None, list[str]]:
    """Turn an open segment into a sealed one; its path (`None` if unreadable) and problems.

    Safe to repeat after a crash at any point: if already sealed, only the open one is removed. An
    unreadable one is not deleted but moved to the sealed ones as it is: there it is reported,
    another version of Sexton may be able to read it, and retention bounds it.
    """
    whole = segments / opened.name
    if _is_sealed(whole):
        remove(opened)
        return whole, []
    try:
        found = recover(opened)
    except StoreError as error:
        return None, [str(error), *set_aside(opened, whole)]
    problems = [*found.problems, *filter(None, [found.cut])]
    if found.too_large:
        return None, [*problems, *set_aside(opened, whole)]
    readings = found.tables.pop(READING, None)
    if readings is None or not readings.num_rows:
        if problems:
            return None, [*problems, *set_aside(opened, whole)]
        remove(opened)
        return None, [f"{opened.name}: no whole flush"]
    kinds = tables()
    made = {kinds[name]: content for name, content in found.tables.items() if name in kinds}
    unknown = {name: content for name, content in found.tables.items() if name not in kinds}
    contents = Contents(found.header, made, readings, found.states, unknown)
    if whole.is_dir() and not whole.is_symlink():  # damaged: the open one is the better copy
        remove(whole)
    whole = write_segment(segments, opened.name, contents, signer)
    remove(opened)
    return whole, problems


def _is_sealed(whole: Path) -> bool:
    if whole.is_symlink():
        return False
    try:
        read_manifest(whole)
    except StoreError:
        return False
    return True


def set_aside(opened: Path, whole: Path) -> list[str]:
    """Keep an unreadable segment; an empty one, of a recorder killed at its start, is removed."""
    if not has_rows(opened):
        remove(opened)
        return []
    if os.path.lexists(whole):
        return [f"{opened.name}: left where it is"]
    opened.rename(whole)
    return [f"{opened.name}: kept as it is, under {whole.parent.name}/"]


def ordered(kind: type[Row], found: pa.Table) -> pa.Table:
    """The table with the rows of each thing together, by time."""
    if not kind.entity or found.num_rows < 2:
        return found
    keys = {}
    for name in kind.entity:
        if name not in found.column_names:  # left open by an older version
            continue
        column = found.column(name).combine_chunks()
        if pa.types.is_string(column.type):  # codes sort much faster than text
            column = column.dictionary_encode().indices
        keys[name] = column
    keys[MONO] = found.column(MONO)
    from pyarrow import compute as pc  # slow to import, and sealing an annex does not need it

    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    return found.take(order)


def read_table(
    directory: Path,
    name: str,
    manifest: Mapping[str, Any],
    columns: Sequence[str] | None = None,
    coded: Sequence[str] = (),
) -> pa.Table | None:
    """One table, or some columns of it; `None` if the segment has no rows of it.

    Text columns in `coded` stay dictionary codes, as stored: much faster if few names repeat often.
    `StoreError` if its file is missing or is not the one that was sealed.
    """
    source = open_table(directory, name, manifest, coded)
    return None if source is None else source.read(columns)


class OpenFiles:
    """The files that were used last: several detectors ask for the same table, and to read and
    check its file takes as long as to decode some columns."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Path, str, Sequence[str]], TableFile] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[()]]:
        return OpenFiles, ()  # another process opens its own

    def open(
        self, directory: Path, name: str, manifest: Mapping[str, Any], coded: Sequence[str] = ()
    ) -> TableFile | None:
        """As `open_table`."""
        key = (directory, name, tuple(coded))
        with self._lock:
            kept = self._drop(key)
        if kept is None:
            found = open_table(directory, name, manifest, coded)
            if found is None or found.bytes > _LARGEST_OPEN:
                return found
            kept = found
        with self._lock:
            self._drop(key)  # another thread may have opened it too
            self._kept[key] = kept  # the one used last is the last to go
            self._bytes += kept.bytes
            while self._bytes > _MOST_OPEN:
                self._drop(next(iter(self._kept)))
        return kept

    def _drop(self, key: tuple[Path, str, Sequence[str]]) -> TableFile | None:
        found = self._kept.pop(key, None)
        self._bytes -= 0 if found is None else found.bytes
        return found


class TableFile:
    """A table's file, checked against the manifest and not yet decoded. Threads may share it."""

    def __init__(self, source: pq.ParquetFile, name: str, place: str, size: int) -> None:
        self.bytes = size
        self.metadata = source.metadata
        self.num_row_groups: int = source.num_row_groups
        self._source, self._name, self._place = source, name, place
        self._schema: pa.Schema = source.schema_arrow
        self._rows: list[int] = [
            self.metadata.row_group(group).num_rows for group in range(self.num_row_groups)
        ]
        self._lock = threading.Lock()
        self._runs: dict[Sequence[str], list[Runs] | None] = {}

    @property
    def names(self) -> list[str]:
        """Its columns."""
        names: list[str] = self._schema.names
        return names

    def field(self, name: str) -> pa.Field:
        """The type of a column."""
        return self._schema.field(name)

    def runs(self, keys: Sequence[str]) -> list[Runs] | None:
        """The runs of each row group; `None` if the file does not list them."""
        key = tuple(keys)
        if key not in self._runs:
            listed = (self.metadata.metadata or {}).get(LISTED)
            self._runs[key] = None if listed is None else decoded(listed, keys, self._rows)
        return self._runs[key]

    def times(self, group: int) -> tuple[float, float]:
        """When the first and last rows of a row group were read; infinite if unknown."""
        if MONO in self.names:
            column = self.metadata.row_group(group).column(self.names.index(MONO))
            statistics = column.statistics if column.path_in_schema == MONO else None
            if statistics is not None and statistics.has_min_max:
                return float(statistics.min), float(statistics.max)
        return -inf, inf

    @property
    def rows(self) -> int:
        return sum(self._rows)

    def first_times(self, group: int, number: int) -> npt.NDArray[np.float64]:
        """When the first rows of a row group were read; no more of the column is decoded."""
        try:
            if 8 * number > largest_read():
                raise StoreError(f"{number:,} readings, too large")
            with self._lock:
                some = self._source.iter_batches(number, [group], [MONO], use_threads=False)
                found = checked_table(self._name, pa.Table.from_batches([next(some)]))
        except (OSError, ValueError, StopIteration, pa.ArrowException) as error:
            raise StoreError(f"{self._place}: {first_line(error)}") from None
        made: npt.NDArray[np.float64] = numbers(found.column(MONO)).astype(np.float64)
        if len(made) != number:
            raise StoreError(f"{self._place}: fewer rows than its list of runs has")
        return made

    def read(
        self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
    ) -> pa.Table:
        """These columns (those it has) of these row groups; `StoreError` if that would take too
        much memory or the table is invalid."""
        groups = range(self.num_row_groups) if groups is None else groups
        try:
            return self._read(columns, groups)
        except StoreError as error:
            raise StoreError(f"{self._place}: {error}") from None
        except MemoryError:
            raise StoreError(f"{self._place}: too large for the memory that is allowed") from None
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise StoreError(f"{self._place}: {first_line(error)}") from None

    def _read(self, columns: Sequence[str] | None, groups: Sequence[int]) -> pa.Table:
        there = {*self.names}
        known = None if columns is None else [name for name in columns if name in there]
        needed = self._bytes(self.names if known is None else known, groups)
        if needed > largest_read():
            raise StoreError(f"{needed >> 20:,} MB in memory, too large")
        with self._lock:
            found = self._source.read_row_groups(list(groups), columns=known, use_threads=False)
        return checked_table(self._name, found)

    def _bytes(self, columns: Sequence[str], groups: Sequence[int]) -> int:
        """About how much memory they take, without texts: those are counted when they are read as
        codes (`checked_table`), and a command that reads untrusted files has a limit anyway."""
        total: int = len(columns) * sum(self._rows[group] for group in groups)
        lists = [name for name in columns if pa.types.is_nested(self._schema.field(name).type)]
        if lists:
            for group in map(self.metadata.row_group, groups):
                for place in range(group.num_columns):
                    column = group.column(place)
                    if column.path_in_schema.partition(".")[0] in lists:
                        total += column.num_values
        return 8 * total


def open_table(
    directory: Path, name: str, manifest: Mapping[str, Any], coded: Sequence[str] = ()
) -> TableFile | None:
    """One table's file, checked and not yet decoded; raises and returns as `read_table` does."""
    described = manifest["tables"].get(name)
    if described is None or "crc32" not in described:
        return None
    size = int(described["bytes"])
    place = table_place(directory.name, name, described)
    try:
        if "offset" in described:
            content = read_part(directory / TABLES, int(described["offset"]), size)
        else:
            content = read_plain(directory / f"{name}.parquet", size, exactly=True)
    except MemoryError:
        raise StoreError(f"{place}: too large for the memory that is allowed") from None
    except OSError as error:
        raise StoreError(f"{place}: {error.strerror}") from None
    if zlib.crc32(content) != described["crc32"]:
        raise StoreError(f"{place}: damaged: checksum differs")
    try:
        try:
            source = pq.ParquetFile(pa.BufferReader(content), read_dictionary=list(coded) or None)
        except KeyError:  # an older version's table has no such column
            there = {*pq.ParquetFile(pa.BufferReader(content)).schema_arrow.names}
            words = [column for column in coded if column in there] or None
            source = pq.ParquetFile(pa.BufferReader(content), read_dictionary=words)
        known = "" if "annex" in manifest else name  # tables of an annex are not rows
        opened = TableFile(source, known, place, len(content))
        check_columns(known, source.schema_arrow)
    except StoreError as error:
        raise StoreError(f"{place}: {error}") from None
    except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
        raise StoreError(f"{place}: {first_line(error)}") from None
    if opened.rows != described["rows"]:
        raise StoreError(f"{place}: {opened.rows} rows, sealed with {described['rows']}")
    return opened


def table_place(directory: str, name: str, described: Mapping[str, Any]) -> str:
    """Where a table is, for messages."""
    return f"{directory}/{f'{TABLES}/' if 'offset' in described else ''}{name}.parquet"


def _write(file: TablesFile, name: str, content: pa.Table) -> dict[str, Any]:
    """One table of a segment."""
    return file.add(name, [content], column_options(name, content.schema))


def column_options(name: str, schema: pa.Schema, hours: bool = False) -> dict[str, Any]:
    """How a table's columns are encoded, as options of `pyarrow.parquet.ParquetWriter`.

    Identifiers repeat or count up, so their differences are tiny. Counters jump from thing to
    thing: with 120 rows per thing that widened almost every block of 128 differences. Split into
    byte streams, the high bytes of neighbours are equal and compress to nothing. An hour has 3,600
    rows per thing; there, differences take a fifth less space and decode as fast.
    """
    kind = tables().get(name)
    entity = () if kind is None else kind.entity
    encodings = {
        field.name: "DELTA_BINARY_PACKED"
        if hours or field.name == POSITION or field.name in entity
        else "BYTE_STREAM_SPLIT"
        for field in schema
        if field.name == POSITION or any(is_type(field.type) for is_type in _COUNTERS)
    }
    return {
        "use_dictionary": [field.name for field in schema if field.name not in encodings],
        "column_encoding": encodings or None,
        "write_statistics": [column for column in TIME if column in schema.names] or False,
    }


class TablesFile:
    """The tables of a sealed directory, being written into one new file; synced when closed."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / TABLES
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._stream = os.fdopen(os.open(self._path, flags, 0o600), "w+b")
        self._zip = zipfile.ZipFile(self._stream, "w")

    def __enter__(self) -> TablesFile:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        try:
            if failed is None:
                self._zip.close()
                self._stream.flush()
                os.fsync(self._stream.fileno())
        finally:
            self._zip.fp = None  # else it is written to once more when it is deleted
            with contextlib.suppress(OSError):
                self._stream.close()

    def add(
        self,
        name: str,
        groups: Iterable[pa.Table],
        how: Mapping[str, Any],
        keys: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Add a table with one row group per part and these options of
        `pyarrow.parquet.ParquetWriter`; returns its manifest entry. With `keys`, the columns that
        identify a thing, it lists its runs."""
        content, rows = _parquet(groups, how, keys)
        member = zipfile.ZipInfo(f"{name}.parquet")
        member.external_attr = 0o600 << 16
        self._zip.writestr(member, content)
        self._stream.flush()  # a full disk is noticed here, and not when the table is forgotten
        offset = self._stream.tell() - content.size
        return {"rows": rows, "offset": offset, "bytes": content.size, "crc32": member.CRC}

    def whole(self) -> dict[str, int]:
        """The size and checksum of the whole file, for the manifest."""
        size, checksum = whole_file(self._path)
        return {"bytes": size, "crc32": checksum}


def whole_file(path: Path) -> tuple[int, int]:
    """The size and checksum of a regular file; `OSError` if it is something else."""
    checksum = at = 0
    with open_plain(path) as (descriptor, size):
        while piece := os.pread(descriptor, 1 << 20, at):
            checksum, at = zlib.crc32(piece, checksum), at + len(piece)
    return size, checksum


def _parquet(
    groups: Iterable[pa.Table], how: Mapping[str, Any], keys: Sequence[str]
) -> tuple[pa.Buffer, int]:
    """A table as a Parquet file in memory, and its number of rows."""
    sink = pa.BufferOutputStream()
    zstd = {"compression": "zstd", "compression_level": _ZSTD_LEVEL}
    options = {**zstd, "store_schema": False, **how}
    rest = iter(groups)
    first = next(rest)
    rows = 0
    runs: list[Runs] = []
    times: dict[bytes, int] = {}
    with pq.ParquetWriter(sink, first.schema, **options) as writer:
        for group in chain([first], rest):
            writer.write_table(group)
            rows += group.num_rows
            if keys:
                runs.append(described(group, keys, len(runs), times))
        listed = encoded(keys, runs)
        if listed is not None:
            writer.add_key_value_metadata({LISTED: listed})
    return sink.getvalue(), rows


def spans_of(readings: pa.Table) -> dict[str, dict[str, Any]]:
    """Per table: the number of readings, and the times of the first and the last."""
    codes, words = coded(readings.column("table"))
    mono, wall = (numbers(readings.column(name)) for name in (MONO, WALL))
    order = np.lexsort((wall, mono, codes))
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1)).tolist()
    found: dict[str, dict[str, Any]] = {}
    for start, end in pairwise([*starts, len(order)]):
        first, last = order[start], order[end - 1]
        found[words[codes[first]]] = {
            "batches": end - start,
            "first": [float(mono[first]), float(wall[first])],
            "last": [float(mono[last]), float(wall[last])],
        }
    return found


def _edge(spans: Mapping[str, Mapping[str, Any]], which: str, choose: Any) -> list[float] | None:
    return choose((span[which] for span in spans.values()), default=None)  # type: ignore[no-any-return]


def store_file(path: Path, content: bytes) -> None:
    """Write a new file and sync it, but not its directory."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
