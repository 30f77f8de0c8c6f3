"""The tour of `sexton demo` in a real Chromium: from the average to the unit and its cure."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from sexton.explorer.server.tour import INCIDENT, Scene, read_cure, read_injected, scene_of, tour
from sexton.explorer.tiles.view import View
from tests.explorer.server.browser.conftest import Opened
from tests.explorer.server.browser.looking import (
    STALL,
    near,
    pixel,
    settled,
    share_of,
    told_address,
)

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The address that a real `sexton demo` prints."""
    with told_address("demo") as address:
        yield address


@pytest.fixture(scope="module")
def scene() -> Scene:
    return scene_of(View.open(INCIDENT / "recording"), read_injected())


def begun(opened: Opened, demo: str, **how: object) -> Page:
    page = opened(demo, **how)
    page.locator("#tour").wait_for()
    return settled(page)


def go(page: Page, steps: int) -> Page:
    for _ in range(steps):
        page.keyboard.press("ArrowRight")
    return settled(page)


def title(page: Page) -> str:
    return page.locator("#tour-title").inner_text()


def opened_lanes(page: Page) -> list[str]:
    return page.evaluate(
        "[...document.querySelectorAll('[data-lane]')]"
        ".filter((lane) => lane.querySelector('[aria-expanded=true]'))"
        ".map((lane) => lane.dataset.lane)"
    )


def test_the_first_screen_is_the_average_and_hides_the_end(opened: Opened, demo: str):
    page = begun(opened, demo)
    assert title(page) == "The average hides it"
    assert opened_lanes(page) == ["average"]
    assert not page.locator("#chainBody").is_visible()
    assert "Press → to see each core" in page.locator("#tour").inner_text()


@pytest.mark.whole
def test_the_first_screens_lines_are_flat(opened: Opened, demo: str):
    """The system's line stays at its height from end to end, give or take."""
    page = begun(opened, demo)
    script = """() => {
      const canvas = document.querySelector("[data-lane=average] .picture");
      const { width, height } = canvas;
      const all = canvas.getContext("2d").getImageData(0, 0, width, height).data;
      const lines = [];
      for (let x = Math.floor(width * 0.05); x < width * 0.95; x += 10) {
        for (let y = 0; y < height; y++) {
          const at = 4 * (y * width + x);
          if (Math.abs(all[at] - 213) < 9 && Math.abs(all[at + 1] - 94) < 9 && all[at + 2] < 9) {
            lines.push(y / height);
            break;
          }
        }
      }
      return lines;
    }"""
    lines = page.evaluate(script)
    assert len(lines) > 40
    assert max(lines) - min(lines) < 0.2


def test_a_step_shows_nothing_that_it_does_not_speak_of(opened: Opened, demo: str, scene: Scene):
    page = begun(opened, demo)
    for _ in tour(scene, read_cure())["steps"]:
        seen = "[...document.querySelectorAll('[data-lane]')].filter((lane) => lane.clientHeight)"
        assert page.evaluate(f"{seen}.map((lane) => lane.dataset.lane)") == opened_lanes(page)
        go(page, 1)
    assert page.evaluate("document.querySelectorAll('[data-lane]').length") > 8


def test_what_is_lit_in_the_chain_is_not_under_the_card(opened: Opened, demo: str, scene: Scene):
    page = begun(opened, demo)
    go(page, 2)
    for _ in scene.diagnosis.chains[0].findings:
        card, lit, body = (
            page.locator(name).bounding_box()
            for name in ("#tour", "#chainBody [aria-current=step]", "#chainBody")
        )
        assert lit["y"] >= body["y"] - 1
        assert lit["y"] + lit["height"] <= card["y"]
        go(page, 1)


def test_one_key_unfolds_the_cores_and_the_stall_appears(opened: Opened, demo: str, scene: Scene):
    page = begun(opened, demo)
    go(page, 1)
    assert title(page) == "One core is stuck in the kernel"
    assert opened_lanes(page) == ["average", "cores"]
    held = scene.diagnosis.by_id["saturated_core"]
    core, cores = int(held.entities["core"][0]), scene.diagnosis.node.cores
    page.evaluate("document.getElementById('selectBand').hidden = true")
    # Its last second but one: a chosen span is tinted on top of the canvas, not in it.
    inside = share_of(page, held.end - 1.5)
    before = share_of(page, held.start - 20)
    row = (core + 0.5) / cores
    assert near(pixel(page, "cores", inside, row), STALL["light"], 40)
    assert not near(pixel(page, "cores", before, row), STALL["light"], 40)


def test_the_arrows_walk_from_the_dead_job_to_the_leaking_unit(
    opened: Opened, demo: str, scene: Scene
):
    page = begun(opened, demo)
    expected = tour(scene, read_cure())["steps"]
    chain = scene.diagnosis.chains[0].findings
    for number, step in enumerate(expected):
        assert title(page) == step["title"]
        assert f"{number + 1} of {len(expected)}" in page.locator("#tour").inner_text()
        assert opened_lanes(page) == step["view"]["open"]
        if step["id"] in chain:
            lit = page.locator("#chainBody [aria-current=step]")
            assert lit.get_attribute("data-finding") == step["id"]
        go(page, 1)
    assert not page.locator("#tour").is_visible()


