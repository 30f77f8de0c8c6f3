"""Views of a flame graph, the search in the functions list, pins and the search for lanes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import itemgetter

import pytest
from playwright.sync_api import Page, expect

from tests.explorer.server.browser.conftest import Opened
from tests.explorer.server.browser.looking import address, drag, drawn, near, pixel, settled
from tests.explorer.server.browser.synthetic import Machine, served
from tests.explorer.server.browser.test_incident import faults

pytestmark = pytest.mark.browser
SHOWN = "[...document.querySelectorAll('.lane:not([hidden])')].map((lane) => lane.dataset.lane)"
PINNED = "[...document.querySelectorAll('#pinned .lane')].map((lane) => lane.dataset.lane)"


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    with served(Machine()) as at:
        yield at


@pytest.fixture
def spanned(plain: str, opened: Opened) -> Page:
    """With a span selected, and its flame graph."""
    page = drawn(opened(plain))
    drag(page, "average", 0.4, 0.6)
    expect(page.locator("#panelNote")).to_contain_text("100 samples")
    return page


def test_views_are_reached_by_keys_and_by_mouse_and_kept_in_the_url(spanned: Page):
    seen = []
    for _ in range(4):
        spanned.keyboard.press("v")
        seen.append(spanned.locator("#byView").input_value())
    assert seen == ["heavy", "time", "sandwich", "name"]
    spanned.locator("#byFunction").wait_for(state="hidden")
    spanned.locator("#byView").select_option("time")
    expect(spanned.locator("#panelNote")).to_contain_text("as they were taken")
    assert "view=time" in address(spanned)
    spanned.locator("#flame").focus()
    spanned.keyboard.press("ArrowDown")
    expect(spanned.locator("#flameText")).to_contain_text("from ")


def test_a_sandwich_of_nothing_in_particular_is_of_the_function_with_most_samples(spanned: Page):
    spanned.locator("#byView").select_option("heavy")
    spanned.locator("#byView").select_option("sandwich")
    expect(spanned.locator("#panelNote")).to_contain_text("mem_cgroup_iter: 60 samples, 60.0 %")
    expect(spanned.locator("#byFunction")).to_have_value("mem_cgroup_iter")
    spanned.locator("#byFunction").fill("idle")
    spanned.locator("#byFunction").press("Enter")
    expect(spanned.locator("#panelNote")).to_contain_text("idle: 20 samples")


def test_a_sandwich_is_opened_at_a_box_and_left_with_escape(spanned: Page, opened: Opened):
    spanned.locator("#flame").focus()
    spanned.keyboard.press("ArrowDown")
    spanned.keyboard.press("ArrowDown")
    expect(spanned.locator("#flameText")).to_contain_text("mem_cgroup_iter")
    spanned.keyboard.press("o")
    expect(spanned.locator("#panelNote")).to_contain_text("mem_cgroup_iter: 60 samples, 60.0 %")
    expect(spanned.locator("#byFunction")).to_have_value("mem_cgroup_iter")
    spanned.keyboard.press("ArrowUp")
    expect(spanned.locator("#flameText")).to_contain_text("100.0 % of mem_cgroup_iter")
    held = address(spanned)
    assert "view=sandwich&" in held + "&"
    other = drawn(opened(held))
    expect(other.locator("#panelNote")).to_contain_text("mem_cgroup_iter: 60 samples")
    spanned.locator("#panelSpan").click()
    spanned.keyboard.press("Escape")
    expect(spanned.locator("#byView")).to_have_value("name")
    expect(spanned.locator("#panel")).to_be_visible()


@pytest.mark.whole
def test_a_click_with_shift_and_a_name_in_the_list_open_the_sandwich_too(spanned: Page):
    spanned.locator("#flame").click(position={"x": 30, "y": 17 * 2 + 8}, modifiers=["Shift"])
    expect(spanned.locator("#byView")).to_have_value("sandwich")
    spanned.keyboard.press("g")
    spanned.get_by_role("button", name="idle").click()
    expect(spanned.locator("#panelNote")).to_contain_text("idle: 20 samples")
    expect(spanned.locator("#functionsBox")).to_be_hidden()


@pytest.mark.parametrize(
    ("typed", "said", "marked"),
    [
        pytest.param(
            "CGROUP", "1 of 3 functions, self 60.0 %", ["cgroup"], marks=pytest.mark.whole
        ),
        ("/^(idle|mem_)/", "2 of 3 functions, self 80.0 %", ["mem_", "idle"]),
        ("nobody", "none of 3 functions", []),
    ],
)
def test_functions_are_searched_marked_and_counted_and_escape_clears(
    spanned: Page, typed: str, said: str, marked: list[str]
):
    spanned.keyboard.press("g")
    rows = spanned.locator("#functionsBox tbody tr")
    expect(rows).to_have_count(3)
    spanned.keyboard.press("/")
    spanned.keyboard.type(typed)
    expect(spanned.locator("#found")).to_have_text(f"{said}; 7 smaller ones not searched")
    assert spanned.locator("#functionsBox mark").all_inner_texts() == marked
    expect(rows).to_have_count(len(marked))
    spanned.keyboard.press("Escape")
    expect(rows).to_have_count(3)
    expect(spanned.locator("#search")).to_have_value("")
    expect(spanned.locator("#panel")).to_be_visible()


def test_a_pinned_lane_stays_at_the_top_and_in_the_url(plain: str, opened: Opened):
    page = drawn(opened(plain))
    page.locator("[data-lane=memcgs]").hover()
    page.get_by_role("button", name="pin synthetic to the top").click()
    page.locator("#canvas-stacks").focus()
    page.keyboard.press("p")
    assert page.evaluate(PINNED) == ["memcgs", "stacks"]
    assert page.evaluate("document.activeElement.id") == "canvas-stacks"
    settled(page)
    page.keyboard.press("c")
    page.locator("#lanes").evaluate("(lanes) => { lanes.scrollTop = 1000; }")
    box = page.locator("#canvas-memcgs").bounding_box()
    assert box is not None
    assert box["y"] < 160
    page.mouse.move(box["x"] + 200, box["y"] + 20)
    page.mouse.move(box["x"] + 203, box["y"] + 20)
    expect(page.locator("#pinnedCrosshair")).to_be_visible()
    expect(page.locator("[data-lane=memcgs] .reading")).to_contain_text("cgroups")
    other = drawn(opened(address(page)))
    assert other.evaluate(PINNED) == ["memcgs", "stacks"]
    other.locator("#canvas-stacks").focus()
    other.keyboard.press("p")
    assert other.evaluate(PINNED) == ["memcgs"]
    other.locator("[data-lane=memcgs] .pin").click()
    expect(other.locator("#pinned")).to_be_hidden()


@pytest.mark.parametrize("width", [400, pytest.param(900, marks=pytest.mark.whole), 1600])
def test_lanes_are_searched_by_name_at_every_width(plain: str, opened: Opened, width: int):
    page = drawn(opened(plain, viewport={"width": width, "height": 800}))
    page.get_by_role("button", name="search lanes").click()
    page.keyboard.type("/^sta|softirq/")
    assert page.evaluate(SHOWN) == ["average", "stacks"]  # softirq is a series of the average
    expect(page.locator("#lanesFound")).to_contain_text("2 of 5 lanes match")
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "canvas-average"
    page.keyboard.press("p")
    page.keyboard.press("L")
    page.keyboard.type("mach")
    assert page.evaluate(SHOWN) == ["average"]
    held = address(page)
    assert "find=mach" in held
    assert "pin=average" in held
    page.keyboard.press("Escape")
    assert len(page.evaluate(SHOWN)) == 5
    expect(page.locator("#lanesFound")).to_be_empty()


@pytest.mark.whole
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_pins_searches_and_views(
    plain: str, opened: Opened, scheme: str
):
    page = drawn(opened(plain + "#pin=stacks&find=s", color_scheme=scheme))
    drag(page, "average", 0.4, 0.6)
    page.locator("#byView").select_option("sandwich")
    expect(page.locator("#panelNote")).to_contain_text("callers above")
    assert faults(page) == []
    page.keyboard.press("g")
    page.locator("#search").fill("mem")
    expect(page.locator("#functionsBox mark")).to_have_count(1)
    assert faults(page) == []


WRITTEN = """() => {
  window.written = [];
  const plain = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
    if (this.canvas.closest?.("[data-lane=stacks]"))
      window.written.push([text, x / this.canvas.clientWidth, this.canvas.id]);
    return plain.call(this, text, x, y, ...more);
  };
}"""


def test_the_stacks_lane_has_a_clock_and_a_scale(plain: str, opened: Opened):
    """What is written on its canvas, and on which side."""
    page = drawn(opened(plain))
    page.evaluate(WRITTEN)
    page.set_viewport_size({"width": 1300, "height": 768})
    settled(page)
    written = page.evaluate("window.written")
    over = [(text, x) for text, x, canvas in written if canvas == "canvas-stacks"]
    clock = {x: text for text, x, canvas in written if canvas != "canvas-stacks"}
    assert {"0 ms", "500 ms", "1 s"} <= {text for text, x in over if x < 0.1}  # of the second
    scale = [text for text, x in sorted(over, key=itemgetter(1)) if x > 0.7]
    assert scale[0] == "0"
    assert re.fullmatch(r"≥ [0-9.,]+ samples in 20 ms", scale[-1]), written
    told = [clock[x] for x in sorted(clock)]
    assert len(told) > 2
    assert told == sorted({*told})
    assert all(re.fullmatch(r"\d\d:\d\d(:\d\d)?", text) for text in told), told
    bottom = {pixel(page, "stacks", 0.3 + step / 900, 0.95) for step in range(180)}
    assert len(bottom) > 2  # digits on the ground of the clock
    assert any(near(item, (247, 248, 250), 2) for item in bottom)


READ_OUT = """() => {
  const plain = CanvasRenderingContext2D.prototype.fillText;
  window.readOut = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, room) {
    if (/eadings$/.test(this.canvas.id)) {
      const wide = Math.min(this.measureText(text).width, room ?? Infinity);
      const left = this.textAlign === "right" ? x - wide : x;
      window.readOut.push([text, left, left + wide, this.canvas.clientWidth]);
    }
    return plain.call(this, text, x, y, room);
  };
}"""


@pytest.mark.parametrize("width", [400, 600, 900])
def test_no_value_at_the_crosshair_is_cut_off(plain: str, opened: Opened, width: int):
    page = drawn(opened(plain, viewport={"width": width, "height": 800}))
    page.evaluate(READ_OUT)
    stacks = page.locator("#canvas-stacks")
    stacks.scroll_into_view_if_needed()
    box = stacks.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 3)
    page.wait_for_function("window.readOut.some(([text]) => /^[+].* ms: /.test(text))")
    for text, left, right, room in page.evaluate("window.readOut"):
        assert left >= 0, text
        assert right <= room, text
