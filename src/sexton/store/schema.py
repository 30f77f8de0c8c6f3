"""One Arrow schema per row class, made from the class itself.

A table's columns are `read_mono_s`, `read_wall_s` (when), `read_position` (the row's place in that
reading, to preserve order) and the row's fields. Types follow the annotations: `int` is int64
(uint64 if listed in `unsigned`), `float` float64, `str` UTF-8, a tuple a list, a mapping JSON text.
Fields that the kernel did not provide are null.

Columns are matched by name on reading, never by position: a recording made before a field existed
gives `None` for it, and unknown columns of a later version are skipped. `FORMAT` counts changes of
meaning; a recording with a higher number is refused.
Text is escaped as `sexton.store.encoding` describes.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import sexton.model
from sexton.errors import StoreError, first_line
from sexton.model.row import Row, fields_of, table
from sexton.model.window import Batch
from sexton.sandbox import largest_read
from sexton.store.arrays import Ints, numbers, text_bytes, values
from sexton.store.encoding import (
    MONO,
    POSITION,
    TIME,
    WALL,
    blocks_in,
    columns_of,
    encode_rows,
    required_of,
    unescape,
)
from sexton.store.journal import ARROWS, READING, ROWS, TooLarge
from sexton.store.layout import FORMAT, MOST_S

__all__ = ["FORMAT", "MONO", "POSITION", "TIME", "WALL"]
_TEXT = ("str", "str | None")
#: No table has a tenth of it; what is done for each column is done for each row group again.
_MOST_COLUMNS = 500
#: What decoding an invalid file with a valid checksum may raise.
_NONSENSE = (
    AttributeError, IndexError, KeyError, OSError, OverflowError, RecursionError, TypeError,
    ValueError, struct.error, zlib.error, pa.ArrowException,
)  # fmt: skip


@cache
def tables() -> Mapping[str, type[Row]]:
    """Every row class by the name of its table."""
    for module in pkgutil.walk_packages(sexton.model.__path__, "sexton.model."):
        importlib.import_module(module.name)
    return {table(kind): kind for kind in Row.__subclasses__() if kind.__module__ != __name__}


_TIME_TYPES = (pa.float64(), pa.float64(), pa.int32())
_ARROW = {
    "q": pa.int64(),
    "Q": pa.uint64(),
    "i": pa.int32(),
    "d": pa.float64(),
    "b": pa.bool_(),
    "s": pa.string(),
    "m": pa.string(),
}
READINGS = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field(MONO, pa.float64(), nullable=False),
        pa.field(WALL, pa.float64(), nullable=False),
        pa.field("rows", pa.int32(), nullable=False),
    ],
    metadata={"sexton.table": READING, "sexton.format": str(FORMAT)},
)


def _arrow(kind: str) -> pa.DataType:
    return pa.list_(_arrow(kind[:-1])) if kind[-1] == "l" else _ARROW[kind]


_schemas: dict[type[Row], pa.Schema] = {}


def schema_of(kind: type[Row]) -> pa.Schema:
    """The Arrow schema of a row's table."""
    if kind not in _schemas:
        _schemas[kind] = _schema(kind)
    return _schemas[kind]


def _schema(kind: type[Row]) -> pa.Schema:
    made = [
        pa.field(name, arrow, nullable=False) for name, arrow in zip(TIME, _TIME_TYPES, strict=True)
    ]
    made += [pa.field(name, _arrow(column)) for name, column in columns_of(kind).items()]
    return pa.schema(made, metadata={"sexton.table": table(kind), "sexton.format": str(FORMAT)})


def encode(kind: type[Row], batches: Sequence[Batch[Any]]) -> tuple[pa.RecordBatch, int]:
    """Readings as one Arrow batch, and the number of rows that fit no column."""
    block, rows, refused = encode_rows(kind, batches)
    schema = schema_of(kind)
    if not rows:
        return pa.RecordBatch.from_pylist([], schema=schema), refused
    return read_stream([block], ROWS).cast(schema).combine_chunks().to_batches()[0], refused


