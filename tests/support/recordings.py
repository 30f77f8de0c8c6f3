"""Recordings for tests: rows of any class with any value, written by the store itself."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from sexton.model.row import Row, fields_of
from sexton.model.window import Batch, SourceState
from sexton.store.journal import OpenSegment
from sexton.store.layout import MANIFEST, MOST_S, TABLES, prepare, segment_name
from sexton.store.schema import tables
from sexton.store.sealed import seal

BOOT = "0f8c2f5e-0000-4000-8000-000000000001"
HEADER = {"boot_id": BOOT, "host": "node-1", "sexton": "0", "providers": {"mark": "marks"}}
STATES = (SourceState("procfs.stat", "/proc/stat", "ok"),)
WALL_S = 1_700_000_000.0

KINDS = [kind for _, kind in sorted(tables().items())]

#: What the kernel, a user or JSON can put into a name.
HOSTILE = [
    "",
    "\0",
    "\0\0x",
    "a\\x41b",
    "\\",
    "\0\\xff",
    "\udcff\\xff",
    "\ud800 half a pair",
    "a\nb\x1b[2J",
    "<script>",
    "\u202e",
    "ü😀",
    "x" * 5000,
]
TEXT = st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=20)
SIGNED = st.integers(-(2**63), 2**63 - 1)
UNSIGNED = st.integers(0, 2**64 - 1)


def _values(hint: Any, unsigned: bool) -> st.SearchStrategy[Any]:
    arguments = get_args(hint)
    if type(None) in arguments:
        (other,) = (argument for argument in arguments if argument is not type(None))
        return st.none() | _values(other, unsigned)
    origin = get_origin(hint)
    if origin is tuple:
        return st.lists(_values(arguments[0], unsigned), max_size=4).map(tuple)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(TEXT, TEXT | st.integers(), max_size=3)
    simple = {bool: st.booleans(), float: st.floats(-MOST_S, MOST_S), str: TEXT}
    return simple.get(hint, UNSIGNED if unsigned else SIGNED)


def rows_of(kind: type[Row]) -> st.SearchStrategy[Row]:
    """Any row of a class that its columns can hold."""
    hints = get_type_hints(kind)
    fields = [_values(hints[name], name in kind.unsigned) for name in fields_of(kind)]
    return st.tuples(*fields).map(lambda values: kind(*values))


@st.composite
def batches_of(draw: st.DrawFn, kind: type[Row], start_s: float = 100.0) -> list[Batch[Any]]:
    """Readings of one class, one after the other; some are empty."""
    made = []
    mono_s = start_s
    for rows in draw(st.lists(st.lists(rows_of(kind), max_size=4), min_size=1, max_size=4)):
        mono_s += draw(st.floats(1e-6, 1e5))
        made.append(Batch(mono_s, draw(st.floats(0, 4e9)), tuple(rows)))
    return made


def marks(number: int, mono_s: float) -> Batch[Any]:
    """One reading of that many marks, each different from every other."""
    mark = tables()["mark"]
    rows = tuple(mark(f"mark {mono_s} {index}") for index in range(number))
    return Batch(mono_s, WALL_S + mono_s, rows)


def cores(mono_s: float, number: int = 2) -> Batch[Any]:
    """One reading of that many cores."""
    kind = tables()["core_times"]
    busy = int(mono_s * 1000)
    rows = tuple(kind(cpu, busy + cpu, 0, busy, 7, 0, 0, 1, 0) for cpu in range(number))
    return Batch(mono_s, WALL_S + mono_s, rows)


def write_open(
    directory: Path,
    flushes: Sequence[Mapping[type[Row], Sequence[Batch[Any]]]],
    sequence: int = 1,
    header: Mapping[str, Any] = HEADER,
) -> Path:
    """An open segment in a recording; its directory."""
    prepare(directory)
    place = directory / "open" / segment_name(sequence, WALL_S).text
    segment = OpenSegment(place, header)
    for flush in flushes:
        segment.flush(flush, STATES)
    segment.close()
    return place


def write_sealed(
    directory: Path,
    flushes: Sequence[Mapping[type[Row], Sequence[Batch[Any]]]],
    sequence: int = 1,
    header: Mapping[str, Any] = HEADER,
) -> Path:
    """A sealed segment in a recording; its directory."""
    whole, problems = seal(write_open(directory, flushes, sequence, header), directory / "segments")
    assert whole is not None
    assert problems == []
    return whole


def simple(mono_s: float, number: int = 3) -> dict[type[Row], list[Batch[Any]]]:
    """What one flush brings: two tables, an empty reading among them."""
    return {
        tables()["core_times"]: [cores(mono_s), cores(mono_s + 1)],
        tables()["mark"]: [marks(number, mono_s), marks(0, mono_s + 1)],
    }


def manifest_of(segment: Path) -> dict[str, Any]:
    """A manifest, unchecked."""
    document: dict[str, Any] = json.loads((segment / MANIFEST).read_bytes().partition(b"\n")[2])
    return document


def table_of(segment: Path, name: str) -> bytes:
    """A sealed table: a Parquet file."""
    entry = manifest_of(segment)["tables"][name]
    return (segment / TABLES).read_bytes()[entry["offset"] :][: entry["bytes"]]


def replace_table(segment: Path, name: str, content: bytes, rows: int | None = None) -> None:
    """Put another table there, with checksums that fit."""
    told = manifest_of(segment)
    entry = told["tables"][name]
    with open(segment / TABLES, "ab") as file:
        entry["offset"] = file.tell()
        file.write(content)
    entry |= {"bytes": len(content), "crc32": zlib.crc32(content)}
    entry |= {} if rows is None else {"rows": rows}
    whole = (segment / TABLES).read_bytes()
    resign(segment, {**told, "file": {"bytes": len(whole), "crc32": zlib.crc32(whole)}})


def damage_table(segment: Path, name: str) -> None:
    """Flip one bit in the middle of a table."""
    entry = manifest_of(segment)["tables"][name]
    content = bytearray((segment / TABLES).read_bytes())
    content[entry["offset"] + entry["bytes"] // 2] ^= 1
    (segment / TABLES).write_bytes(content)


def resign(segment: Path, told: Mapping[str, Any]) -> None:
    """Put another manifest there, with a checksum that fits."""
    text = json.dumps(told).encode()
    (segment / MANIFEST).write_bytes(b"%08x\n%s" % (zlib.crc32(text), text))


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory where there is one: hundreds of examples need not wait for a disk."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="sexton-test-", dir=memory) as place:
        yield Path(place)


def shown(batches: Sequence[Batch[Any]]) -> str:
    """Readings as text: NaN is not itself, and 1 is not 1.0."""
    return repr(list(batches))
