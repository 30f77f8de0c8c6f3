"""Files beside the segments that somebody made on purpose: `verify` calls them damaged."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sexton.model.row import fields_of
from sexton.model.rows.trace import TraceEvent
from sexton.store.pins import leave_mark, remark_now
from sexton.store.verify import DAMAGED, verify
from tests.support.cli import sexton
from tests.support.recordings import simple, write_sealed

TYPES = (pa.int64(), pa.int32(), pa.int32(), pa.string(), pa.string(), pa.string())


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    place = tmp_path / "rec"
    write_sealed(place, [simple(100.0)])
    return place


def verified(place: Path) -> list[str]:
    """What the command says, a line for each damaged file."""
    ended = sexton("recording", "verify", place, "--json")
    assert ended.stderr == b""
    found = json.loads(ended.stdout)["troubles"]
    assert ended.returncode == bool(found)
    assert {trouble["kind"] for trouble in found} <= {DAMAGED}
    return [f"{trouble['place']}: {trouble['detail']}" for trouble in found]


def events(number: int, text: str = "x") -> pa.Table:
    numbers = np.zeros(number, np.int64)
    words = pa.DictionaryArray.from_arrays(np.zeros(number, np.int32), [text])
    columns = [pa.array(numbers).cast(kind) for kind in TYPES[:3]]
    return pa.table([*columns, words, words, words], list(fields_of(TraceEvent)))


def test_a_ring_as_the_recorder_writes_it_is_whole(recording: Path):
    pq.write_table(events(5), recording / "rings" / "a.parquet", compression="zstd")
    schema = pa.schema(list(zip(fields_of(TraceEvent), TYPES, strict=True)))
    pq.write_table(schema.empty_table(), recording / "rings" / "b.parquet")
    assert verified(recording) == []


RINGS: dict[str, Callable[[Path], object]] = {
    "has other columns": lambda path: pq.write_table(pa.table({"a": [1]}), path),
    "MB of text": lambda path: pq.write_table(events(1 << 17, "x" * 4000), path),
    "too large": lambda path: pq.write_table(events(8 << 20), path, row_group_size=8 << 20),
    "other types": lambda path: pq.write_table(
        events(3).set_column(1, "cpu", pa.array(["a", "b", "c"])), path
    ),
    "lacks a value": lambda path: pq.write_table(
        events(3).set_column(1, "cpu", pa.array([0, None, 1], pa.int32())), path
    ),
    "larger than any": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
    "arquet": lambda path: path.write_bytes(b"PAR1" + bytes(100) + b"PAR1"),
}


@pytest.mark.parametrize("why", RINGS)
def test_a_ring_that_no_recorder_wrote_is_damage(recording: Path, why: str):
    RINGS[why](recording / "rings" / "a.parquet")
    (line,) = verified(recording)
    assert line.startswith("rings/a.parquet: ")
    assert why in line


OTHERS: dict[str, list[bytes]] = {
    "stacks/perf.data.20261119000000": [b"PERFILE2" + b"\xff" * 5000, b"PERFILE2", b""],
    "marks/a.json": [b"5", b"{}", b"[" * 9000, b"\xff"],
    "status.json": [b"5", b"[]", b"[" * 90_000, b'"x"', b"{}", b'{"state":"recording","pid":"x"}'],
    "shipped.json": [b"5", b"{}", b'{"files":{"a":[1]},"whole":true}', b'{"files":{},"whole":1}'],
    "symbols/abcdef.names": [b"", b"SEXTNAM1" + bytes(8) + b"x"],
}


@pytest.mark.parametrize(("name", "content"), [(k, c) for k, some in OTHERS.items() for c in some])
def test_what_its_readers_could_not_use_is_damage(recording: Path, name: str, content: bytes):
    (recording / name).write_bytes(content)
    (line,) = verified(recording)
    assert line.startswith(f"{name}: ")
    info = sexton("recording", "info", recording)
    assert (info.returncode, info.stderr) == (0, b"")


def test_what_its_readers_use_is_whole(recording: Path):
    leave_mark(recording, remark_now("job 17 died", "boot"))
    (recording / "status.json").write_text('{"state": "recording"}')
    listing: dict[str, Any] = {"schema": "sexton.shipped/1", "whole": True, "files": {"a": [1, 2]}}
    (recording / "shipped.json").write_text(json.dumps(listing))
    body = struct.pack("<QQ", 0, 0)
    head = struct.pack("<8sI4x", b"SEXTNAM1", zlib.crc32(body))
    (recording / "symbols" / "abcdef.names").write_bytes(head + body)
    assert verified(recording) == []
    assert verify(recording).files == 1 + 2
