"""The pages of a capture: what is in them, that nothing is loaded, and that no name breaks out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.explorer.files.capture import CaptureLanes
from sexton.explorer.files.page import Part, embedded
from sexton.explorer.files.profile import (
    Chosen,
    Compared,
    Kept,
    Report,
    Samples,
    StackColumns,
    _seven_bits,
    capture_data,
    difference_data,
    fewer_boxes,
    flame_html,
    packed_stacks,
    report_html,
)
from sexton.model.lane import COLUMNS
from sexton.model.profile import CELLS, Event, Flame, Heat, Kind, Profile, Thread
from sexton.profile.heatmap import Heatmap
from sexton.profile.select import ALL
from sexton.profile.spikes.spike import Grown, SpikeStack
from sexton.reports.svg.flame_picture import boxes_of
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


START_S = START_NS // 10**9


def heatmap(rows: int = 4, columns: int = 120) -> Heatmap:
    values = np.arange(rows * columns, dtype=float).reshape(rows, columns)
    values[0, :3] = -1
    return Heatmap("peaks", START_S, 1, tuple(range(rows)), values)


def heat(rows: list[tuple[int, int, int, int, int]]) -> Heat:
    """Rows of second from the start, core, samples, busy, kernel; all busy ones in one 20 ms."""
    second, cpu, taken, busy, kernel = (
        np.array(pair, np.int32) for pair in zip(*rows, strict=True)
    )
    cells = np.zeros((len(rows), CELLS), np.uint16)
    cells[:, 7] = busy
    return Heat(second.astype(np.int64) + START_S, cpu, taken, busy, kernel, cells)


SOME = heat([(0, 0, 50, 25, 0), (0, 1, 50, 0, 0), (1, 0, 50, 50, 40), (3, 0, 50, 5, 5)])


def data_for(names: tuple[str, ...] = ("kubelet;k:flush", "python3;main"), **more: Any) -> dict:
    flame = flame_of({name: 10 + at for at, name in enumerate(names)})
    samples = Samples([SOME], [profile_of(flame)], flame, 50)
    return capture_data(capture(**more), samples, Chosen(ALL, "perf.data"))


def report(*found, names=("kubelet;k:flush", "python3;main"), **more: Any) -> str:
    counts = {name: 10 + at for at, name in enumerate(names)}
    calm = Part(START_S + 7.0, START_S + 67.0)
    compared = [Compared(difference_of(counts, counts, 0.001), calm, "calm") for _ in found]
    parts = Report(
        capture(**more), spikes(*found), int(bool(found)), 49, flame_of(counts), compared
    )
    return report_html(parts, data_for(names, **more))


def data_of(page: str) -> dict[str, Any]:
    found = re.search(
        r'<script type="application/json" id="sexton-data">(.*?)</script>', page, re.DOTALL
    )
    assert found is not None
    return json.loads(found[1])


def test_a_report_has_the_verdict_the_table_and_the_numbers():
    page = report(spike())
    assert "1 SPIKE" in page
    assert "mem_cgroup_css_rstat_flush" in page
    assert "0.20&nbsp;% → 88.0&nbsp;%" in page
    data = data_of(page)
    assert [flame["baseline"] for flame in data["flames"]] == [
        None,
        [START_S + 7.0, START_S + 67.0],
    ]
    assert data["open"] == data["spikes"][0]["open"]
    assert data["spikes"][0]["open"]["core"] == "3"
    assert [lane["id"] for lane in data["recording"]["lanes"]] == ["cores", "stacks"]


def test_times_are_shown_as_the_terminal_shows_them():
    clock = data_for()["recording"]["clock"]
    assert clock["offset"] + START_S == 1_763_172_000
    assert not clock["relative"]


def test_only_our_scripts_and_styles_may_run_and_nothing_may_be_fetched():
    for page in (report(spike()), flame_html("t", "", data_for())):
        policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
        assert policy.startswith("default-src 'none';")
        allowed = set(re.findall(r"'sha256-([^']+)'", policy))
        seen = [text for _, text in Seen(page).raw if not text.startswith('{"')]
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
    assert "No spikes in 120 seconds on 4 cores." in page


def test_a_difference_is_drawn_with_both_sides():
    found = difference_of({"a;b": 5}, {"a;b": 9}, 0.01)
    data = data_of(flame_html("t", "", difference_data(found, ("monday", "tuesday"))))
    nodes = data["flames"][0]["document"]["nodes"]
    assert (nodes["before"], nodes["samples"]) == ([5, 5, 5], [9, 9, 9])
    assert nodes["q"] == [0.01, 0.01, 0.01]
    assert data["recording"]["lanes"] == []


def tile(data: dict, lane: str, second: int, plane: str = "mean") -> np.ndarray:
    """The values of all rows in one second from the start, by channel."""
    held = data["lanes"][lane]
    at, column = divmod(START_S + second, COLUMNS)
    packed = held["tiles"][f"0/{at}"]
    raw = zlib.decompress(base64.b64decode(packed.get(plane, packed["mean"])))
    values = np.frombuffer(raw, np.dtype(held["dtype"]).newbyteorder("<"))
    return values.reshape(len(held["channels"]), -1, COLUMNS)[:, :, column]


def test_cores_keep_every_share_and_what_was_not_sampled_is_not_zero():
    data = data_for()
    assert data["lanes"]["cores"]["channels"] == ["user", "system"]
    assert tile(data, "cores", 0).tolist() == [[100, 0], [0, 0]]
    assert tile(data, "cores", 1).tolist() == [[40, 255], [160, 255]]
    assert (tile(data, "cores", 2) == 255).all()
    assert tile(data, "stacks", 1)[0, 7] == 50
    assert (tile(data, "stacks", 2) == 65535).all()


def test_coarse_columns_keep_the_mean_of_the_sampled_seconds_and_the_busiest_one():
    lanes = CaptureLanes([SOME], Part(START_S, START_S + 120.0), 50)
    strip = lanes.strip("cores", 7, START_S // (COLUMNS << 7), 1)
    column = (START_S >> 7) % COLUMNS
    assert strip.planes["mean"][:, 0, column].tolist() == [47, 60]
    assert strip.planes["peak"][:, 0, column].tolist() == [40, 160]
    assert strip.planes["mean"][:, 1, column].tolist() == [0, 0]


def test_a_capture_whose_times_are_nonsense_gets_no_lanes_and_takes_no_memory():
    lanes = CaptureLanes([SOME], Part(0.0, 4e11), 50)
    assert lanes.lanes == []


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
    told = packed_stacks([profile], kept, StackColumns(START_NS, 10**9, 10), ALL)
    assert told is not None
    pairs = varints(base64.b64decode(told["packed"]))
    keys, counts = np.cumsum(pairs[0::2]), pairs[1::2]
    nodes = len(told["depth"])
    found = {
        (int(key) // nodes // 2, int(key) // nodes % 2, kept.boxes[int(key) % nodes].name): count
        for key, count in zip(keys, counts, strict=True)
    }
    names = [tree.frames.names[tree.frame[item]] for item in profile.node]
    expected = {}
    for at, name in enumerate(names):
        key = (at // 2, at % 2, name)
        expected[key] = expected.get(key, 0) + 1
    assert found == expected


def test_where_space_is_short_thin_stacks_count_for_their_callers():
    boxes = boxes_of(flame_of({"a;x": 50, "a;x;thin": 1, "b;y;z": 30, "b;w": 2}))
    chosen, place = fewer_boxes(boxes, 6)
    names = [boxes[item].name for item in chosen]
    assert names == ["all", "a", "x", "b", "y", "z"][: len(names)]
    told = {boxes[at].name: boxes[chosen[place[at]]].name for at in range(len(boxes))}
    assert told["thin"] == "x"
    assert told["w"] == "b"


@pytest.mark.parametrize(("limit", "cores"), [(10**9, [0, 1]), (12, [0, 1]), (1, [None])])
def test_stacks_that_are_too_many_lose_detail_but_no_sample(
    monkeypatch, limit: int, cores: list[int | None]
):
    monkeypatch.setattr("sexton.explorer.files.profile.MOST_ENTRIES", limit)
    monkeypatch.setattr("sexton.explorer.files.profile._FEWER", (100, 2))
    flame = flame_of({f"t;f{number}": 4 for number in range(10)})
    profile = profile_of(flame)
    kept = Kept(flame.tree, boxes_of(flame))
    columns = StackColumns(START_NS, 20 * 10**9, 10)
    document = packed_stacks([profile], kept, columns, ALL)
    assert document is not None
    pairs = varints(base64.b64decode(document["packed"]))
    assert sum(pairs[1::2]) == 40
    assert document["entries"] <= limit
    assert document["cores"] == cores
