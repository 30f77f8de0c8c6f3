"""Fuzz target: a sealed segment. Its tables and its manifest, with checksums that fit.

Parts: `P` a table's number and a Parquet file for it; `M` JSON that is laid over the manifest.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sexton.store.journal import READING
from sexton.store.layout import TABLES
from tests.fuzz.parts import joined, parts
from tests.fuzz.reading_recordings import read_and_verify
from tests.support.recordings import manifest_of, resign, scratch, simple, table_of, write_sealed

_NAMES = (READING, "core_times", "mark")


@cache
def _held() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sexton-fuzz-")


@cache
def whole() -> Path:
    """A sealed segment of a small recording, in a directory that ends with this process."""
    return write_sealed(Path(_held().name), [simple(1.0), simple(3.0)])


def one(data: bytes) -> None:
    with scratch() as place:
        directory = place / "recording"
        shutil.copytree(whole().parents[1], directory)
        lay_over(directory / "segments" / whole().name, _NAMES, data)
        read_and_verify(directory, data)


def lay_over(sealed: Path, names: Sequence[str], data: bytes) -> None:
    """Replace tables of a sealed directory, and parts of its manifest, with checksums that fit."""
    manifest: Any = manifest_of(sealed)
    for kind, content in parts(data):
        if kind == b"P" and content:
            _replace(sealed, manifest, names[content[0] % len(names)], content[1:])
        elif kind == b"M":
            manifest = _laid(manifest, content)
    resign(sealed, manifest)


def _replace(segment: Path, manifest: Any, name: str, content: bytes) -> None:
    entry = manifest.get("tables", {}).get(name) if isinstance(manifest, dict) else None
    if not isinstance(entry, dict):
        return
    with open(segment / TABLES, "ab") as file:
        at = file.tell()
        file.write(content)
    entry |= {"offset": at, "bytes": len(content), "crc32": zlib.crc32(content)}
    try:
        rows = pq.ParquetFile(io.BytesIO(content)).metadata.num_rows
    except (pa.ArrowException, OSError, ValueError):
        rows = entry.get("rows")
    file_bytes = (segment / TABLES).read_bytes()
    entry["rows"] = rows
    manifest["file"] = {"bytes": len(file_bytes), "crc32": zlib.crc32(file_bytes)}


def _laid(under: object, content: bytes) -> object:
    try:
        return _over(under, json.loads(content))
    except (ValueError, RecursionError):
        return under


def _over(under: object, over: object) -> object:
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    return under | {key: _over(under.get(key), value) for key, value in over.items()}


def _parquet(table: pa.Table, **how: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    return sink.getvalue()


def seeds() -> list[bytes]:
    """What a recorder sealed, tables of other shapes and codecs, and changes to the manifest."""
    marks = pq.read_table(io.BytesIO(table_of(whole(), "mark")))
    words = pa.table({"text": ["a", "b"] * 40, "tree": [[[1], []]] * 80, "n": np.arange(80)})
    made = [_parquet(marks, compression=codec) for codec in ("none", "snappy", "gzip", "zstd")]
    made.append(_parquet(words, use_dictionary=["text"], data_page_size=64))
    made.append(_parquet(words.slice(0, 0), store_schema=False))
    table = [[(b"P", bytes([2]) + content)] for content in made]
    table += [[(b"P", bytes([i]) + table_of(whole(), name))] for i, name in enumerate(_NAMES)]
    changes = [
        b'{"tables":{"mark":{"rows":5,"first":[1.0,2.0],"last":[0,0]}}}',
        b'{"states":[["a","b","ok","","",false]],"start":[1,2],"end":[3,4],"providers":{}}',
        b'{"tables":{"x":{"rows":0},"mark":{"offset":0}},"boot_id":"","config":{"path":"x"}}',
    ]
    return [joined(each) for each in [*table, *([(b"M", change)] for change in changes)]]
