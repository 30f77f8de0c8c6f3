"""What a request asks for: taken as described, refused by name otherwise."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.explorer.server.api import ENDPOINTS
from sexton.explorer.server.query import (
    LATEST_S,
    LONGEST_S,
    Parameter,
    Refused,
    read_path,
    read_query,
    span_of,
)

FROM = Parameter("from", "number", "")
COUNT = Parameter("count", "integer", "", 1, 8, required=False, default=1)
WHAT = Parameter("what", "string", "", 1, 5, required=False)
LANE = Parameter("lane", "string", "", 1, 9, pattern="[a-z]+", place="path")
ALL = [parameter for endpoint in ENDPOINTS for parameter in endpoint.parameters]


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("1.5", 1.5), ("1e3", 1000), ("1.7E+9", 1.7e9), ("-0", 0)]
)
def test_numbers_are_taken_as_json_writes_them(text: str, value: float) -> None:
    assert read_query(f"from={quote(text)}".encode(), [FROM])["from"] == value


@pytest.mark.parametrize(
    "text",
    [
        "", " 1", "1 ", "nan", "NaN", "inf", "-inf", "Infinity", "1e999", "-1", "1e11x", "0x10",
        "1_0", "1,5", "٣", "1.", ".5", "+1", "--1", "1e", "9" * 400, "1e12", "true", "null", "[1]",
    ],
)  # fmt: skip
def test_what_is_no_number_within_bounds_is_refused_by_name(text: str) -> None:
    with pytest.raises(Refused, match="from: ") as refusal:
        read_query(f"from={quote(text)}".encode(), [FROM])
    assert refusal.value.status == 422
    assert len(str(refusal.value)) < 120


@pytest.mark.parametrize("text", ["0", "9", "-1", "1.5", "1e0", "", "2 ", "9" * 30])
def test_what_is_no_whole_number_within_bounds_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="count: "):
        read_query(f"count={quote(text)}".encode(), [COUNT])


def test_defaults_are_filled_in_and_what_is_required_is_missed() -> None:
    assert read_query(b"from=1", [FROM, COUNT, WHAT]) == {"from": 1, "count": 1, "what": None}
    with pytest.raises(Refused, match="from is missing"):
        read_query(b"", [FROM])


def test_unknown_and_repeated_parameters_are_refused() -> None:
    with pytest.raises(Refused, match="unknown parameter 'form'; parameters: count, from"):
        read_query(b"form=1", [FROM, COUNT])
    with pytest.raises(Refused, match="from is given twice"):
        read_query(b"from=1&from=1", [FROM])
    with pytest.raises(Refused, match="unknown parameter 'a'; none are accepted"):
        read_query(b"a=1", [])


@pytest.mark.parametrize("query", [b"from=%ff", b"from=\xff", b"&".join([b"from=1"] * 40)])
def test_a_query_that_is_not_text_or_too_long_is_refused(query: bytes) -> None:
    with pytest.raises(Refused):
        read_query(query, [FROM])


def test_a_name_in_a_path_that_cannot_be_is_not_found() -> None:
    assert read_path({"lane": "cores"}, [LANE]) == {"lane": "cores"}
    for text in ("", "Cores", "../x", "a" * 10, "a\n"):
        with pytest.raises(Refused) as refusal:
            read_path({"lane": text}, [LANE])
        assert refusal.value.status == 404


@pytest.mark.parametrize(("start", "end"), [(2, 1), (1, 1), (0, LONGEST_S + 1)])
def test_a_span_goes_forward_and_not_for_ever(start: float, end: float) -> None:
    with pytest.raises(Refused):
        span_of({"from": start, "to": end})


@given(st.binary(max_size=200))
def test_any_bytes_are_a_query_or_refused(query: bytes) -> None:
    try:
        values = read_query(query, ALL[:5])
    except Refused:
        return
    assert set(values) == {parameter.name for parameter in ALL[:5] if parameter.place == "query"}


@given(st.sampled_from(ALL), st.text(max_size=30) | st.floats().map(str) | st.integers().map(str))
def test_a_value_is_within_its_description_or_refused(parameter: Parameter, text: str) -> None:
    try:
        value = parameter.read(text)
    except Refused:
        return
    size = len(value) if parameter.kind == "string" else value
    assert parameter.least <= size <= parameter.most


def test_no_number_goes_without_bounds() -> None:
    assert all(parameter.most <= LATEST_S for parameter in ALL)
