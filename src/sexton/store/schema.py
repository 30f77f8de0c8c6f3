"""One Arrow schema per row class, made from the class itself.

A table's columns are `read_mono_s`, `read_wall_s` (when) and `read_position` (its place in that
reading, so that order survives) and the row's fields. Types follow the annotations: `int` is int64
(uint64 where the row says `unsigned`), `float` float64, `str` UTF-8, a tuple a list, a mapping JSON
text. Everything else is `None` where the kernel did not give it.

Columns are matched by name on reading, never by place: a recording made before a field existed
gives `None` for it, one made by a later version may have columns that are skipped here.
`FORMAT` counts changes of meaning; a recording with a higher one is refused by name.
Text is stored as `sexton.store.escaped` has it.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

import sexton.model
from sexton.model.row import Row, fields_of, table
from sexton.model.window import Batch
from sexton.store.arrays import Ints, values
from sexton.store.escaped import escape
from sexton.store.manifest import FORMAT

_TEXT = ("str", "str | None")
MONO, WALL, POSITION = TIME = ("read_mono_s", "read_wall_s", "read_position")
#: What Arrow and we ourselves raise for a value that is not of its column's type.
_UNFIT = (
    AttributeError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    pa.ArrowException,
)


@cache
def tables() -> Mapping[str, type[Row]]:
    """Every row class there is, by its table's name."""
    for module in pkgutil.iter_modules(sexton.model.__path__, "sexton.model."):
        importlib.import_module(module.name)
    return {table(kind): kind for kind in Row.__subclasses__() if kind.__module__ != __name__}


_TIME_TYPES = (pa.float64(), pa.float64(), pa.int32())


class _Column(NamedTuple):
    """One field: its type, and how its values are turned into it.

    "whole" and "wholes" are integers and lists of them, "text" and "texts" likewise, "json" is a
    mapping, "plain" needs nothing.
    """

    type: pa.DataType
    how: str


class _Shape(NamedTuple):
    """What is made once per row class."""

    schema: pa.Schema
    columns: tuple[_Column, ...]
    values: Callable[[Row], tuple[Any, ...]]
    mappings: frozenset[str]


_shapes: dict[type[Row], _Shape] = {}


def _shape(kind: type[Row]) -> _Shape:
    if kind not in _shapes:
        hints = get_type_hints(kind)
        names = fields_of(kind)
        types = [_arrow(hints[name], name in kind.unsigned) for name in names]
        made = [
            pa.field(name, arrow, nullable=False)
            for name, arrow in zip(TIME, _TIME_TYPES, strict=True)
        ]
        made += [pa.field(name, arrow) for name, arrow in zip(names, types, strict=True)]
        told = {"sexton.table": table(kind), "sexton.format": str(FORMAT)}
        mappings = frozenset(name for name in names if _is_mapping(hints[name]))
        columns = tuple(
            _Column(arrow, "json" if name in mappings else _how(arrow))
            for name, arrow in zip(names, types, strict=True)
        )
        _shapes[kind] = _Shape(pa.schema(made, metadata=told), columns, _values_of(names), mappings)
    return _shapes[kind]


def _how(arrow: pa.DataType) -> str:
    if pa.types.is_list(arrow):
        inner = _how(arrow.value_type)
        return f"{inner}s" if inner != "plain" else inner
    if pa.types.is_string(arrow):
        return "text"
    return "whole" if pa.types.is_integer(arrow) else "plain"


def schema_of(kind: type[Row]) -> pa.Schema:
    """The Arrow schema of a row's table."""
    return _shape(kind).schema


def _values_of(names: Sequence[str]) -> Callable[[Row], tuple[Any, ...]]:
    if len(names) == 1:
        only = attrgetter(names[0])
        return lambda row: (only(row),)
    return attrgetter(*names)


def _is_mapping(hint: object) -> bool:
    origin = get_origin(_without_none(hint))
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _arrow(hint: object, unsigned: bool) -> pa.DataType:
    hint = _without_none(hint)
    origin = get_origin(hint)
    if origin is tuple:
        return pa.list_(_arrow(get_args(hint)[0], unsigned))
    if _is_mapping(hint):
        return pa.string()
    simple = {
        bool: pa.bool_(),
        int: pa.uint64() if unsigned else pa.int64(),
        float: pa.float64(),
        str: pa.string(),
    }
    return simple[hint]  # type: ignore[index]


def _without_none(hint: object) -> object:
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    return hint


