"""Looking up the symbols of file offsets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sexton.profile.symbols.table import CALL, EMPTY, Rows, table_of

LOCAL, GLOBAL, WEAK = 0, 1, 2


def table(*symbols):
    """Of (start, size, binding, name)."""
    text, at = bytearray(b"\0"), []
    for *_, name in symbols:
        at.append(len(text))
        text += name.encode() + b"\0"
    start, size, binding, _ = zip(*symbols, strict=True)
    return table_of(
        Rows(
            np.array(start, np.uint64),
            np.array(size, np.uint64),
            np.array(binding, np.uint8),
            np.array(at, np.int64),
        ),
        bytes(text),
    )


def named(found, *places, plain=lambda name: name):
    which = found.find(np.array(places, np.uint64), plain)
    return [found.names(np.array([index]))[0] if index >= 0 else None for index in which.tolist()]


def test_extents_are_honoured():
    found = table((100, 10, GLOBAL, "a"), (200, 10, GLOBAL, "b"))
    assert named(found, 99, 100, 109, 110, 199, 205, 210) == [None, "a", "a", None, None, "b", None]


def test_one_without_a_size_reaches_to_the_next_and_the_last_to_its_pages_end():
    found = table((200, 0, GLOBAL, "b"), (100, 0, GLOBAL, "a"))
    assert named(found, 150, 200, 8191, 8192) == ["a", "b", "b", None]


def test_a_label_within_a_function_names_nothing():
    found = table((100, 50, GLOBAL, "f"), (120, 0, LOCAL, "label"), (160, 0, LOCAL, "g"))
    assert named(found, 119, 125, 149, 155, 165) == ["f", "f", "f", None, "g"]


def test_behind_a_function_within_another_the_outer_one_goes_on():
    found = table((100, 100, GLOBAL, "outer"), (120, 10, LOCAL, "inner"))
    assert named(found, 115, 125, 135, 199, 200) == ["outer", "inner", "outer", "outer", None]


def test_of_several_at_one_place_perfs_rule_decides():
    for first, second, wins in (
        ((LOCAL, "aa"), (GLOBAL, "b"), "b"),
        ((WEAK, "aa"), (LOCAL, "b"), "b"),
        ((GLOBAL, "__a"), (GLOBAL, "b"), "b"),
        ((GLOBAL, "a"), (GLOBAL, "bb"), "bb"),
        ((GLOBAL, "a"), (GLOBAL, "b"), "a"),
    ):
        found = table((100, 8, *first), (100, 8, *second), (50, 8, GLOBAL, "x"))
        assert named(found, 104) == [wins]


def test_the_rule_goes_by_names_as_they_are_shown():
    found = table((100, 8, GLOBAL, "_Z1f"), (100, 8, GLOBAL, "plain"))
    assert named(found, 104) == ["plain"]
    assert named(found, 104, plain=lambda name: name.replace("_Z1f", "function")) == ["_Z1f"]


def test_a_call_through_the_linkage_table_is_marked():
    assert named(table((100, 16, CALL, "malloc")), 108) == ["malloc@plt"]


def test_an_empty_table_names_nothing():
    assert named(EMPTY, 0, 5) == [None, None]
    assert EMPTY.find(np.empty(0, np.uint64)).tolist() == []


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=20),
    st.lists(st.integers(0, 2**64 - 1), max_size=20),
)
def test_an_offset_lies_within_the_symbol_found_for_it(symbols, places):
    if not symbols:
        return
    found = table(*((start, size, GLOBAL, "x") for start, size in symbols))
    places = [*places, *(start for start, _ in symbols)]
    for place, which in zip(places, found.find(np.array(places, np.uint64)).tolist(), strict=True):
        if which >= 0:
            assert int(found.start[which]) <= place < int(found.end[which])