def read_stream(flushes: Sequence[bytes], suffix: str) -> pa.Table:
    """The rows of a table's file in an open segment; `StoreError` if they are invalid."""
    try:
        if suffix == ARROWS:
            found = pa.ipc.open_stream(b"".join(flushes)).read_all()
            # Arrow itself does not check the offsets, codes and lengths of a stream.
            found.validate(full=True)
            return found
        most = largest_read()
        blocks = []
        for flush in flushes:
            for columns, body in blocks_in(flush, most):
                blocks.append((columns, body))
                most -= len(body)
        alike = groupby(blocks, lambda block: [column[:3] for column in block[0]])
        parts = [_from_blocks([*group]) for _, group in alike]
        return pa.concat_tables(parts, promote_options="default").combine_chunks()
    except MemoryError:
        raise TooLarge("too large for the memory that is allowed") from None
    except _NONSENSE as error:
        raise StoreError(first_line(error)) from None


def extended(found: pa.Table, more: pa.Table) -> pa.Table:
    """A table with more rows of it; `StoreError` if they do not fit."""
    try:
        return pa.concat_tables([found, more], promote_options="default").combine_chunks()
    except MemoryError:
        raise TooLarge("too large for the memory that is allowed") from None
    except _NONSENSE as error:
        raise StoreError(first_line(error)) from None


def checked_table(name: str, found: pa.Table) -> pa.Table:
    """The table itself, from a file that may be untrusted; `StoreError` if an offset or code is out
    of range, or a value is none that a recorder writes there. Its columns are those that
    `check_columns` found right."""
    expected = _expected(name)
    for field, column in zip(found.schema, found.columns, strict=True):
        if not pa.types.is_primitive(field.type):  # numbers have neither offsets nor codes
            try:
                column.validate(full=True)
            except pa.ArrowException as error:
                raise StoreError(first_line(error)) from None
        if field.name in expected:
            _check_values(expected[field.name], column)
    if (size := sum(map(text_bytes, found.columns))) > largest_read():
        raise StoreError(f"{size >> 20:,} MB of text, too large")
    return found


def _check_values(wanted: _Expected, column: pa.ChunkedArray) -> None:
    missing = wanted.required and column.null_count
    for chunk in column.chunks:
        if pa.types.is_list(chunk.type):
            missing = missing or chunk.values.null_count
        elif pa.types.is_dictionary(chunk.type):
            missing = missing or chunk.dictionary.null_count
    if missing:
        raise StoreError(f"column {wanted.name} lacks a value that every row has")
    if wanted.type == pa.float64():
        for chunk in column.chunks:
            some = numbers(chunk, absent=0)
            if len(some) and not -MOST_S <= some.min() <= some.max() <= MOST_S:  # refuses NaN
                is_time = wanted.name in (MONO, WALL)
                what = "a reading has no valid time" if is_time else "not a number that is recorded"
                raise StoreError(what if is_time else f"column {wanted.name}: {what}")
    if wanted.is_mapping:
        for text in column.unique().to_pylist():
            if text is not None:
                _mapping(unescape(text))


def _check_number(columns: int) -> None:
    if columns > _MOST_COLUMNS:
        raise StoreError(f"{columns:,} columns, more than any table has")


def _is_recorded(found: pa.DataType, lists: int = 2) -> bool:
    """Whether a column may have this type: numbers, text, codes of texts, lists of these, and the
    cells of an annex."""
    if pa.types.is_list(found):
        return lists > 0 and _is_recorded(found.value_type, lists - 1)
    if pa.types.is_dictionary(found):
        return bool(found.value_type == pa.string())
    others = (pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.null())
    return pa.types.is_integer(found) or pa.types.is_fixed_size_binary(found) or found in others


