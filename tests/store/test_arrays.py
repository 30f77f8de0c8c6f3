"""Columns as numpy and Python have them: what Arrow itself would have said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.store.arrays import coded, codes, floats, numbers, values, whole
from sexton.store.encoding import escape, unescape

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "short": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "float": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text("ab\0\\é", max_size=4).map(escape)),
    "ints": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
    "texts": (pa.list_(pa.string()), st.lists(st.text("ab", max_size=2), max_size=3)),
}


def in_pieces(kind: pa.DataType, given: list[Any], cut: int) -> pa.ChunkedArray:
    """The same column in two chunks, of which the first does not begin where its buffer does."""
    first = pa.array([None, *given[:cut]], kind)[1:]
    return pa.chunked_array([first, pa.array(given[cut:], kind)], kind)


def as_stored(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_values_are_those_that_were_put_in(name: str, data: st.DataObject):
    kind, one = KINDS[name]
    plain = data.draw(st.lists(st.none() | one, max_size=12))
    column = in_pieces(kind, plain, data.draw(st.integers(0, len(plain))))
    shown = [as_stored(item) for item in plain]
    if name == "text":
        shown = [None if item is None else unescape(item) for item in plain]
        assert values(encoded(column)) == shown
    assert values(column) == shown
    rows = np.array(data.draw(st.lists(st.integers(0, len(plain) - 1)) if plain else st.just([])),
                    np.int64)  # fmt: skip
    assert values(column, rows) == [shown[at] for at in rows.tolist()]


def encoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """As a sealed table gives it where codes are asked for; each chunk has words of its own."""
    return pa.chunked_array(
        [chunk.dictionary_encode() for chunk in column.chunks],
        pa.dictionary(pa.int32(), pa.string()),
    )


@given(st.lists(st.none() | st.integers(-(2**53), 2**53), max_size=9))
def test_numbers_that_are_absent_are_what_the_caller_says(given: list[int | None]):
    column = pa.chunked_array([pa.array([7, *given], pa.int64())[1:]], pa.int64())
    assert numbers(column).tolist() == [-1 if number is None else number for number in given]
    assert numbers(column, 5).tolist() == [5 if number is None else number for number in given]
    expected = [np.nan if number is None else float(number) for number in given]
    assert np.array_equal(floats(column), expected, equal_nan=True)


def test_a_truth_that_is_absent_may_count_as_either():
    column = pa.chunked_array([[True, None, False]])
    assert numbers(column, True).tolist() == [True, True, False]
    assert numbers(column, False).tolist() == [True, False, False]


@given(st.lists(st.none() | st.sampled_from(["a", "b", escape("\udcff"), ""]), max_size=9))
def test_codes_tell_words_apart_and_lead_to_them(given: list[str | None]):
    plain = pa.chunked_array([given[:4], given[4:]], pa.string())
    for column in (plain, encoded(plain)):
        which, words = coded(column)
        assert codes(column).tolist() == which.tolist()
        told = [None if code < 0 else words[code] for code in which.tolist()]
        assert told == [None if item is None else unescape(item) for item in given]


def test_a_column_without_any_chunk_is_empty():
    for kind in (pa.int64(), pa.string(), pa.dictionary(pa.int32(), pa.string())):
        column = pa.chunked_array([], kind)
        assert len(whole(column)) == 0
        assert values(column) == []
