"""Arrow columns as numpy arrays and Python values.

Through numpy, rows are selected before they become Python values, and numbers convert five times as
fast as in Arrow. It also avoids `pyarrow.compute`, which takes longer to load than a short
recording takes to read.

Text is best read as codes (`Segment.table(coded=…)`): each text once, and a number per row.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.store.encoding import unescape

Array = np.ndarray[Any, Any]
Ints = npt.NDArray[np.integer[Any]]
#: A `pa.ChunkedArray` or `pa.Array`; pyarrow has no types for mypy.
Column = Any
#: Converting one text by itself takes as long as this many of a whole column.
_FEW = 4


def whole(column: Column) -> pa.Array:
    """A column as one contiguous array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if not column.num_chunks:
        return pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return pa.concat_arrays(column.chunks)


def numbers(column: Column, absent: float = -1) -> Array:
    """A column of numbers or booleans, with `absent` for null."""
    array = whole(column)
    there = known(array)
    if there is None:
        made: Array = array.to_numpy(zero_copy_only=False)
        return made
    found = _data(array)
    signed = np.int64 if found.dtype.kind == "u" else found.dtype
    return np.where(there, found.astype(signed, copy=False), np.array(absent).astype(signed))


def raw(column: Column) -> tuple[Array, npt.NDArray[np.bool_] | None]:
    """A column of numbers as stored, and which of them are known; `None` if all are."""
    array = whole(column)
    there = known(array)
    return array.to_numpy(zero_copy_only=False) if there is None else _data(array), there


def floats(column: Column) -> npt.NDArray[np.float64]:
    """A column of numbers, NaN where there is none."""
    found, there = raw(column)
    made: npt.NDArray[np.float64] = found.astype(np.float64)
    if there is not None:
        made[~there] = np.nan
    return made


def codes(column: Column) -> Array:
    """Text as dictionary codes, -1 for null."""
    return numbers(_encoded(column).indices)


def coded(column: Column) -> tuple[Array, list[Any]]:
    """Text as dictionary codes, and the texts they stand for, unescaped."""
    array = _encoded(column)
    return numbers(array.indices), _words(array.dictionary.to_pylist())


def _encoded(column: Column) -> pa.DictionaryArray:
    array = whole(column)
    if not pa.types.is_dictionary(array.type):  # not sealed yet, or not read as codes
        array = array.dictionary_encode()
    return array


def text_bytes(column: Column) -> int:
    """How much text codes stand for; 0 for a column that is not of codes."""
    if not pa.types.is_dictionary(column.type):
        return 0
    chunks = [column] if isinstance(column, pa.Array) else column.chunks
    return sum(int(_lengths(chunk.dictionary)[numbers(chunk.indices)].sum()) for chunk in chunks)


def longest_text(column: Column) -> int:
    """Bytes of the longest text in a column of codes; 0 for another column."""
    if not pa.types.is_dictionary(column.type):
        return 0
    chunks = [column] if isinstance(column, pa.Array) else column.chunks
    return max((int(_lengths(chunk.dictionary).max()) for chunk in chunks), default=0)


def _lengths(words: pa.Array) -> npt.NDArray[np.int64]:
    """The lengths of texts in bytes, and 0 as the last one, for index -1."""
    if not len(words) or not pa.types.is_string(words.type):
        return np.zeros(len(words) + 1, np.int64)
    edges = np.frombuffer(words.buffers()[1], np.int32)[words.offset :][: len(words) + 1]
    return np.append(np.diff(edges).astype(np.int64), 0)


def values(column: Column, rows: Ints | None = None) -> list[Any]:
    """Python values of these rows in this order, or of all; `None` for null."""
    array = whole(column)
    kind = array.type
    if pa.types.is_dictionary(kind):
        which, words = coded(array)
        words.append(None)  # index -1
        return [words[code] for code in _some(which, rows).tolist()]
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        found, there = raw(array)
        made: list[Any] = _some(found, rows).tolist()
        if there is not None:
            for at in np.flatnonzero(~_some(there, rows)).tolist():
                made[at] = None
        return made
    if pa.types.is_string(kind) and rows is not None and _FEW * len(rows) < len(array):
        return _words([array[at].as_py() for at in rows.tolist()])
    if pa.types.is_list(kind):
        return _lists(array, rows)
    every = array.to_pylist()
    if pa.types.is_string(kind):
        every = _words(every)
    return every if rows is None else [every[at] for at in rows.tolist()]


def _lists(array: pa.ListArray, rows: Ints | None) -> list[tuple[Any, ...] | None]:
    """Lists as tuples, of the chosen rows only: an interrupt has a number for each core."""
    edges = array.offsets.to_numpy()
    starts, ends = _some(edges[:-1], rows), _some(edges[1:], rows)
    at = np.repeat(starts - np.cumsum(ends - starts) + ends - starts, ends - starts)
    inner = values(array.values, at + np.arange(len(at)))
    edges = np.append(0, np.cumsum(ends - starts))
    made: list[tuple[Any, ...] | None] = [
        tuple(inner[start:end]) for start, end in pairwise(edges.tolist())
    ]
    there = known(array)
    if there is not None:
        for place in np.flatnonzero(~_some(there, rows)).tolist():
            made[place] = None
    return made


def _some(found: Array, rows: Ints | None) -> Array:
    return found if rows is None else found[rows]


def known(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which elements are not null; `None` if all are."""
    if not array.null_count:
        return None
    return _bits(array.buffers()[0], array)


def _data(array: pa.Array) -> Array:
    """The raw numbers; undefined where null."""
    if pa.types.is_boolean(array.type):
        return _bits(array.buffers()[1], array)
    every = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    return every[array.offset : array.offset + len(array)]


def _bits(buffer: pa.Buffer, array: pa.Array) -> npt.NDArray[np.bool_]:
    every = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")
    return every[array.offset : array.offset + len(array)].astype(np.bool_)


def _words(stored: list[Any]) -> list[Any]:
    return [unescape(text) if text is not None and text[:1] == "\0" else text for text in stored]