def check_columns(name: str, there: pa.Schema) -> None:
    """`StoreError` if a table lacks a column that every version has, has one twice or far too many,
    or one has the wrong type. Columns that this version does not know are kept, so they too must be
    of a type that can be sorted, merged, sealed and read again: Arrow has others."""
    _check_number(len(there))
    if len({*there.names}) != len(there):
        raise StoreError("has two columns of one name")
    for field in there:
        if not _is_recorded(field.type):
            raise StoreError(f"column {field.name} is {field.type}, which is not recorded")
    for column, wanted in _expected(name).items():
        if column in there.names:
            found = there.field(column).type
            if not alike(wanted.type, found):
                raise StoreError(f"column {column} is {found}, not {wanted.type}")
        elif wanted.required:
            raise StoreError(f"has no column {column}")


class _Expected(NamedTuple):
    """A column of a table that this version knows. `required`: every version writes it, with a
    value in every row; fields that were added later may be `None`."""

    name: str
    type: pa.DataType
    required: bool
    is_mapping: bool = False


@cache
def _expected(name: str) -> Mapping[str, _Expected]:
    """The columns of a table; empty for a table that this version does not know."""
    if name == READING:
        return {field.name: _Expected(field.name, field.type, True) for field in READINGS}
    kind = tables().get(name)
    if kind is None:
        return {}
    required, mappings = {*TIME, *required_of(kind)}, _mappings(kind)
    return {
        name: _Expected(name, arrow, name in required, name in mappings)
        for name, arrow in zip(schema_of(kind).names, schema_of(kind).types, strict=True)
    }


def alike(wanted: pa.DataType, found: pa.DataType) -> bool:
    """Whether a column of one type can be read as the other: integers of any size, any number as a
    float, codes as the text they stand for."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_list(wanted) and pa.types.is_list(found):
        return alike(wanted.value_type, found.value_type)
    if pa.types.is_boolean(wanted) or not pa.types.is_primitive(wanted):
        return bool(wanted == found)
    floats = pa.types.is_floating(wanted) and pa.types.is_floating(found)
    return bool(pa.types.is_integer(found) or floats)


def _from_blocks(blocks: Sequence[tuple[Sequence[Sequence[Any]], bytes]]) -> pa.Table:
    """Blocks with columns of the same names, types and forms, one after the other: a table's file
    has a block for every few seconds, and an Arrow array for each column of each takes longer than
    their values."""
    columns = blocks[0][0]
    _check_number(len(columns))
    contents: list[list[bytes]] = [[] for _ in columns]
    for described, body in blocks:
        at = 0
        for content, (_, _, _, length) in zip(contents, described, strict=True):
            content.append(body[at : at + length])
            at += length
    arrays, rows = [], None
    for (name, kind, form, _), content in zip(columns, contents, strict=True):
        made, number = (_of_words if form == "raw" else _of_json)(name, kind, content)
        if rows is not None and number != rows:
            raise ValueError(f"column {name} has more or fewer rows than others")
        rows = number
        arrays.append(made)
    return pa.table(arrays, schema=_schema_of_block(tuple((it[0], it[1]) for it in columns)))


def _of_words(name: str, kind: str, parts: Sequence[bytes]) -> tuple[pa.Array, list[int]]:
    """A column of numbers, and how many there are in each part."""
    size = {"q": 8, "Q": 8, "d": 8, "i": 4}[kind]
    if any(len(part) % size for part in parts):
        raise ValueError(f"column {name} ends within a number")
    rows = [len(part) // size for part in parts]
    # From a numpy array, Arrow would import numpy's masked arrays first: 60 ms.
    words = [None, pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(_arrow(kind), sum(rows), words), rows


def _of_json(_: str, kind: str, parts: Sequence[bytes]) -> tuple[pa.Array, list[int]]:
    """The same of any values."""
    lists = [json.loads(part.decode("utf-8", "surrogatepass")) for part in parts]
    return pa.array([*chain.from_iterable(lists)], _arrow(kind)), [*map(len, lists)]


@lru_cache(256)
def _schema_of_block(columns: tuple[tuple[str, str], ...]) -> pa.Schema:
    """Of columns with these names and kinds: blocks are many, and tables few."""
    is_list = len(columns) == len(READINGS) and columns[0][0] == "table"
    return pa.schema(
        [
            pa.field(name, _arrow(kind), nullable=not (is_list or name in TIME))
            for name, kind in columns
        ]
    )


def with_unlisted(readings: pa.Table, found: Mapping[str, pa.Table]) -> pa.Table:
    """The list of readings, which is damaged, with those that only their rows show."""
    from pyarrow import compute as pc  # slow to import, and rarely needed here

    every = [readings]
    for name, content in found.items():
        if name == READING or MONO not in content.column_names:
            continue
        listed = readings.filter(pc.equal(readings.column("table"), name)).column(MONO)
        alike = content.select([MONO, WALL]).group_by([MONO, WALL], use_threads=False)
        times = alike.aggregate([([], "count_all")])
        new = times.filter(pc.invert(pc.is_in(times.column(MONO), value_set=listed)))
        columns = [
            pa.array([name] * new.num_rows, pa.string()),
            new.column(MONO),
            new.column(WALL),
            new.column("count_all").cast(pa.int32()),
        ]
        every.append(pa.table(columns, schema=READINGS))
    return pa.concat_tables([part.cast(READINGS) for part in every])


def grouped(
    kind: type[Row], found: pa.Table, chosen: Ints | None = None
) -> tuple[dict[float, tuple[int, int]], list[list[Any]]]:
    """Values of a row's fields sorted by reading, of the chosen rows or of all; and where the rows
    of each reading begin and end in them, by its time."""
    if chosen is None:
        chosen = np.arange(found.num_rows)
    if not len(chosen):
        return {}, []
    mono, position = (numbers(found.column(name))[chosen] for name in (MONO, POSITION))
    order = np.lexsort((position, mono))
    mono = mono[order]
    times, starts = np.unique(mono, return_index=True)
    ends = [*starts[1:].tolist(), len(mono)]
    places = dict(zip(times.tolist(), zip(starts.tolist(), ends, strict=True), strict=True))
    return places, fields_in(kind, found, chosen[order])


def rows_of(kind: type[Row], columns: Sequence[Sequence[Any]]) -> list[Row]:
    """Rows from their fields' values; none if there are no columns."""
    return list(map(kind, *columns)) if columns else []


