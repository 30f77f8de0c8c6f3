"""A sealed segment: Parquet files that never change again, and the manifest that vouches for them.

Written aside, synced, renamed: a segment under its own name is whole. Within a file the rows of one
thing (a core, a process, a counter) stand together in the order of time, so that a counter's
neighbour is itself one reading earlier: differences are small, and small is what the encoding
keeps. `read_position` puts a reading together again as it was.

Files are read whole and compared with the manifest's checksum before Arrow sees them: flipped bits
and foreign files are named and skipped, never parsed.
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
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sexton.errors import StoreError
from sexton.model.row import Row, table
from sexton.store.journal import READING, recover
from sexton.store.layout import ASIDE, sync_directory, write_all
from sexton.store.schema import FORMAT, MONO, TIME, WALL, tables

MANIFEST = "manifest.json"
SCHEMA = f"sexton.recording/{FORMAT}"
_ZSTD_LEVEL = 3
_MOST_MANIFEST = 16 << 20
_DELTA = (pa.types.is_int32, pa.types.is_int64, pa.types.is_uint64)


class Contents(NamedTuple):
    """What a segment is made of: its header, its tables, and how each source fared.

    `readings` lists every reading of every table (see `journal.READINGS`), the empty ones too.
    """

    header: Mapping[str, Any]
    tables: Mapping[type[Row], pa.Table]
    readings: pa.Table
    states: Sequence[Sequence[Any]] = ()


def write_segment(segments: Path, name: str, contents: Contents) -> Path:
    """Write one sealed segment; where it ended up. Nothing is left behind where it fails."""
    aside = segments / f"{ASIDE}{name}"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(mode=0o700)
        described = {READING: _write(aside, READING, contents.readings)}
        for kind, found in contents.tables.items():
            described[table(kind)] = _write(aside, table(kind), ordered(kind, found))
        spans = spans_of(contents.readings)
        for key, span in spans.items():
            described.setdefault(key, {"rows": 0}).update(span)
        told = {
            **contents.header,
            "schema": SCHEMA,
            "segment": name,
            "start": _edge(spans, "first", min),
            "end": _edge(spans, "last", max),
            "tables": described,
            "states": list(contents.states),
        }
        _store(aside / MANIFEST, _signed(told))
        sync_directory(aside)
        whole = segments / name
        aside.rename(whole)
        sync_directory(segments)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return whole


def seal(opened: Path, segments: Path) -> tuple[Path | None, list[str]]:
    """Turn an open segment into a sealed one; `None` where nothing in it can be read.

    Safe to repeat after a crash at any point: what was sealed already is only tidied up.
    """
    whole = segments / opened.name
    if (whole / MANIFEST).exists():
        shutil.rmtree(opened, ignore_errors=True)
        return whole, []
    try:
        found = recover(opened)
    except StoreError as error:
        shutil.rmtree(opened, ignore_errors=True)
        return None, [str(error)]
    readings = found.tables.pop(READING, None)
    if readings is None:
        shutil.rmtree(opened, ignore_errors=True)
        return None, [*found.problems, f"{opened.name}: no whole flush"]
    kinds = tables()
    made = {kinds[name]: content for name, content in found.tables.items()}
    whole = write_segment(
        segments, opened.name, Contents(found.header, made, readings, found.states)
    )
    shutil.rmtree(opened, ignore_errors=True)
    return whole, found.problems


def ordered(kind: type[Row], found: pa.Table) -> pa.Table:
    """The rows of each thing together, by time."""
    if not kind.entity or found.num_rows < 2:
        return found
    keys = {}
    for name in kind.entity:
        column = found.column(name).combine_chunks()
        if pa.types.is_string(column.type):  # codes sort much faster than text
            column = column.dictionary_encode().indices
        keys[name] = column
    keys[MONO] = found.column(MONO)
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    return found.take(order)


def read_manifest(directory: Path) -> dict[str, Any]:
    """A sealed segment's manifest; `StoreError` where it is missing, damaged or from the future."""
    try:
        with (directory / MANIFEST).open("rb") as stream:
            content = stream.read(_MOST_MANIFEST)
    except OSError as error:
        raise StoreError(f"{directory.name}: {MANIFEST}: {error.strerror}") from None
    checksum, _, text = content.partition(b"\n")
    try:
        if int(checksum, 16) != zlib.crc32(text):
            raise StoreError(f"{directory.name}: {MANIFEST} is damaged")
        told: dict[str, Any] = json.loads(text)
        number = int(str(told["schema"]).rpartition("/")[2])
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{directory.name}: {MANIFEST} makes no sense") from None
    if number > FORMAT:
        raise StoreError(f"{directory.name}: written by a newer Sexton ({told['schema']})")
    return told


def read_table(
    directory: Path, name: str, manifest: Mapping[str, Any], columns: Sequence[str] | None = None
) -> pa.Table | None:
    """One table, or some columns of it; `None` where the segment has no rows of it.

    `StoreError` where its file is missing or is not the one that was sealed.
    """
    described = manifest["tables"].get(name)
    if described is None or "crc32" not in described:
        return None
    path = directory / f"{name}.parquet"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{directory.name}/{path.name}: {error.strerror}") from None
    if zlib.crc32(content) != described["crc32"]:
        raise StoreError(f"{directory.name}/{path.name}: damaged, it is not what was sealed")
    try:
        source = pq.ParquetFile(pa.BufferReader(content))
        known = None if columns is None else [n for n in columns if n in source.schema_arrow.names]
        return source.read(columns=known, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        first = str(error).split("\n")[0]
        raise StoreError(f"{directory.name}/{path.name}: {first}") from None


def _write(directory: Path, name: str, content: pa.Table) -> dict[str, Any]:
    schema = content.schema
    delta = {
        field.name: "DELTA_BINARY_PACKED"
        for field in schema
        if any(is_type(field.type) for is_type in _DELTA)
    }
    sink = pa.BufferOutputStream()
    pq.write_table(
        content,
        sink,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=[field.name for field in schema if field.name not in delta],
        column_encoding=delta or None,
        write_statistics=[each for each in TIME if each in schema.names] or False,
        store_schema=False,
    )
    written = sink.getvalue().to_pybytes()
    _store(directory / f"{name}.parquet", written)
    return {"rows": content.num_rows, "bytes": len(written), "crc32": zlib.crc32(written)}


def spans_of(readings: pa.Table) -> dict[str, dict[str, Any]]:
    """Per table: how many readings, and the first and the last one's time."""
    found: dict[str, dict[str, Any]] = {}
    columns = (readings.column(name).to_pylist() for name in ("table", MONO, WALL))
    for name, mono, wall in zip(*columns, strict=True):
        span = found.setdefault(name, {"batches": 0, "first": [mono, wall], "last": [mono, wall]})
        span["batches"] += 1
        span["first"] = min(span["first"], [mono, wall])
        span["last"] = max(span["last"], [mono, wall])
    return found


def _edge(spans: Mapping[str, Mapping[str, Any]], which: str, choose: Any) -> list[float] | None:
    return choose((span[which] for span in spans.values()), default=None)  # type: ignore[no-any-return]


def _signed(told: Mapping[str, Any]) -> bytes:
    text = json.dumps(told, separators=(",", ":")).encode()
    return b"%08x\n%s" % (zlib.crc32(text), text)


def _store(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
