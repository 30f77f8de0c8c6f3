"""The page's arithmetic, called by itself in the browser that runs it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.explorer.server.browser.synthetic import START, Machine, served

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def modules(chromium: Browser) -> Iterator[Page]:
    with served(Machine(is_empty=True)) as at:
        page = chromium.new_page()
        page.goto(at)
        yield page
        page.close()


def called(page: Page, module: str, script: str, *given: Any) -> Any:
    """`script` is an expression in which `m` is the module and `a` what is given."""
    code = f"async (a) => {{ const m = await import('/{module}.js'); return {script}; }}"
    return page.evaluate(code, list(given))


WHOLE = {"start": START, "end": START + 43200}


@pytest.mark.parametrize("at", [0.0, 0.3, 1.0])
def test_zooming_keeps_the_moment_under_the_pointer(modules, at):
    view = {"start": START + 1000, "end": START + 1100}
    moment = view["start"] + at * 100
    for factor in (0.2, 0.9, 1.5):
        now = called(
            modules, "axis", "m.zoomSpan(a[0], a[1], a[2], a[3])", view, factor, moment, WHOLE
        )
        assert now["end"] - now["start"] == pytest.approx(100 * factor, rel=1e-6)
        assert (moment - now["start"]) / (now["end"] - now["start"]) == pytest.approx(at, abs=1e-6)


@pytest.mark.parametrize(
    "view",
    [
        (START - 1e6, START - 1e6 + 10),
        (START + 1e6, START + 1e6 + 10),
        (START, START),
        (START - 1e9, START + 1e9),
        (START + 20, START + 10),
    ],
)
def test_no_view_leaves_the_recording_or_is_shorter_than_a_column(modules, view):
    asked = {"start": view[0], "end": view[1]}
    now = called(modules, "axis", "m.clampSpan(a[0], a[1])", asked, WHOLE)
    assert now["end"] - now["start"] >= 0.0199
    assert now["start"] >= START - 433
    assert now["end"] <= START + 43200 + 433


@pytest.mark.parametrize(
    ("levels", "per_pixel", "level"),
    [
        ([0, 12], 0.001, 0),
        ([0, 12], 1.0, 0),
        ([0, 12], 1.01, 1),
        ([0, 12], 52.7, 6),
        ([0, 12], 1e9, 12),
        ([-1, 12], 0.009, -1),
        ([-1, 12], 0.5, 0),
        ([0, 3], 500.0, 3),
    ],
)
def test_a_column_is_one_to_two_pixels_wide(modules, levels, per_pixel, level):
    assert called(modules, "data/tiles", "m.levelFor(a[0], a[1])", levels, per_pixel) == level


def test_an_address_gives_back_what_it_was_made_of(modules):
    script = """(() => {
      const s = new m.PageState();
      Object.assign(s, {view: {start: 1.5, end: 2.25}, select: {start: 1.6, end: 1.7}, core: "3",
        cursor: 1.625, task: "a&b=<c>#%", search: "x|y", order: ["b", "a"], tall: new Set(["a"]),
        folded: new Set(["b"]), panel: true, tab: "functions", plane: "mean", link: 0,
        pins: new Set(["a"]), find: "/eth0|x/", flameView: "sandwich", of: "f<int>&g"});
      const said = m.stateOfHash("#" + m.hashOf(s), ["a", "b", "new"]);
      return {...said, folded: [...said.folded], tall: [...said.tall], pins: [...said.pins]};
    })()"""
    said = called(modules, "state", script)
    assert said["view"] == {"start": 1.5, "end": 2.25}
    assert said["select"] == {"start": 1.6, "end": 1.7}
    assert (said["core"], said["cursor"], said["link"]) == ("3", 1.625, 0)
    assert (said["task"], said["search"]) == ("a&b=<c>#%", "x|y")
    assert said["order"] == ["b", "new", "a"]  # a lane that came later is behind the one it follows
    assert (said["folded"], said["tall"]) == (["b"], ["a"])
    assert (said["panel"], said["tab"], said["plane"]) == (True, "functions", "mean")
    assert (said["pins"], said["find"]) == (["a"], "/eth0|x/")
    assert (said["flameView"], said["of"]) == ("sandwich", "f<int>&g")


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [
        ("12", "% of a core", "12 %"),
        ("3", "/s", "3/s"),
        ("40", "ms", "40 ms"),
        ("1", "ms", "1 ms"),
        ("1", "cgroups", "1 cgroup"),
        ("7", "samples in 20 ms", "7 samples"),
        ("12.35 M", "bytes", "12.35 MB"),
        ("512", "bytes", "512 bytes"),
        ("–", "bytes", "–"),
        ("5", "", "5"),
    ],
)
def test_a_number_has_its_unit(modules, text, unit, said):
    assert called(modules, "words", "m.withUnit(a[0], a[1])", text, unit) == said


def test_boxes_of_a_flame_stand_within_their_parents(modules):
    told = {
        "names": ["all", "a", "b", "c"],
        "nodes": {
            "parent": [-1, 0, 0, 1, 1],
            "name": [0, 1, 2, 3, 2],
            "samples": [10, 7, 3, 4, 2],
            "kind": ["other", "task", "task", "kernel", "user"],
        },
    }
    boxes = called(
        modules,
        "panel/flame",
        "(() => { const b = m.boxesOf(a[0]); m.layBoxes(b, 'after'); return b; })()",
        told,
    )
    assert [box["name"] for box in boxes] == ["all", "a", "c", "b", "b"]
    assert [box["depth"] for box in boxes] == [0, 1, 2, 2, 1]
    for box in boxes[1:]:
        parent = boxes[box["parent"]]
        assert box["x"] >= parent["x"] - 1e-9
        assert box["x"] + box["width"] <= parent["x"] + parent["width"] + 1e-9
    assert boxes[1]["end"] == 4


#: Parent, name and samples of each box: f is called by a and b, and calls itself through g.
STACKS = {
    "names": ["all", "b", "f", "h", "a", "g"],
    "nodes": {
        "parent": [-1, 0, 1, 2, 0, 4, 5, 6],
        "name": [0, 1, 2, 3, 4, 2, 5, 2],
        "samples": [100, 35, 30, 25, 65, 50, 30, 10],
        "own": [0, 5, 5, 25, 15, 20, 20, 10],
        "kind": ["root", *["kernel"] * 7],
    },
}


def arranged(page: Page, view: str, of: str = "") -> list[dict[str, Any]]:
    script = """(() => {
      const graph = new m.FlameGraph(() => {}, () => {});
      Object.assign(graph, {view: a[1], of: a[2]});
      graph.show(a[0]);
      return graph.boxes;
    })()"""
    found: list[dict[str, Any]] = called(page, "panel/flame", script, STACKS, view, of)
    return found


def test_left_heavy_has_the_heaviest_first_and_the_same_boxes(modules):
    by_name, heavy = arranged(modules, "name"), arranged(modules, "heavy")
    assert [box["name"] for box in heavy] == ["all", "a", "f", "g", "f", "b", "f", "h"]
    assert sorted(box["samples"] for box in heavy) == sorted(box["samples"] for box in by_name)
    assert [box["parent"] for box in heavy] == [-1, 0, 1, 2, 3, 0, 5, 6]
    assert [box["end"] for box in heavy] == [8, 5, 5, 5, 5, 8, 8, 8]
    assert heavy[1]["x"] == 0
    assert heavy[5]["x"] == pytest.approx(0.65)


def test_a_sandwich_has_callers_above_and_callees_below_and_counts_recursion_once(modules):
    boxes = arranged(modules, "sandwich", "f")
    assert [(box["name"], box["depth"], box["samples"]) for box in boxes] == [
        ("f", 0, 80),  # 50 + 30, and not the 10 within the 50
        ("g", 1, 30),
        ("f", 2, 10),
        ("h", 1, 25),
        ("a", -1, 50),
        ("b", -1, 30),
    ]
    assert boxes[0]["own"] == 25
    assert boxes[0]["width"] == 1
    assert [boxes[at]["x"] for at in (1, 3, 4, 5)] == pytest.approx([0, 30 / 80, 0, 50 / 80])
    assert arranged(modules, "sandwich", "nobody") == []


@pytest.mark.parametrize(
    ("text", "typed", "names", "is_plain"),
    [
        ("foo(int)", True, {"foo(int)": [0, 8], "a fooint": [2, 8]}, False),
        ("/foo(int)/", True, {"a fooint": [2, 8]}, False),
        ("/foo(int)/", False, {"foo(int)": [0, 8]}, True),
        ("FOO", True, {"foo(int)": [0, 3], "a fooint": [2, 5]}, False),
        ("", True, {}, False),
    ],
)
def test_words_are_found_as_they_are_and_patterns_between_slashes(
    modules, text, typed, names, is_plain
):
    script = """(() => {
      const {found, isPlain} = m.searchNames(a[0], a[1], a[2]);
      return [Object.fromEntries(found), isPlain];
    })()"""
    listed = ["foo(int)", "a fooint", "bar"]
    assert called(modules, "search", script, listed, text, typed) == [names, is_plain]


def test_packed_stacks_can_be_had_in_the_order_of_time(modules):
    """f for a second, then g, then f again, of one core; keys are (column, node)."""
    entries = [(0, 2, 3), (1, 3, 2), (2, 2, 4)]
    keys = [column * 4 + node for column, node, _ in entries]
    steps = [key - before for key, before in zip(keys, [0, *keys], strict=False)]
    packed = [byte for step, entry in zip(steps, entries, strict=True) for byte in (step, entry[2])]
    stacks = {
        "first": 10, "column": 1, "cores": [0], "depth": [0, 1, 2, 2], "name": [0, 1, 2, 3],
        "module": [0, 0, 0, 0], "kind": ["root", "task", "kernel", "kernel"],
        "names": ["all", "t", "f", "g"], "modules": [""], "entries": 3,
        "packed": base64.b64encode(bytes(packed)).decode(),
    }  # fmt: skip
    script = """(() => {
      const stacks = new m.PackedStacks(a[0]), query = {from: 10, to: 13};
      const {names, nodes, total} = stacks.ordered(query);
      const {all, total: ofOne} = stacks.flame({...query, function: "g"}, null);
      return [total, nodes.name.map((name, at) => [names[name], nodes.samples[at]]), all, ofOne];
    })()"""
    boxes = [["all", 9], ["t", 9], ["f", 3], ["g", 2], ["f", 4]]
    assert called(modules, "data/packed", script, stacks) == [9, boxes, 9, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (0.08512, "0.0851"),
        (1234.4, "1,234"),
        (12345678, "12.35 M"),
        (99.5, "99.5"),
    ],
)
def test_a_number_is_read_as_it_is_and_nothing_is_no_zero(modules, value, text):
    assert called(modules, "words", "m.numberText(a[0])", value) == text


def test_numbers_come_out_of_base64_as_they_went_in(modules):
    script = """(() => {
      const bytes = (kind, values) => new Uint8Array(kind.from(values).buffer);
      const put = (kind, values) => btoa(String.fromCharCode(...bytes(kind, values)));
      return [
        Array.from(m.numbersOf(put(Uint8Array, [0, 200, 255]), "uint8")),
        Array.from(m.numbersOf(put(Uint16Array, [0, 65535]), "uint16")),
        Array.from(m.numbersOf(put(Float32Array, [1.5, NaN]), "float32"), String),
      ];
    })()"""
    assert called(modules, "data/tiles", script) == [[0, 200, 255], [0, 65535], ["1.5", "NaN"]]


def test_a_finding_is_shown_in_a_lane_that_is_there(modules):
    script = "m.laneOfFinding(a[0], a[1], {'nic_resets': ['nic_faults', 'nics']})"
    lanes = ["events", "cores", "memcgs", "nics"]
    reset = {"id": "nic_resets"}
    assert called(modules, "panel/chain", script, reset, [*lanes, "nic_faults"]) == "nic_faults"
    assert called(modules, "panel/chain", script, reset, lanes) == "nics"
    assert called(modules, "panel/chain", script, {"id": "x"}, lanes) == "events"


@pytest.mark.parametrize(
    "text", ["mem_cgroup", "a|b|c", "^do_.*irq$", "(un)?lock", "[a-z+*]+_iter", "x{2}", r"\(+"]
)
def test_what_is_typed_may_be_a_pattern(modules, text):
    assert called(modules, "search", "m.patternOf(a[0]).source", text) == text


@pytest.mark.parametrize(
    "text",
    [
        r"^(\w+)+!$",
        "(a*)*b",
        "(a|a)*b",
        "((a{2,9}))+b",
        "(?:x+?){3}",
        "(?<n>a?)*b",
        r"\w*\w*\w*!",
        "a?" * 30 + "a" * 30,
        "(a|a)" * 30,
        r"(\w+)\1",
        "(",
        "",
    ],
)
def test_a_pattern_that_is_none_or_could_take_for_ever_is_plain_words(modules, text):
    assert called(modules, "search", "m.patternOf(a[0])", text) is None


SEARCH = """(() => {
  const graph = new m.FlameGraph(() => {}, () => {});
  const nodes = {parent: [-1, 0, 0], name: [0, 1, 2], samples: [4, 3, 1]};
  graph.show({names: ["all", a[0], "b.c"], nodes});
  return [graph.search(a[1], a[2]), graph.words(2)];
})()"""


@pytest.mark.parametrize(
    ("text", "typed", "said"),
    [
        ("B.C", False, "25.0 % in 1 box, matched as plain text"),
        ("b|w", True, "100.0 % in 2 boxes"),
        ("b|w", False, "not found, matched as plain text"),
        ("w", False, "75.0 % in 1 box"),
        ("", True, ""),
    ],
)
def test_a_search_says_how_much_and_how_it_was_taken(modules, text, typed, said):
    found, words = called(modules, "panel/flame", SEARCH, "w" * 40, text, typed)
    assert found == said
    assert words.split("  ·  ")[1] == "1 sample"


def test_a_tile_that_could_not_be_read_is_requested_again_on_return(modules):
    script = """(async () => {
      let asked = 0;
      const source = {strip: async () => { asked++; throw new Error("away"); }};
      const cache = new m.TileCache(source, {start: 0, end: 1000}, () => {}, () => {});
      const about = {id: "x", kind: "lines", levels: [0, 12]}, seen = [];
      for (const at of [0, 1, 2]) {
        if (at === 2) for (const each of cache.failed.values()) each.at -= 10_001;
        cache.want("x", about, 0, {start: at, end: at + 100});
        await new Promise((go) => setTimeout(go, 60));
        seen.push(asked);
      }
      window.clearTimeout(cache.timer);
      return seen;
    })()"""
    assert called(modules, "data/tiles", f"await {script}") == [3, 3, 4]


def test_stacks_that_are_decoded_late_are_requested_again_while_live(modules):
    script = """(() => {
      const cache = new m.TileCache({}, {start: 0, end: 700}, () => {}, () => {}), seen = [];
      cache.ask = () => {};
      for (const kind of ["stacks", "lines"]) {
        cache.want(kind, {id: kind, kind, levels: [0, 12]}, 0, {start: 0, end: 700});
        cache.take({lane: kind, level: 0, first: 0, count: 3, dtype: "uint8", names: [],
          channels: [], columns: 768, planes: {mean: new Uint8Array(768)}});
      }
      const moved = (to) => {
        for (const tile of cache.held.values()) tile.isOld = false;
        cache.moved(to - 1, to);
        seen.push([...cache.held].filter(([, tile]) => tile.isOld).map(([key]) => key));
      };
      moved(701);
      moved(702);
      cache.lateAsked -= 15_001;
      moved(900);
      window.clearTimeout(cache.timer);
      return seen;
    })()"""
    now = ["stacks 0 2", "lines 0 2"]
    late = ["stacks 0 1", "stacks 0 2"]
    assert called(modules, "data/tiles", script) == [["stacks 0 0", "stacks 0 1", *now], now, late]


def test_a_table_that_comes_late_is_not_shown_under_another_title(modules):
    script = """(async () => {
      const table = (text) => ({headings: ["what"], rows: [[text]], left_out: 0});
      const answers = {};
      const waits = (lane) => new Promise((go) => { answers[lane] = () => go(table(lane)); });
      const source = {table: waits};
      const view = {start: 0, end: 1}, about = (id) => ({id, title: id, about: ""});
      const both = ["slow", "fast"].map((id) => m.openTable(source, about(id), view));
      answers.fast();
      await both[1];
      answers.slow();
      await both[0];
      const told = [document.getElementById("tableTitle"), document.getElementById("tableBody")];
      document.getElementById("tableDialog").close();
      return told.map((each) => each.textContent);
    })()"""
    title, body = called(modules, "table", f"await {script}")
    assert title.startswith("fast, ")
    assert "fast" in body
    assert "slow" not in body


def test_a_table_of_what_was_not_recorded_is_the_servers_line(modules):
    line = "nothing was recorded from 2027-01-15 08:00:00 to 2027-01-15 08:10:00"
    pattern = "**/api/table/**"
    modules.route(pattern, lambda route: route.fulfill(status=404, json={"error": line}))
    script = """(async () => {
      const {FetchSource} = await import("/data/source.js");
      await m.openTable(new FetchSource(), {id: "x", title: "x", about: ""}, {start: 0, end: 1});
      document.getElementById("tableDialog").close();
      return document.getElementById("tableBody").textContent;
    })()"""
    assert called(modules, "table", f"await {script}") == line
    modules.unroute(pattern)


PANEL = """(async () => {
  const {PageState} = await import("/state.js");
  const state = new PageState(), notes = [], answers = a[0];
  const answer = async () => {
    const told = answers.shift();
    if (told.fails) throw new Error(told.fails);
    return told;
  };
  const panel = new m.SpanPanel({flame: answer, functions: answer}, state, () => {});
  Object.assign(state, {select: {start: 0, end: 9}, panel: true, ...a[1]});
  while (answers.length) {
    panel.update();
    await new Promise((go) => setTimeout(go, 100));
    notes.push(document.getElementById("panelNote").textContent);
  }
  return notes;
})()"""
NOTHING = {"names": [], "nodes": {"parent": [], "name": [], "samples": []}, "total": 0}


@pytest.mark.parametrize("tab", ["flame", "functions"])
def test_a_flame_graph_that_failed_is_requested_again(modules, tab):
    whole = {**NOTHING, "rows": [], "note": "a sample"}
    answers = [{"fails": "away"}, {"fails": "still away"}, whole]
    *failed, last = called(modules, "panel/panel", f"await {PANEL}", answers, {"tab": tab})
    assert failed == ["away", "still away"]
    assert last.startswith("no samples in this span")
    assert last.endswith(" · a sample")


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"core": "3"}, "no samples match core 3 in this span"),
        ({"task": "t", "cgroup": "/c"}, "no samples match task t, cgroup /c in this span"),
        ({"tab": "functions", "core": "3"}, "no samples match core 3 in this span"),
    ],
)
def test_a_choice_that_matches_nothing_is_not_blamed_on_missing_stacks(modules, chosen, said):
    answers = [{**NOTHING, "rows": []}]
    assert called(modules, "panel/panel", f"await {PANEL}", answers, chosen) == [said]


def test_functions_say_what_they_are_of(modules):
    rows = [{"name": "f", "self": 1, "total": 1, "share": 1.0}]
    told = {"rows": rows, "samples": 1, "left_out": 2, "note": "a sample: 24 times 15 s"}
    notes = called(modules, "panel/panel", f"await {PANEL}", [told], {"tab": "functions"})
    assert notes == ["1 sample · a sample: 24 times 15 s · 2 more functions not shown"]
