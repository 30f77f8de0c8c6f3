"""Pages in one file: what is in them, that nothing is fetched, and that no name breaks out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.explorer.files.flame_page import flame_html, heat_html
from sexton.explorer.files.page_data import Numbers
from sexton.explorer.files.page_shell import embedded
from sexton.explorer.files.page_stacks import (
    Frame,
    Kept,
    _seven_bits,
    fewer_boxes,
    packed_stacks,
)
from sexton.explorer.files.profile_page import Compared, Report, report_html
from sexton.model.profile import Event, Flame, Kind, Profile, Thread
from sexton.profile.heatmap import Heatmap
from sexton.profile.spikes.spike import Grown, SpikeStack
from sexton.reports.svg.flame_picture import boxes_of, difference_boxes
from sexton.reports.svg.flame_svg import Words
from sexton.reports.svg.heat_svg import heat_svg, levels, palette, png
from tests.cli.profile.made import (
    HOSTILE,
    START_NS,
    capture,
    difference_of,
    flame_of,
    spike,
    spikes,
)


class Seen(HTMLParser):
    """The elements of a page, and the text of its scripts and style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.raw: list[tuple[str, str]] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._inside = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.raw.append((self._inside, data))


def heatmap(kind: str = "peaks", rows: int = 4, columns: int = 120) -> Heatmap:
    values = np.arange(rows * columns, dtype=float).reshape(rows, columns)
    values[0, :3] = -1
    return Heatmap(kind, START_NS // 10**9, 1, tuple(range(rows)), values)  # type: ignore[arg-type]


def report(*found, names=("kubelet;k:flush", "python3;main"), **more: Any) -> str:
    told = capture(**more)
    counts = {name: 10 + at for at, name in enumerate(names)}
    compared = [Compared(difference_of(counts, counts, 0.001), "calm") for _ in found]
    parts = Report(
        told, spikes(*found), int(bool(found)), [heatmap()], 49, flame_of(counts), compared
    )
    return report_html(parts, Numbers(told, "perf.data"))


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_a_report_has_the_verdict_the_table_and_the_numbers():
    page = report(spike())
    assert "1 SPIKE" in page
    assert "mem_cgroup_css_rstat_flush" in page
    assert "0.20&nbsp;% → 88.0&nbsp;%" in page
    data = data_of(page)
    assert [each["label"].split(":")[0] for each in data["pictures"]] == [
        "whole capture",
        "spike 1",
    ]
    assert data["first"] == 1
    assert data["spikes"][0]["cores"] == [3]


def test_only_our_scripts_and_styles_may_run_and_nothing_may_be_fetched():
    for page in (report(spike()), flame_html(boxes_of(flame_of({"a;b": 1})), Words("t"))):
        policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
        assert policy.startswith("default-src 'none';")
        allowed = set(re.findall(r"'sha256-([^']+)'", policy))
        seen = [text for _, text in Seen(page).raw if not text.startswith("{")]
        hashes = {
            base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in seen
        }
        assert hashes == allowed
        assert "unsafe" not in policy
        names = {name for name, _ in Seen(page).attributes}
        assert not names & {"src", "href", "style", "onclick", "onload"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_changes_no_element_of_a_page(name: str):
    def page(text: str) -> str:
        one = spike(
            grew=(Grown(text, text, Kind.USER, 0.5, 0.1, 0.2, 0.001),),
            stacks=(SpikeStack((text, text), 0.5, 0.1),),
            tasks=((text, 1, 0.5),),
            note=text,
        )
        names = (f"{text};k:flush", f"python3;{text}")
        return report(one, names=names, host=text, command=text, problems=[text], release=text)

    assert Seen(page(name)).tags == Seen(page("plain")).tags
    made = page(name)
    made.encode("utf-8")
    assert not re.search(r"[\0-\x08\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff]", made)
    data_of(made)


@given(st.text(st.characters(codec="utf-16", categories=["Cs", "L", "P", "S", "C"])))
def test_numbers_never_end_their_element(name: str):
    text = embedded({"name": name})
    assert "<" not in text
    assert json.loads(text)["name"] == name


def test_a_page_without_spikes_says_so():
    page = report()
    assert "NO SPIKES" in page
    assert "nothing stood out of 120 seconds on 4 cores" in page


def test_a_difference_is_drawn_with_both_sides():
    boxes = difference_boxes(difference_of({"a;b": 5}, {"a;b": 9}, 0.01))
    data = data_of(flame_html(boxes, Words("t")))
    assert data["pictures"][0]["counts"] == [[5, 5, 5], [9, 9, 9]]
    assert data["pictures"][0]["q"] == [0.01, 0.01, 0.01]


def test_heat_keeps_every_value_and_tells_what_was_not_sampled():
    data = data_of(heat_html(heatmap(), capture()))["heats"][0]
    cells = np.frombuffer(base64.b64decode(data["cells"]), "<u2")
    assert cells[:4].tolist() == [65535, 65535, 65535, 3]
    assert cells[-1] == 479


def test_a_heatmap_picture_is_a_real_png_with_one_clear_colour():
    drawn = heatmap()
    text = heat_svg(drawn, capture())
    cells = base64.b64decode(re.search(r"base64,([^\"]+)", text)[1])
    assert cells == png(levels(drawn.values, drawn.most), "light")
    assert cells.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(palette("dark")) == levels(drawn.values, drawn.most).max() + 1


def varints(data: bytes) -> list[int]:
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            found.append(value)
            value = shift = 0
    return found


@given(st.lists(st.integers(0, 2**60)))
def test_numbers_are_packed_in_seven_bits(values: list[int]):
    assert varints(_seven_bits(np.array(values, np.int64))) == values


def profile_of(flame: Flame) -> Profile:
    """A sample every half second, on two cores in turn, stack by stack."""
    leaves = np.flatnonzero(flame.own > 0)
    node = np.repeat(leaves, flame.own[leaves]).astype(np.int32)
    number = len(node)
    return Profile(
        time_ns=START_NS + np.arange(number, dtype=np.int64) * 500_000_000,
        cpu=(np.arange(number) % 2).astype(np.int32),
        thread=np.zeros(number, np.int32),
        cgroup=np.full(number, -1, np.int32),
        event=np.zeros(number, np.int16),
        node=node,
        weight=None,
        threads=(Thread(1, 1, "a"),),
        cgroups=(),
        events=(Event("cpu-clock"),),
        tree=flame.tree,
        facts=capture().facts,
    )


def test_packed_stacks_are_the_samples_of_each_second_core_and_stack():
    flame = flame_of({"a;x": 3, "a;y": 2, "b;z": 1})
    tree, profile = flame.tree, profile_of(flame)
    kept = Kept(tree, boxes_of(flame))
    frames = list(range(len(kept.boxes)))
    told = packed_stacks([profile], kept, Frame(START_NS, 10**9, 10), frames, 0.0)
    assert told is not None
    pairs = varints(base64.b64decode(told["packed"]))
    keys, counts = np.cumsum(pairs[0::2]), pairs[1::2]
    nodes = len(told["depth"])
    found = {
        (int(key) // nodes // 2, int(key) // nodes % 2, kept.boxes[int(key) % nodes].name): count
        for key, count in zip(keys, counts, strict=True)
    }
    names = [tree.frames.names[tree.frame[each]] for each in profile.node]
    expected = {}
    for at, name in enumerate(names):
        key = (at // 2, at % 2, name)
        expected[key] = expected.get(key, 0) + 1
    assert found == expected


def test_where_room_is_short_thin_stacks_are_told_with_their_callers():
    boxes = boxes_of(flame_of({"a;x": 50, "a;x;thin": 1, "b;y;z": 30, "b;w": 2}))
    chosen, place = fewer_boxes(boxes, 6)
    names = [boxes[each].name for each in chosen]
    assert names == ["all", "a", "x", "b", "y", "z"][: len(names)]
    told = {boxes[at].name: boxes[chosen[place[at]]].name for at in range(len(boxes))}
    assert told["thin"] == "x"
    assert told["w"] == "b"


@pytest.mark.parametrize(("limit", "cores"), [(10**9, [0, 1]), (12, [0, 1]), (1, [None])])
def test_stacks_that_are_too_many_lose_detail_but_no_sample(
    monkeypatch, limit: int, cores: list[int | None]
):
    monkeypatch.setattr("sexton.explorer.files.page_stacks.MOST_ENTRIES", limit)
    monkeypatch.setattr("sexton.explorer.files.page_stacks._FEWER", (100, 2))
    flame = flame_of({f"t;f{number}": 4 for number in range(10)})
    profile = profile_of(flame)
    kept = Kept(flame.tree, boxes_of(flame))
    columns = Frame(START_NS, 20 * 10**9, 10)
    told = packed_stacks([profile], kept, columns, list(range(len(kept.boxes))), 0.0)
    assert told is not None
    pairs = varints(base64.b64decode(told["packed"]))
    assert sum(pairs[1::2]) == 40
    assert told["entries"] <= limit
    assert told["cores"] == cores
