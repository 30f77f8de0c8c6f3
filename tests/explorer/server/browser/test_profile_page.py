"""The pages of `sexton profile report`, `flame` and `diff` in a real Chromium, from a file."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from sexton.explorer.files.profile import difference_data, flame_html
from tests.cli.profile.made import HOSTILE, difference_of
from tests.explorer.server.browser.conftest import Opened
from tests.explorer.server.browser.looking import drag, near, pixel, settled, view_of
from tests.support.cli import sexton
from tests.support.made_capture import made_capture

pytestmark = pytest.mark.browser
UTC = {"TZ": "UTC"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of two minutes on 8 cores: core 5 is held from second 67 on, for five."""
    place = tmp_path_factory.mktemp("profile")
    capture, kallsyms = made_capture(place)
    words = (str(capture), "--kallsyms", str(kallsyms), "--out")
    for verb, status in (("report", 1), ("flame", 0), ("heatmap", 0)):
        ran = sexton("profile", verb, *words, str(place / f"{verb}.html"), text=True, env=UTC)
        assert ran.returncode == status, ran.stderr
    return place


def look(opened: Opened, path: Path, **how: object) -> Page:
    return settled(opened(path.as_uri(), **how))


def samples(page: Page, number: int | str) -> None:
    expect(page.locator("#panelNote")).to_have_text(re.compile(rf"^{number} samples"))


def core_filter(page: Page, core: str) -> None:
    page.locator("#byCore").select_option(core)


def select_seconds(page: Page, start: float, end: float) -> None:
    """Over the cores lane, seconds from the start; all of the capture is in view."""
    for _ in range(3):
        page.keyboard.press("Escape")
    page.keyboard.press("0")
    settled(page)
    low, high = view_of(page)
    whole = high - low
    air = (whole - 119.98) / 2
    drag(page, "cores", (start + air) / whole, (end + air) / whole)


def test_a_report_opens_on_the_first_spike_against_the_calm_before(opened: Opened, folder: Path):
    page = look(opened, folder / "report.html")
    samples(page, 271)
    expect(page.locator("#panelNote")).to_contain_text("compared with the 60 s before it")
    assert page.locator("#byCore").input_value() == "5"
    assert page.locator("#chainBody .finding").count() == 1
    assert page.locator("#report .word").inner_text() == "1 SPIKE"
    assert page.evaluate("window.scrollY") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_the_held_core_in_light_and_dark(opened: Opened, folder: Path, scheme: str):
    page = look(opened, folder / "heatmap.html", color_scheme=scheme)
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") is (scheme == "light")
    held = pixel(page, "cores", 69.5 / 121, 5.5 / 8)
    calm = pixel(page, "cores", 30.5 / 121, 5.5 / 8)
    assert not near(held, calm, 60)
    assert not page.locator("#panel").is_visible()


def test_a_drag_over_the_heatmap_shows_exactly_the_samples_of_its_seconds(
    opened: Opened, folder: Path
):
    page = look(opened, folder / "report.html")
    select_seconds(page, 68.4, 69.6)
    core_filter(page, "5")
    samples(page, 2 * 49)  # two seconds of one core that never idled, at 49 Hz
    expect(page.locator("#panelNote")).to_contain_text("--from 68 --to 70 --cpu 5")
    select_seconds(page, 10.4, 12.6)
    page.locator("#byTask").fill("kubelet")
    page.locator("#byTask").press("Enter")
    expect(page.locator("#panelNote")).to_contain_text("--task 'kubelet'")


def test_a_core_is_chosen_by_a_click_and_several_with_shift(opened: Opened, folder: Path):
    page = look(opened, folder / "flame.html")
    box = page.locator("#canvas-cores").bounding_box()
    assert box is not None

    def row(core: int) -> tuple[float, float]:
        return box["x"] + 200, box["y"] + (core + 0.5) * box["height"] / 8

    page.mouse.click(*row(2))
    expect(page.locator("#panelNote")).to_contain_text("--cpu 2")
    page.keyboard.down("Shift")
    page.mouse.click(*row(5))
    page.keyboard.up("Shift")
    expect(page.locator("#panelNote")).to_contain_text("--cpu 2-5")
    assert page.locator("#byCore option:checked").inner_text() == "cores 2-5"


def test_functions_are_counted_from_the_file(opened: Opened, folder: Path):
    page = look(opened, folder / "flame.html")
    page.get_by_role("tab", name="functions").click()
    expect(page.locator("#functionsBox")).to_contain_text("mem_cgroup_css_rstat_flush")


def test_a_capture_has_every_view_and_a_difference_all_but_the_order_of_time(
    opened: Opened, folder: Path, difference: Page
):
    page = look(opened, folder / "flame.html")
    page.locator("#byView").select_option("time")
    expect(page.locator("#panelNote")).to_contain_text("as they were taken")
    total = page.locator("#panelNote").inner_text().split()[0]
    page.get_by_role("tab", name="functions").click()
    page.locator("#search").fill("rstat_flush")
    page.get_by_role("button", name="mem_cgroup_css_rstat_flush").click()
    held = page.locator("#panelNote")
    expect(held).to_contain_text(re.compile(r"^mem_cgroup_css_rstat_flush: [\d,]+ samples"))
    page.locator("#byView").select_option("name")
    samples(page, total)
    assert difference.evaluate("document.querySelector('#byView [value=time]').disabled")
    difference.keyboard.press("v")
    difference.keyboard.press("v")
    expect(difference.locator("#panelNote")).to_contain_text("callers above")


