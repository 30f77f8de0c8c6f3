"""Protocol buffers: written and read again; junk is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.profile.perf.protobuf import fields, number, numbers, signed, text, varint

U64 = st.integers(0, 2**64 - 1)
NUMBERS = st.integers(1, 2**29 - 1)


@given(st.lists(st.tuples(NUMBERS, st.integers(1, 2**64 - 1) | st.binary(max_size=300))))
def test_fields_come_back(told):
    data = b"".join(
        number(field, value) if isinstance(value, int) else text(field, value)
        for field, value in told
    )
    assert list(fields(data, "it")) == told


@given(st.lists(U64))
def test_packed_numbers_come_back(values):
    assert numbers(b"".join(map(varint, values)), "it") == values


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_numbers_come_back(value):
    (found,) = numbers(varint(value), "it")
    assert signed(found) == value


def test_fixed_widths_are_passed_over():
    data = b"\x09" + b"\x01" * 8 + b"\x15" + b"\x02" * 4 + number(3, 7)
    assert list(fields(data, "it")) == [(1, b"\x01" * 8), (2, b"\x02" * 4), (3, 7)]


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05hi", b"\x08", b"\x08\x80", b"\x09\x00", b"\x0b", b"\x00\x00", b"\xff" * 12],
)
def test_truncated_or_other_input_is_refused(data):
    with pytest.raises(SourceMalformed, match=r"^it: "):
        list(fields(data, "it"))


@given(st.binary(max_size=100))
def test_junk_is_refused_or_read_never_more(data):
    for read in (lambda: list(fields(data, "it")), lambda: numbers(data, "it")):
        try:
            read()
        except SourceMalformed:
            continue
