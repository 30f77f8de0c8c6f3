"""Flame graphs as SVG: the picture itself, and that no name leaves its place."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.reports.svg.flame_picture import MOST_BOXES, boxes_of, change_shade, difference_boxes
from sexton.reports.svg.flame_svg import PAD, WIDTH, Words, fitted, flame_svg
from tests.cli.profile.made import HOSTILE, difference_of, flame_of

_SVG = "{http://www.w3.org/2000/svg}"
SOME = {
    "kubelet;main;k:do_syscall_64;k:vfs_read": 700,
    "kubelet;main;k:do_syscall_64": 100,
    "kubelet;other": 100,
    "python3;main": 100,
}


def shown(text: str) -> list[tuple[float, float, float, str, str]]:
    """(x, y, width, text, title) of every box that is drawn."""
    found = []
    for box in ET.fromstring(text).iter(f"{_SVG}g"):
        rect, title = box.find(f"{_SVG}rect"), box.findtext(f"{_SVG}title")
        if rect is None or title is None:  # the legend
            continue
        place = (float(rect.get(name)) for name in ("x", "y", "width"))
        found.append((*place, box.findtext(f"{_SVG}text") or "", title))
    return found


def test_widths_are_shares_and_names_are_in_the_boxes():
    boxes = {item[3]: item for item in shown(flame_svg(boxes_of(flame_of(SOME)), Words("t")))}
    room = WIDTH - 2 * PAD
    assert boxes["all"][2] == pytest.approx(room, abs=1)
    assert boxes["kubelet"][2] == pytest.approx(0.9 * room, abs=1)
    assert boxes["vfs_read"][2] == pytest.approx(0.7 * room, abs=1)
    assert boxes["python3"][0] == pytest.approx(PAD + 0.9 * room, abs=1)
    assert "700 samples · 70.0 %" in boxes["vfs_read"][4]
    assert "[kernel.kallsyms]" in boxes["vfs_read"][4]


def test_a_flame_grows_upwards_and_an_icicle_down():
    for icicle, sign in ((False, -1), (True, 1)):
        drawn = shown(flame_svg(boxes_of(flame_of(SOME)), Words("t"), icicle))
        by_name = {item[3]: item[1] for item in drawn}
        assert (by_name["vfs_read"] - by_name["all"]) * sign == 4 * 17


stacks = st.dictionaries(
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6).map(";".join),
    st.integers(1, 10_000),
    min_size=1,
    max_size=60,
)


@given(stacks)
def test_boxes_of_a_row_never_overlap_and_stand_within_their_callers(folded: dict[str, int]):
    drawn = shown(flame_svg(boxes_of(flame_of(folded)), Words("t")))
    rows: dict[float, list[tuple[float, float]]] = {}
    for x, y, width, _, _ in drawn:
        rows.setdefault(y, []).append((x, x + width))
    for row in rows.values():
        for (_, end), (start, _) in pairwise(sorted(row)):
            assert start >= end - 0.02 - 0.3  # a box is drawn at least 0.3 wide
    outermost = max(rows)
    for x, y, width, _, _ in drawn:
        if y != outermost:
            below = rows[y + 17]
            assert any(a - 0.02 <= x and x + width <= b + 0.95 for a, b in below)


def test_text_that_does_not_fit_is_cut_and_none_is_wider_than_its_box():
    flame = flame_of({"task;" + "x" * 300: 1, "task;日本語の関数名がとても長い" * 3: 1, "o;p": 150})
    for _, _, width, text, _ in shown(flame_svg(boxes_of(flame), Words("t"))):
        wide = sum(2 if ord(letter) > 0x1100 else 1 for letter in text)
        assert wide * 7.2 <= max(width, 0) or not text
    assert fitted("x" * 300, 100).endswith("…")


def test_only_so_many_boxes_are_drawn_and_the_widest_are_kept():
    many = {f"task;f{number}": 1 + number % 7 for number in range(3 * MOST_BOXES)}
    boxes = boxes_of(flame_of(many), most=500)
    assert len(boxes) <= 500
    assert boxes_of(flame_of({**many, "task;hot": 10**6}), most=500)[-1].name == "hot"


def test_the_same_name_has_the_same_colour_in_every_picture():
    first = {box.name: box.shade for box in boxes_of(flame_of(SOME))}
    second = {box.name: box.shade for box in boxes_of(flame_of({"zz;main": 5, "a;b": 1}))}
    assert first["main"] == second["main"]
    assert first["main"][0] == "u"
    assert first["vfs_read"][0] == "k"
    assert first["kubelet"][0] == "t"


def test_siblings_stand_in_the_order_of_their_names():
    names = [box.name for box in boxes_of(flame_of({"b;x": 9, "a;y": 1, "c;z": 5}))]
    assert names == ["all", "a", "y", "b", "x", "c", "z"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_and_nothing_else(name: str):
    text = flame_svg(boxes_of(flame_of({f"task;{name}": 5, name: 5})), Words(name, name))
    assert ET.fromstring(text).tag == f"{_SVG}svg"
    assert "<script" not in text
    assert not re.search(r"[\0-\x08\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff]", text)
    text.encode("utf-8")


def test_it_runs_and_fetches_nothing():
    text = flame_svg(boxes_of(flame_of(SOME)), Words("t"))
    assert set(re.findall(r"https?://[^\"'\s]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "<script" not in text
    assert "@import" not in text
    assert "href" not in text


def test_a_difference_is_coloured_by_size_and_pale_where_it_may_be_chance():
    before, after = {"task;k:a": 50, "task;b": 50}, {"task;k:a": 90, "task;b": 10}
    sure = {box.name: box.shade for box in difference_boxes(difference_of(before, after, 0.001))}
    assert (sure["a"], sure["b"]) == ("g5", "s5")
    assert sure["task"] == "n"  # its share did not change
    for q in (0.2, np.nan):
        found = difference_boxes(difference_of(before, after, q))
        assert {box.name: box.shade for box in found} == {
            **dict.fromkeys(("all", "task"), "n"), "a": "g5 m", "b": "s5 m",
        }  # fmt: skip
        small = difference_of(before, {"task;k:a": 503, "task;b": 497}, q)
        assert {box.shade for box in difference_boxes(small)} == {"n"}
    assert "may be chance" in flame_svg(
        difference_boxes(difference_of(before, after, 0.2)), Words("")
    )
    untold = flame_svg(difference_boxes(difference_of(before, after, np.nan)), Words(""))
    assert "not tested" in untold


def test_a_stronger_change_has_a_stronger_colour():
    shades = [change_shade(change, 0.01) for change in (0.001, 0.01, 0.05, 0.1, 0.5)]
    assert shades == ["g1", "g2", "g3", "g4", "g5"]


def test_an_empty_flame_graph_is_a_picture_too():
    flame = flame_of({"a": 0})
    assert shown(flame_svg(boxes_of(flame), Words("t")))[0][3] == "all"
