"""How rows are encoded in an open segment, and text in every part of a recording.

The recorder encodes in its sampling process, and Arrow takes 60 MB, so nothing here imports it. A
block of ``<table>.rows`` is a length (4 bytes, little endian) and that many bytes of zlib. Unpacked
it is a line of JSON, ``[[name, type, form, bytes], …]``, and the columns one after the other.
Types: "q" (int64), "Q" (uint64), "d" (float64), "i" (int32), "b" (bool), "s" (text), "m" (a mapping
as JSON text); "l" behind one is a list of it. Forms: "raw" (machine words) or "json" (a list, with
null where there is no value).

Kernel names may be any bytes. Python holds invalid UTF-8 as lone surrogates, which Arrow rejects,
so such text is stored escaped after a NUL, which no name can contain:

>>> escape("a\\udcffb"), unescape(escape("a\\udcffb")) == "a\\udcffb"
('\\x00a\\\\xffb', True)
>>> escape("plain \\\\xff"), escape("\\0odd")
('plain \\\\xff', '\\x00\\x00odd')
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import sys
import types
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from sexton.model.row import Row, fields_of
from sexton.model.window import Batch, values_getter
from sexton.store.layout import MOST_S

MONO, WALL, POSITION = TIME = ("read_mono_s", "read_wall_s", "read_position")
#: A block that unpacks to more is not ours.
_MOST_BLOCK = 256 << 20
_LENGTH = struct.Struct("<I")
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_LITTLE = sys.byteorder == "little"
_LIMITS = {"q": (-(1 << 63), (1 << 63) - 1), "Q": (0, (1 << 64) - 1)}
_UNFIT = (AttributeError, OverflowError, RecursionError, TypeError, ValueError)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(\\|x[0-9a-f]{2}|u[0-9a-f]{4})")


class _Shape(NamedTuple):
    """Columns with their types, those that every row has a value in, and a function that gets the
    values of a row."""

    columns: tuple[tuple[str, str], ...]
    required: frozenset[str]
    values: Callable[[Row], tuple[Any, ...]]


_shapes: dict[type[Row], _Shape] = {}


def _shape(kind: type[Row]) -> _Shape:
    if kind not in _shapes:
        columns = tuple(columns_of(kind).items())
        _shapes[kind] = _Shape(columns, required_of(kind), values_getter(fields_of(kind)))
    return _shapes[kind]


def required_of(kind: type[Row]) -> frozenset[str]:
    """Fields that are never `None`. Those that were added after their table may be."""
    hints = kind.__annotations__
    return frozenset(name for name in fields_of(kind) if "None" not in str(hints[name]))


def columns_of(kind: type[Row]) -> dict[str, str]:
    """A row's columns and their types (see above)."""
    hints = get_type_hints(kind)
    return {name: column_type(hints[name], name in kind.unsigned) for name in fields_of(kind)}