def test_any_range_can_be_the_baseline(opened: Opened, folder: Path):
    page = look(opened, folder / "report.html")
    select_seconds(page, 68.4, 69.6)
    page.keyboard.press("B")
    expect(page.locator("#panelNote")).to_contain_text("change not tested")
    expect(page.locator("#widths")).to_be_visible()


def test_a_spikes_button_in_the_text_opens_it(opened: Opened, folder: Path):
    page = look(opened, folder / "report.html")
    for _ in range(3):
        page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    page.locator("[data-spike]").click()
    samples(page, 271)


def test_without_scripts_the_spikes_are_all_there(chromium: Browser, folder: Path):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "report.html").as_uri())
    text = page.locator("body").inner_text()
    assert "mem_cgroup_css_rstat_flush" in text
    assert "Recurring" in text
    assert not page.locator("#explorer").is_visible()
    assert not page.locator("[data-spike]").is_visible()
    context.close()


@pytest.fixture
def difference(opened: Opened, tmp_path: Path) -> Page:
    names = {f"odd;{name}": 10 for name in HOSTILE}
    before, after = {"a;x": 90, "a;y": 10, **names}, {"a;x": 10, "a;y": 90, **names}
    found = difference_of(before, after, 0.001)
    made = tmp_path / "diff.html"
    text = flame_html(HOSTILE[0], HOSTILE[1], difference_data(found, ("one", HOSTILE[0])))
    made.write_text(text, errors="backslashreplace")
    return look(opened, made)


def reading(page: Page) -> str:
    return page.locator("#flameText").inner_text()


def test_a_difference_without_times_is_a_flame_graph_alone(difference: Page):
    assert not difference.locator("#lanes").is_visible()
    assert difference.locator("#flame").is_visible()
    difference.locator("#flame").focus()
    for key in ("ArrowDown", "ArrowDown"):
        difference.keyboard.press(key)
    assert reading(difference).startswith("x") or reading(difference).startswith("y")
    assert "q 0.001" in reading(difference)
    assert difference.evaluate("document.querySelectorAll('script:not([type])').length") == 1


def test_widths_can_be_those_of_either_side(difference: Page):
    button = difference.locator("#widths")
    seen = [button.inner_text()]
    for _ in range(3):
        button.click()
        seen.append(button.inner_text())
    assert seen == ["widths: both", "widths: after", "widths: before", "widths: both"]


def test_the_flame_graph_can_be_turned_upside_down(difference: Page):
    difference.keyboard.press("u")
    assert difference.locator("#flip").get_attribute("aria-pressed") == "true"
    difference.locator("#flame").focus()
    difference.keyboard.press("ArrowUp")
    assert reading(difference).startswith("a")


@pytest.mark.parametrize("typed", ["^(x|y)$", "(", "[a-", "</script>", "*"])
def test_search_takes_patterns_and_plain_words(difference: Page, typed: str):
    difference.keyboard.press("/")
    difference.keyboard.type(typed)
    expect(difference.locator("#found")).not_to_have_text("")
    if typed.startswith("^"):
        expect(difference.locator("#found")).to_contain_text("in 2 boxes")


@pytest.mark.parametrize("width", [400, 900, 1600])
@pytest.mark.parametrize("name", ["report", "flame", "heatmap"])
def test_nothing_is_wider_than_the_window(opened: Opened, folder: Path, name: str, width: int):
    page = look(opened, folder / f"{name}.html", viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator("#canvas-cores").bounding_box()
    assert box is not None
    assert box["width"] > width / 3


@pytest.mark.parametrize("width", [400, 800])
@pytest.mark.parametrize("larger", [False, True])
def test_a_narrow_report_has_spikes_lanes_and_panel_below_each_other(
    opened: Opened, folder: Path, width: int, larger: bool
):
    page = look(opened, folder / "report.html", viewport={"width": width, "height": 700})
    if larger:
        page.locator("#panel [data-do=taller]").click()
        settled(page)
    boxes = [page.locator(each).bounding_box() for each in ("#chain", "#time", "#lanes", "#panel")]
    assert all(box is not None and box["height"] > 40 for box in boxes), boxes
    for above, below in pairwise(filter(None, boxes)):
        assert above["y"] + above["height"] <= below["y"] + 1
    page.locator("#panel [data-do=close]").click(trial=True)


@pytest.mark.whole
def test_axe_finds_no_serious_fault_in_a_report(opened: Opened, folder: Path):
    found = Axe().run(look(opened, folder / "report.html")).response["violations"]
    serious = [
        (violation["id"], violation["nodes"][0]["html"][:120])
        for violation in found
        if violation["impact"] in ("serious", "critical")
    ]
    assert serious == []
