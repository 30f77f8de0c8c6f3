"""The page over made-up numbers: machines that no recording at hand is of, and hostile names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.explorer.server.browser.looking import (
    STALL,
    address,
    drag,
    drawn,
    near,
    pixel,
    settled,
    share_of,
    view_of,
)
from tests.explorer.server.browser.synthetic import HOSTILE, START, Machine, served
from tests.kernel.conftest import until

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    with served(Machine()) as at:
        yield at


def test_the_first_screen_folds_the_cores_and_one_key_unfolds_them(plain, opened):
    page = drawn(opened(plain))
    fold = page.locator("[data-lane=cores] .fold")
    expect(fold).to_have_attribute("aria-expanded", "false")
    expect(page.locator("#canvas-cores")).to_be_hidden()
    page.keyboard.press("c")
    expect(fold).to_have_attribute("aria-expanded", "true")
    settled(page)
    assert near(pixel(page, "cores", share_of(page, START + 305), 1.5 / 4), STALL["light"])
    assert not near(pixel(page, "cores", share_of(page, START + 305), 2.5 / 4), STALL["light"], 40)


@pytest.mark.whole
def test_dark_is_what_the_system_wants_until_a_key_says_otherwise(plain, opened):
    page = drawn(opened(plain, color_scheme="dark"))
    page.keyboard.press("c")
    settled(page)
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(20, 22, 27)"
    assert near(pixel(page, "cores", share_of(page, START + 305), 1.5 / 4), STALL["dark"])
    page.keyboard.press("d")
    settled(page)
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    assert near(pixel(page, "cores", share_of(page, START + 305), 1.5 / 4), STALL["light"])
    assert "theme=light" in address(page)


def test_what_was_not_recorded_is_hatched_and_never_zero(opened):
    with served(Machine(gap=(200.0, 320.0), stalls=())) as at:
        page = drawn(opened(at))
        page.keyboard.press("c")
        settled(page)
        first, last = share_of(page, START + 230), share_of(page, START + 260)
        for lane in ("average", "cores", "memcgs", "stacks", "events"):
            gap = {
                pixel(page, lane, first + (last - first) * step / 30, 0.3 + 0.01 * step)
                for step in range(30)
            }
            assert len(gap) > 2, lane  # lines of the hatch, their edges and what is between them
            assert all(near(item, (205, 209, 216), 42) for item in gap), (lane, gap)


@pytest.mark.parametrize(("cores", "high"), [(1, 96), (192, 386)])
def test_one_core_and_192_are_drawn_in_whole_pixels(cores, high, opened):
    stalled = cores - 1
    with served(Machine(cores=cores, seconds=200, stalls=((stalled, 100, 110),))) as at:
        page = drawn(opened(at))
        page.keyboard.press("c")
        settled(page)
        assert page.evaluate("document.getElementById('canvas-cores').clientHeight") == high
        row = (stalled + 0.5) / cores
        assert near(pixel(page, "cores", share_of(page, START + 105), row), STALL["light"])
        if cores > 1:
            assert not near(pixel(page, "cores", 0.5, 0.5), STALL["light"], 40)


def test_a_stall_of_five_seconds_is_seen_in_twelve_hours_of_192_cores(opened):
    with served(Machine(cores=192, seconds=43200, stalls=((100, 20000, 20005),))) as at:
        page = drawn(opened(at))
        page.keyboard.press("c")
        settled(page)
        middle = share_of(page, START + 20002)
        seen = [
            near(
                pixel(page, "cores", middle + dx / 820, (1 + 100.5 * 2 + dy) / 386), STALL["light"]
            )
            for dx in (-1, 0, 1)
            for dy in (-1, 0)
        ]
        assert any(seen)


def test_nothing_recorded_is_said_in_words(opened):
    with served(Machine(is_empty=True)) as at:
        page = opened(at)
        expect(page.locator("#empty")).to_contain_text("Nothing recorded yet")


def test_hostile_names_are_text_everywhere(opened):
    with served(Machine(name=HOSTILE)) as at:
        page = drawn(opened(at))
        expect(page.locator("#node")).to_contain_text("<script>")
        page.keyboard.press("c")
        drag(page, "average", 0.4, 0.6)
        expect(page.locator("#panel")).to_be_visible()
        page.get_by_role("tab", name="functions").click()
        expect(page.locator("#functionsBox")).to_contain_text("<script>")
        page.keyboard.press("j")
        page.keyboard.press("t")
        expect(page.locator("#tableBody")).to_contain_text("<img")
        page.keyboard.press("Escape")
        page.keyboard.press("n")
        expect(page.locator("#tip")).to_contain_text("<img")
        page.locator("#canvas-events").hover(position={"x": 420, "y": 30})
        assert page.evaluate("window.pwned") is None
        assert page.evaluate("document.querySelectorAll('img, body script').length") == 0


def test_the_crosshair_reads_exact_values_in_every_lane(plain, opened):
    page = drawn(opened(plain))
    page.keyboard.press("c")
    settled(page)
    box = page.locator("#canvas-cores").bounding_box()
    x = box["x"] + share_of(page, START + 305) * box["width"]
    page.mouse.move(x - 3, box["y"] + box["height"] * 1.5 / 4)
    page.mouse.move(x, box["y"] + box["height"] * 1.5 / 4)
    cores = page.locator("[data-lane=cores]")
    expect(cores.locator(".readout")).to_have_text("core 1")
    expect(cores.locator(".reading li").nth(1)).to_contain_text("99 %")
    average = page.locator("[data-lane=average] .reading li")
    expect(average.nth(1)).to_contain_text("27 %")  # (99 + 3 * 3) / 4 cores
    value = page.locator("[data-lane=memcgs] .reading .value").nth(1)
    expect(value).to_contain_text(" cgroups")
    dying = value.text_content()
    assert abs(float(dying.removesuffix(" cgroups")) - 305) <= 1
    box = page.locator("#canvas-stacks").bounding_box()
    page.mouse.move(x - 3, box["y"] + 1 + 50.5 * 2)
    page.mouse.move(x, box["y"] + 1 + 50 * 2 - 1)
    stacks = page.locator("[data-lane=stacks]")
    expect(stacks.locator(".readout")).to_have_text("+0 ms: 0 samples")
    expect(stacks.locator(".reading")).to_contain_text("100 samples")  # (0 + 1 + 2 + 3 + 4) * 10


def test_lanes_are_put_in_another_order_by_keys_and_by_dragging(plain, opened):
    page = drawn(opened(plain))
    order = "[...document.querySelectorAll('.lane')].map((lane) => lane.dataset.lane)"
    assert page.evaluate(order) == ["events", "average", "cores", "memcgs", "stacks"]
    page.locator("[data-lane=memcgs] .grip").focus()
    page.keyboard.press("Alt+ArrowUp")
    assert page.evaluate(order) == ["events", "average", "memcgs", "cores", "stacks"]
    assert page.evaluate("document.activeElement.className") == "grip"
    grip = page.locator("[data-lane=stacks] .grip").bounding_box()
    page.mouse.move(grip["x"] + 4, grip["y"] + 8)
    page.mouse.down()
    page.mouse.move(grip["x"] + 4, grip["y"] - 60)
    page.mouse.move(grip["x"] + 4, 102)
    page.mouse.up()
    assert page.evaluate(order) == ["stacks", "events", "average", "memcgs", "cores"]
    assert "lanes=stacks.events.average.memcgs.-cores" in address(page)


def test_the_address_holds_the_view_and_gives_it_back(plain, opened):
    page = drawn(opened(plain))
    for key in ("c", "+", "+", "ArrowRight", "d", "m"):
        page.keyboard.press(key)
    drag(page, "average", 0.3, 0.6)
    page.keyboard.press("B")
    page.keyboard.press("/")
    page.keyboard.type("mem_")
    page.keyboard.press("Enter")
    held = address(page)
    other = drawn(opened(held))
    assert address(other) == held
    assert view_of(other) == view_of(page)
    for item in (page, other):
        expect(item.locator("#panelSpan")).to_have_text(page.locator("#panelSpan").inner_text())
        expect(item.locator("#baseline")).to_contain_text("against")
        expect(item.locator("#found")).to_contain_text("60.0 %")
        assert item.evaluate("document.documentElement.dataset.theme") == "dark"


def test_an_address_of_nonsense_opens_the_whole(plain, opened):
    page = drawn(opened(plain + "#v=nan,9&s=9,1&lanes=-x.%3Cb%3E&core=%22&link=-4&at=zz&tab=1"))
    start, end = view_of(page)
    assert start <= START
    assert end >= START + 600


def test_a_span_is_chosen_by_keys_alone(plain, opened):
    page = drawn(opened(plain))
    page.keyboard.press(".")
    expect(page.locator("#crosshair")).to_be_visible()
    for _ in range(5):
        page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#panelSpan")).to_contain_text("1 min 0 s")
    page.keyboard.press("b")
    expect(page.locator("#baseline")).to_contain_text("against")
    page.keyboard.press("g")
    expect(page.locator("#functionsBox")).to_be_visible()
    for _ in range(3):
        page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()


def test_zooming_reaches_twenty_milliseconds_and_comes_back(plain, opened):
    page = drawn(opened(plain))
    for _ in range(30):
        page.keyboard.press("+")
    start, end = view_of(page)
    assert end - start == pytest.approx(0.02, abs=0.002)
    settled(page)
    page.keyboard.press("0")
    start, end = view_of(page)
    assert end - start >= 600


def test_a_flame_graph_is_walked_and_zoomed_by_keys(plain, opened):
    page = drawn(opened(plain))
    drag(page, "average", 0.4, 0.6)
    expect(page.locator("#panelNote")).to_contain_text("100 samples")
    page.locator("#flame").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#flameText")).to_contain_text("task synthetic")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#flameText")).to_contain_text("mem_cgroup_iter")
    expect(page.locator("#flameText")).to_contain_text("60.0 %")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_visible()
    page.keyboard.press("B")
    expect(page.locator("#panelNote")).to_contain_text("red: grew")


@pytest.mark.whole
def test_the_loop_sleeps_when_nothing_changes(plain, opened):
    page = drawn(opened(plain))
    count = """() => new Promise((go) => {
      let seen = 0;
      const real = window.requestAnimationFrame;
      window.requestAnimationFrame = (what) => { seen++; return real(what); };
      setTimeout(() => { window.requestAnimationFrame = real; go(seen); }, 500);
    })"""
    assert until(lambda: page.evaluate(count) == 0)


@pytest.mark.whole
def test_strips_are_requested_in_batches_and_not_twice(plain, opened):
    page = drawn(opened(plain))
    lines: list[str] = []
    page.on("request", lambda request: lines.append(request.url))
    page.reload()
    drawn(page)
    page.wait_for_load_state("networkidle")
    strips = [line for line in lines if "/api/strip/" in line]
    assert len(strips) == len(set(strips))
    assert 0 < len([strip for strip in strips if "/average" in strip]) <= 2
    assert not [strip for strip in strips if "/cores" in strip]  # folded: nobody sees it


def test_a_running_recorder_is_followed_until_somebody_looks_elsewhere(opened):
    with served(Machine(seconds=300, stalls=(), grows_to=330)) as at:
        page = drawn(opened(at))
        expect(page.locator("#follow")).to_have_attribute("aria-pressed", "true")
        assert until(lambda: view_of(page)[1] >= START + 330)
        settled(page)
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#follow")).to_have_attribute("aria-pressed", "false")


@pytest.mark.whole
def test_an_address_typed_into_the_bar_is_obeyed(plain, opened):
    page = drawn(opened(plain))
    view, span = f"{START + 100},{START + 160}", f"{START + 110},{START + 120}"
    page.evaluate("(hash) => { location.hash = hash; }", f"v={view}&s={span}&tab=functions")
    expect(page.locator("#functionsBox")).to_be_visible()
    assert view_of(page) == (START + 100, START + 160)


@pytest.mark.whole
def test_what_is_no_longer_wanted_is_not_waited_for(plain, opened):
    page = drawn(opened(plain))
    drag(page, "average", 0.2, 0.3)
    drag(page, "average", 0.5, 0.8)
    expect(page.locator("#panelNote")).to_contain_text("100 samples")
    expect(page.locator("#panelBody:not([aria-busy])")).to_be_visible()


def test_a_chosen_core_among_192_is_held_under_a_lens(opened):
    with served(Machine(cores=192, seconds=200, stalls=((100, 100, 110),))) as at:
        page = drawn(opened(at + "#core=100"))
        page.keyboard.press("c")
        settled(page)
        middle = share_of(page, START + 105)
        high = [
            near(pixel(page, "cores", middle, (1 + 100.5 * 2 + dy) / 386), STALL["light"])
            for dy in range(-5, 6)
        ]
        assert all(high), high