def test_the_root_names_the_unit_and_shows_its_restarts(opened: Opened, demo: str, scene: Scene):
    page = begun(opened, demo)
    go(page, 2 + scene.diagnosis.chains[0].findings[::-1].index("crash_looping_unit"))
    assert "the cause" in title(page)
    unit = scene.diagnosis.by_id["crash_looping_unit"].entities["unit"][0]
    assert unit in page.locator("#tour").inner_text()
    assert unit in page.locator("[data-lane=restarts]").inner_text()


def test_the_held_cores_step_shows_what_ran_there(opened: Opened, demo: str, scene: Scene):
    page = begun(opened, demo)
    go(page, 2 + scene.diagnosis.chains[0].findings[::-1].index("saturated_core"))
    page.locator("#panel").wait_for()
    expect(page.locator("#panelNote")).to_have_text(re.compile(r"^[1-9][\d,]* samples"))
    held = scene.diagnosis.by_id["saturated_core"].entities["core"][0]
    assert page.locator("#byCore").input_value() == held
    card, panel = (page.locator(name).bounding_box() for name in ("#tour", "#panel"))
    assert panel["x"] + panel["width"] <= card["x"] + 1


def test_the_last_step_shows_before_and_after(opened: Opened, demo: str, scene: Scene):
    page = begun(opened, demo)
    cure = read_cure()
    go(page, len(tour(scene, cure)["steps"]) - 1)
    assert title(page) == "The cure, before and after"
    rows = page.locator("#tour tbody tr")
    assert rows.count() == len(cure["rows"])
    assert page.locator("#tour thead").inner_text().split() == ["what", "before", "after", "both"]
    first = next(row for row in cure["rows"] if not isinstance(row["before"], str))
    bars = rows.nth(cure["rows"].index(first)).locator("rect")
    widths = bars.evaluate_all("(all) => all.map((bar) => Number(bar.getAttribute('width')))")
    assert widths[0] == 64
    assert widths[1] == max(64 * first["after"] / first["before"], 1)
    assert cure["kernel"] in page.locator("#tour").inner_text()


@pytest.mark.whole
def test_back_goes_back_and_escape_ends_it_and_the_button_goes_on(opened: Opened, demo: str):
    page = begun(opened, demo)
    page.keyboard.press("ArrowLeft")
    assert title(page) == "The average hides it"
    go(page, 2)
    here = title(page)
    page.keyboard.press("ArrowLeft")
    assert title(page) != here
    go(page, 1)
    page.keyboard.press("Escape")
    assert not page.locator("#tour").is_visible()
    assert len(opened_lanes(page)) > 8  # at the end all lanes are open
    assert page.evaluate("document.activeElement.id") == "tour-again"
    page.keyboard.press("Enter")
    assert page.locator("#tour").is_visible()
    assert title(page) == here


def test_the_mouse_does_the_same(opened: Opened, demo: str):
    page = begun(opened, demo)
    page.get_by_role("button", name="Next step").click()
    assert title(page) == "One core is stuck in the kernel"
    page.get_by_role("button", name="Previous step").click()
    assert title(page) == "The average hides it"
    page.get_by_role("button", name="End the tour").click()
    assert not page.locator("#tour").is_visible()


def test_a_lane_that_has_the_focus_keeps_its_arrows(opened: Opened, demo: str):
    page = begun(opened, demo)
    go(page, 1)
    page.locator("#canvas-cores").focus()
    page.keyboard.press("ArrowRight")
    assert title(page) == "One core is stuck in the kernel"


def test_it_is_read_out_and_the_focus_is_in_it(opened: Opened, demo: str):
    page = begun(opened, demo)
    assert page.evaluate("document.activeElement.id") == "tour-title"
    live = page.locator("#tour [aria-live=polite]")
    assert live.get_attribute("aria-atomic") == "true"
    assert live.locator("#tour-title").count() == 1


@pytest.mark.whole
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault_in_any_step(opened: Opened, demo: str, scheme: str):
    page = begun(opened, demo, color_scheme=scheme)
    for _ in range(3):
        found = Axe().run(page, context="#tour").response["violations"]
        serious = [
            violation["id"] for violation in found if violation["impact"] in ("serious", "critical")
        ]
        assert serious == []
        go(page, 4)


@pytest.mark.parametrize(("width", "height"), [(1280, 640), (480, 700)])
def test_it_fits_a_small_laptop_and_a_narrow_window(
    opened: Opened, demo: str, width: int, height: int
):
    page = begun(opened, demo, viewport={"width": width, "height": height})
    for steps in (0, 6, 3):  # the first, the longest, the last
        go(page, steps)
        box = page.locator("#tour").bounding_box()
        assert box["x"] >= 0
        assert box["y"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= height
        assert page.locator("#tour .tour-next").is_visible()


def test_who_wants_less_motion_gets_none(opened: Opened, demo: str):
    page = begun(opened, demo, reduced_motion="reduce")
    assert (
        page.evaluate("getComputedStyle(document.getElementById('tour')).animationName") == "none"
    )