def encode(kind: type[Row], batches: Sequence[Batch[Any]]) -> tuple[pa.RecordBatch, int]:
    """Readings as one Arrow batch, and how many rows no column could hold (a lying source)."""
    schema = schema_of(kind)
    values = _shape(kind).values
    rows = [values(row) for batch in batches for row in batch.rows]
    counts = [len(batch.rows) for batch in batches]
    mono = np.repeat([batch.mono_s for batch in batches], counts)
    wall = np.repeat([batch.wall_s for batch in batches], counts)
    position = np.concatenate([np.arange(number, dtype=np.int32) for number in counts])
    try:
        return _record_batch(kind, schema, (mono, wall, position), rows), 0
    except _UNFIT:
        fit = [index for index, row in enumerate(rows) if _fits(kind, schema, row)]
    times = tuple(column[fit] for column in (mono, wall, position))
    kept = [rows[index] for index in fit]
    return _record_batch(kind, schema, times, kept), len(rows) - len(kept)


def _fits(kind: type[Row], schema: pa.Schema, row: tuple[Any, ...]) -> bool:
    try:
        _record_batch(kind, schema, ([0.0], [0.0], [0]), [row])
    except _UNFIT:
        return False
    return True


def _record_batch(
    kind: type[Row], schema: pa.Schema, times: Sequence[Any], rows: Sequence[Any]
) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields_of(kind))
    arrays = [
        pa.array(values, type=arrow) for values, arrow in zip(times, _TIME_TYPES, strict=True)
    ]
    arrays += [
        _array(column, values) for column, values in zip(_shape(kind).columns, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: _Column, values: Sequence[Any]) -> pa.Array:
    if column.how == "whole":
        _refuse_fractions(values)
    elif column.how == "text":
        try:
            if not _hold_nul(values):
                return pa.array(values, type=column.type)
        except UnicodeEncodeError:
            pass
        values = [None if value is None else escape(value) for value in values]
    elif column.how == "json":
        values = [None if value is None else json.dumps(dict(value)) for value in values]
    elif column.how == "texts":
        values = [None if value is None else [escape(each) for each in value] for value in values]
    elif column.how == "wholes":
        _refuse_fractions(chain.from_iterable(value for value in values if value is not None))
    return pa.array(values, type=column.type)


def _hold_nul(values: Sequence[Any]) -> bool:
    """Might one begin with what marks escaped text? Joined, since that is one pass and not many."""
    try:
        return "\0" in "".join(values)
    except TypeError:  # some are absent
        return "\0" in "".join(value for value in values if value is not None)


def _refuse_fractions(values: Iterable[Any]) -> None:
    """Arrow would cut 1.5 down to 1 and say nothing."""
    if float in set(map(type, values)):
        raise TypeError("a fraction where whole numbers belong")


def decode(kind: type[Row], found: pa.Table, rows: Ints | None = None) -> list[Row]:
    """Rows of a table, in its order; or these of them, in this one. Columns it lacks are `None`."""
    return rows_of(kind, fields_in(kind, found, rows))


def rows_of(kind: type[Row], columns: Sequence[Sequence[Any]]) -> list[Row]:
    """Rows of their fields' values; none of no columns."""
    return list(map(kind, *columns)) if columns else []


def fields_in(kind: type[Row], found: pa.Table, rows: Ints | None = None) -> list[list[Any]]:
    """Values of a row's fields, a list for each; of which rows and in what order: see `decode`."""
    number = found.num_rows if rows is None else len(rows)
    there = {*found.column_names}
    mappings = _mappings(kind)
    columns: list[list[Any]] = []
    for name in fields_of(kind):
        told = values(found.column(name), rows) if name in there else [None] * number
        if name in mappings and name in there:
            told = [{} if each is None else json.loads(each) for each in told]
        columns.append(told)
    return columns


def _mappings(kind: type[Row]) -> frozenset[str]:
    """Asked for apart: to work out every row's types takes longer than to read some of them."""
    told = any("Mapping" in str(hint) for hint in kind.__annotations__.values())
    return _shape(kind).mappings if told else frozenset()


_texts: dict[type[Row], tuple[str, ...]] = {}


def texts_of(kind: type[Row]) -> tuple[str, ...]:
    """Its columns of text, which are read fastest as codes."""
    if kind not in _texts:
        told = kind.__annotations__
        _texts[kind] = tuple(name for name in fields_of(kind) if told[name] in _TEXT)
    return _texts[kind]