def column_type(hint: object, unsigned: bool) -> str:
    """The type of a column (see above), from a field's annotation."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (kind for kind in get_args(hint) if kind is not type(None))
    origin = get_origin(hint)
    if origin is tuple:
        return f"{column_type(get_args(hint)[0], unsigned)}l"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "m"
    simple: dict[object, str] = {bool: "b", int: "Q" if unsigned else "q", float: "d", str: "s"}
    return simple[hint]


def encode_rows(kind: type[Row], batches: Sequence[Batch[Any]]) -> tuple[bytes, int, int]:
    """Readings as a block, the number of rows in it, and of rows that fit no column."""
    shape = _shape(kind)
    rows = [shape.values(row) for batch in batches for row in batch.rows]
    moments = [(batch.mono_s, batch.wall_s, len(batch.rows)) for batch in batches]
    times: list[array[Any]] = [
        array("d", [mono for mono, _, number in moments for _ in range(number)]),
        array("d", [wall for _, wall, number in moments for _ in range(number)]),
        array("i", [place for _, _, number in moments for place in range(number)]),
    ]
    try:
        return _block(shape, times, rows), len(rows), 0
    except _UNFIT:
        fit = [index for index, row in enumerate(rows) if _fits(shape, row)]
    times = [array(column.typecode, [column[index] for index in fit]) for column in times]
    kept = [rows[index] for index in fit]
    return _block(shape, times, kept), len(kept), len(rows) - len(kept)


def _fits(shape: _Shape, row: tuple[Any, ...]) -> bool:
    try:
        for (name, kind), value in zip(shape.columns, row, strict=True):
            _column(kind, (value,), name in shape.required)
    except _UNFIT:
        return False
    return True


def _block(shape: _Shape, times: Sequence[Any], rows: Sequence[tuple[Any, ...]]) -> bytes:
    head: list[tuple[str, str, str, int]] = []
    body: list[bytes] = []
    for name, made in zip(TIME, times, strict=True):
        head.append((name, made.typecode, "raw", len(made) * made.itemsize))
        body.append(_little(made))
    for (name, kind), values in zip(shape.columns, zip(*rows, strict=True), strict=bool(rows)):
        form, content = _column(kind, values, name in shape.required)
        head.append((name, kind, form, len(content)))
        body.append(content)
    return _packed(head, body)


def _packed(head: Sequence[object], body: Sequence[bytes]) -> bytes:
    content = b"".join((json.dumps(head, separators=(",", ":")).encode(), b"\n", *body))
    packed = zlib.compress(content, 1)
    return _LENGTH.pack(len(packed)) + packed


def _column(kind: str, values: Sequence[Any], required: bool) -> tuple[str, bytes]:
    """One column's form and bytes; raises one of `_UNFIT` for a value that is not of its type, or
    that readers refuse."""
    if kind == "d" and not all(value is None or -MOST_S <= value <= MOST_S for value in values):
        raise ValueError("not a number that is recorded")
    if kind in ("q", "Q", "d"):
        try:
            if kind == "d" or float not in set(map(type, values)):
                return "raw", _little(array(kind, values))
        except TypeError:  # some are None, or of the wrong type
            pass
    if required and None in values:
        raise TypeError("no value where there must be one")
    if _is_plain(kind, values):
        with contextlib.suppress(UnicodeEncodeError):
            return "json", _json(values)
    return "json", _json(
        [None if value is None else _checked_value(kind, value) for value in values]
    )


def _is_plain(kind: str, values: Sequence[Any]) -> bool:
    """Whether JSON can hold these as they are; a few passes over the column are faster than a test
    of each value."""
    found = set(map(type, values)) - {type(None)}
    if not found:
        return True
    if kind == "s" and found == {str}:
        return "\0" not in "".join(values if None not in values else filter(None, values))
    if kind in _LIMITS and found == {int}:
        there = [value for value in values if value is not None]
        least, most = _LIMITS[kind]
        return bool(least <= min(there) and max(there) <= most)
    return (kind, found) in (("b", {bool}), ("d", {float}))


def _checked_value(kind: str, value: Any) -> Any:
    """A value in a form that JSON can hold."""
    if kind[-1] == "l":
        return [
            None if element is None else _checked_value(kind[:-1], element) for element in value
        ]
    if kind == "m":
        return escape(json.dumps(dict(value)))
    if kind == "s":
        if not isinstance(value, str):
            raise TypeError("not text")
        return escape(value)
    if kind == "d" and not isinstance(value, (int, float)):
        raise TypeError("not a number")
    if kind == "b" and not isinstance(value, bool):
        raise TypeError("not a boolean")
    if kind in _LIMITS:
        least, most = _LIMITS[kind]
        if not isinstance(value, int) or not least <= value <= most:
            raise OverflowError("not a 64-bit integer")
        return int(value)
    return float(value) if kind == "d" else value


def _json(values: object) -> bytes:
    return _to_json(values).encode()


def _little(values: array[Any]) -> bytes:
    if not _LITTLE:
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def encode_readings(listed: Sequence[tuple[str, float, float, int]]) -> bytes:
    """The list of readings (table, monotonic and wall seconds, rows) as a block."""
    names, mono, wall, rows = zip(*listed, strict=True)
    columns = [
        ("table", "s", "json", _json(names)),
        (MONO, "d", "raw", _little(array("d", mono))),
        (WALL, "d", "raw", _little(array("d", wall))),
        ("rows", "i", "raw", _little(array("i", rows))),
    ]
    head = [(name, kind, form, len(content)) for name, kind, form, content in columns]
    return _packed(head, [content for *_, content in columns])


def blocks_in(content: bytes, most: int = _MOST_BLOCK) -> Iterable[tuple[list[list[Any]], bytes]]:
    """The blocks of one flush: columns and their bytes; `MemoryError` past `most` bytes in all."""
    at = 0
    while at < len(content):
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        unpacker = zlib.decompressobj()
        whole = unpacker.decompress(content[at : at + length], min(max(most, 1), _MOST_BLOCK))
        if unpacker.unconsumed_tail:
            raise MemoryError
        if not unpacker.eof:
            raise ValueError("not a block of rows")
        at += length
        most -= len(whole)
        head, _, body = whole.partition(b"\n")
        yield json.loads(head), body


def escape(text: str) -> str:
    """Text that UTF-8 can hold; unchanged in most cases."""
    if not text.startswith("\0") and _SURROGATE.search(text) is None:
        return text
    return "\0" + _SURROGATE.sub(_escaped, text.replace("\\", "\\\\"))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    # A raw byte is written as one; JSON (the journal's) can hold other halves of a pair.
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def unescape(text: str) -> str:
    """The text that was escaped."""
    return _ESCAPED.sub(_unescaped, text[1:]) if text.startswith("\0") else text


def _unescaped(found: re.Match[str]) -> str:
    if found[1] == "\\":
        return "\\"
    return chr(int(found[1][1:], 16) + (0xDC00 if found[1][0] == "x" else 0))