def fields_in(kind: type[Row], found: pa.Table, rows: Ints | None = None) -> list[list[Any]]:
    """Values of a row's fields, a list per field: of these rows in this order, or of all. Columns
    that the table lacks are `None`."""
    number = found.num_rows if rows is None else len(rows)
    there = {*found.column_names}
    mappings = _mappings(kind)
    columns: list[list[Any]] = []
    for name in fields_of(kind):
        found_values = values(found.column(name), rows) if name in there else [None] * number
        if name in mappings and name in there:
            found_values = list(map(_mapping, found_values))
        columns.append(found_values)
    return columns


def _mapping(text: str) -> dict[str, Any]:
    try:
        made = json.loads(text)
    except (ValueError, RecursionError):
        made = None
    if not isinstance(made, dict) or not all(type(it) in (int, str) for it in made.values()):
        raise StoreError("a column of mappings holds something else")
    return made


def _mappings(kind: type[Row]) -> frozenset[str]:
    """Fields that are mappings. Resolving the types of a row class takes longer than reading some
    tables, so the annotations are checked first."""
    if not any("Mapping" in str(hint) for hint in kind.__annotations__.values()):
        return frozenset()
    return frozenset(name for name, column in columns_of(kind).items() if column == "m")


_texts: dict[type[Row], tuple[str, ...]] = {}


def texts_of(kind: type[Row]) -> tuple[str, ...]:
    """Its text columns, which are read fastest as codes."""
    if kind not in _texts:
        hints = kind.__annotations__
        _texts[kind] = tuple(name for name in fields_of(kind) if hints[name] in _TEXT)
    return _texts[kind]
