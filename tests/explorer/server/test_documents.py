"""Documents as bytes: escaped, finite, bounded."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.explorer.server.documents import (
    MOST_BYTES,
    body_of,
    etag_matches,
    flame_document,
    json_bytes,
    marks_document,
    strip_document,
)
from sexton.model.lane import COLUMNS, Marked, Strip
from tests.explorer.server.stand_in import StandIn

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(), inner, max_size=8),
    max_leaves=60,
)


def _not_json(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


@given(st.dictionaries(st.text(), VALUES, max_size=6))
def test_any_document_becomes_strict_json_in_utf_8(document: dict[str, Any]) -> None:
    text = json_bytes(document).decode("utf-8")
    json.loads(text, parse_constant=_not_json)
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    "document",
    [
        {"rows": [["x" * 10_000] * 10] * 100, "left_out": 1},
        {"text": "x" * 5_000_000},
        {"deep": [[[["y" * 100] * 20] * 20] * 20] * 20},
        {"marks": ["ü" * 3000] * 3000, "left_out": 0},
    ],
    ids=["rows", "text", "deep", "letters"],
)
def test_no_document_is_larger_than_a_megabyte_and_a_cut_is_reported(
    document: dict[str, Any],
) -> None:
    content = json_bytes(document)
    assert 1000 < len(content) <= MOST_BYTES
    assert json.loads(content)["cut_at"] > 0


def test_what_is_cut_from_a_list_is_counted_with_what_was_left_out() -> None:
    document = json.loads(json_bytes({"rows": [["x" * 10_000]] * 200, "left_out": 7}))
    assert len(document["rows"]) + document["left_out"] == 207


def test_a_document_that_fits_is_not_cut() -> None:
    document = {"rows": list(range(1000)), "left_out": 0}
    assert json.loads(json_bytes(document)) == document


@pytest.mark.parametrize("cores", [1, 96, 192, 1024])
def test_a_strip_of_any_node_fits_and_says_how_many_tiles_it_has(cores: int) -> None:
    strip = StandIn(cores).strip("cores", 0, 5, 8)
    document = json.loads(json_bytes(strip_document(strip)))
    assert len(json_bytes(document)) <= MOST_BYTES
    assert "cut_at" not in document
    assert 1 <= document["count"] <= 8
    assert document["columns"] == document["count"] * COLUMNS
    assert len(document["names"]) + document["rows_left_out"] == cores
    assert document["rows_left_out"] == 0 or cores == 1024


def test_arrays_arrive_as_they_were_channel_by_channel() -> None:
    import base64

    numbers = np.arange(2 * 3 * 512, dtype=">f4").reshape(2, 3, 512)
    planes = {"mean": numbers, "peak": numbers[:, :, ::-1]}
    strip = Strip("x", 2, 7, 2, ("a", "b", "c"), ("u", "v"), planes)
    document = strip_document(strip)
    for name, plane in planes.items():
        found = np.frombuffer(base64.b64decode(document["planes"][name]), "<f4").reshape(2, 3, 512)
        assert (found == plane).all()


def test_a_flame_graph_of_endless_names_is_pruned_until_it_fits() -> None:
    view = StandIn()
    flame = view.flame(0, 1)
    names = tuple("n" * 390 + str(number) for number in range(len(flame.tree)))
    object.__setattr__(flame.tree.frames, "names", names)
    flame.own[:] = np.where(np.arange(len(flame.own)) % 4 == 0, 1000, 1)
    document = flame_document(flame, None)
    assert len(json_bytes(document)) <= MOST_BYTES
    nodes = document["nodes"]
    number = len(nodes["parent"])
    assert {len(node) for node in nodes.values()} == {number}
    assert number + document["pruned"] == 20_000
    assert max(nodes["name"]) < len(document["names"])
    assert all(parent < at for at, parent in enumerate(nodes["parent"]))


def test_a_mark_keeps_its_hostile_name_as_text() -> None:
    mark = Marked(1.0, None, "mark", "<script>\x1b\udcff", "info", "/<b>", "events")
    told = json.loads(json_bytes(marks_document([mark], 0)))["marks"][0]
    assert (told["text"], told["entity"]) == ("<script>\\x1b\\xff", "/<b>")


def test_the_same_content_is_recognised_whether_compressed_or_not() -> None:
    plain, small = (body_of(b"x" * 2000, "t", "c", gzipped) for gzipped in (False, True))
    assert plain.headers["etag"] == small.headers["etag"]
    assert len(small.content) < len(plain.content)
    assert etag_matches(plain.headers["etag"], f'"a", W/{plain.headers["etag"]}')
    assert "content-encoding" not in body_of(b"short", "t", "c", True).headers
