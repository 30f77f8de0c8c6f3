"""Checks of the files beside the segments: marks, event rings, the status, lists of shipped files.

Each raises `StoreError` if its readers could not use the file, as they would find out themselves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sexton.errors import StoreError, first_line
from sexton.model.rows.trace import TraceEvent
from sexton.sandbox import largest_read
from sexton.store.arrays import text_bytes
from sexton.store.layout import read_plain
from sexton.store.pieces import shipped_in
from sexton.store.pins import text_of_mark
from sexton.store.schema import alike, schema_of, texts_of

_MOST_JSON = 16 << 20
#: Types of what readers show of a status.
_STATUS: dict[type | tuple[type, ...], tuple[str, ...]] = {
    str: ("schema", "state", "problem"),
    int: ("pid", "rss_bytes", "held_bytes", "written_bytes", "segments_sealed", "lost_rows"),
    (int, float): ("since", "at", "cpu_limit_percent"),
    dict: ("sources", "companions"),
    list: ("shed", "notes"),
}
#: The rings of all cores take 32 MB before they are compressed.
_MOST_RING = 64 << 20


def check_mark(path: Path) -> None:
    if text_of_mark(path) is None and path.exists():  # else the recorder has read it
        raise StoreError("not a mark")


def read_status(path: Path) -> dict[str, Any]:
    """The status of a recorder; `StoreError` if it is none."""
    status = _json(path)
    if not isinstance(status, dict):
        raise StoreError("not the status of a recorder")
    return status


def check_status(path: Path) -> None:
    status = read_status(path)
    wrong = [
        name
        for kinds, names in _STATUS.items()
        for name in names
        if name in status and not isinstance(status[name], kinds)
    ]
    if wrong or "state" not in status:
        raise StoreError("not the status of a recorder")


def check_shipped(path: Path) -> None:
    try:
        shipped_in(_json(path))
    except ValueError as error:
        raise StoreError(str(error)) from None


def _json(path: Path) -> Any:
    try:
        return json.loads(read_plain(path, _MOST_JSON))
    except (ValueError, RecursionError):
        raise StoreError("cannot be read as JSON") from None
    except OSError as error:
        raise StoreError(error.strerror or "cannot be read") from None


def check_ring(path: Path) -> None:
    """Decode an event ring, one row group at a time."""
    try:
        content = read_plain(path, _MOST_RING + 1)
        if len(content) > _MOST_RING:
            raise StoreError("larger than any event ring")
        coded = list(texts_of(TraceEvent))
        try:
            source = pq.ParquetFile(pa.BufferReader(content), read_dictionary=coded)
        except KeyError:
            raise StoreError("has other columns than an event ring") from None
        _check_ring(source)
    except MemoryError:
        raise StoreError("too large for the memory that is allowed") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StoreError(first_line(error)) from None


def _check_ring(source: pq.ParquetFile) -> None:
    wanted, there = schema_of(TraceEvent), source.schema_arrow
    names = [name for name in wanted.names if not name.startswith("read_")]
    if there.names != names:
        raise StoreError("has other columns than an event ring")
    if not all(alike(wanted.field(name).type, there.field(name).type) for name in names):
        raise StoreError("has columns of other types than an event ring")
    for group in range(source.num_row_groups):
        rows = source.metadata.row_group(group).num_rows
        if 8 * rows * len(names) > largest_read():
            raise StoreError(f"{rows:,} events, too large")
        found = source.read_row_group(group, use_threads=False)
        for column in found.columns:
            column.validate(full=True)
            if column.null_count:
                raise StoreError("lacks a value that every event has")
        if (size := sum(map(text_bytes, found.columns))) > largest_read():
            raise StoreError(f"{size >> 20:,} MB of text, too large")
