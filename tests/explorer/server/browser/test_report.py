"""The page of `sexton diagnose --html` in a real Chromium, opened from a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from sexton.explorer.files.incident import incident_html
from tests.explorer.files.test_incident import HOSTILE, IDLE, WHOLE, data_of, diagnosed
from tests.explorer.server.browser.conftest import Opened
from tests.explorer.server.browser.looking import STALL, near, pixel, settled, share_of
from tests.support.cli import sexton

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "incident.html"
    ran = sexton("diagnose", "--from", str(WHOLE), "--html", str(out), text=True)
    assert ran.returncode == 1, ran.stderr
    return out


def look(opened: Opened, path: Path, **how: object) -> Page:
    return settled(opened(path.as_uri(), **how))


def test_it_draws_the_held_core_from_what_is_in_the_file(opened: Opened, report: Path):
    page = look(opened, report)
    page.locator("#canvas-cores").scroll_into_view_if_needed()
    settled(page)
    held = diagnosed(WHOLE).by_id["saturated_core"]
    row = (int(held.entities["core"][0]) + 0.5) / 2
    at = share_of(page, held.end - 1.5)
    assert near(pixel(page, "cores", at, row), STALL["light"], 40)
    assert page.locator("#chainBody [data-finding]").count() == 7


def test_it_opens_on_what_it_is_about_with_the_flame_graph(opened: Opened, report: Path):
    page = look(opened, report)
    expect(page.locator("#panelNote")).to_have_text(re.compile(r"^[1-9][\d,]* samples"))
    assert page.evaluate("window.scrollY") == 0
    assert page.locator("#report h1").inner_text().startswith("Sick")


def test_its_one_explanation_says_of_which_time_it_is(opened: Opened, report: Path):
    page = look(opened, report)
    expect(page.locator("#chainBody .verdict")).to_contain_text("20:47:11")
    page.locator("[data-do=explain]").click()
    expect(page.locator("#chainBody .verdict")).to_contain_text("20:47:11")


def test_the_held_core_is_looked_into_alone_and_against_the_calm_before(
    opened: Opened, report: Path
):
    page = look(opened, report)
    assert page.locator("#byCore").input_value() == "1"
    page.get_by_role("tab", name="functions").click()
    expect(page.locator("#functionsBox")).to_contain_text("mem_cgroup_iter")
    page.get_by_role("tab", name="flame graph").click()
    page.locator("#byView").select_option("time")
    expect(page.locator("#panelNote")).to_contain_text("as they were taken")
    page.locator("#byView").select_option("sandwich")
    expect(page.locator("#panelNote")).to_contain_text("callers above, callees below")
    page.locator("#byView").select_option("name")
    page.keyboard.press("B")
    expect(page.locator("#panelNote")).to_contain_text("compared with")


def test_of_a_node_on_which_nothing_happened_nothing_is_chosen(opened: Opened, tmp_path: Path):
    out = tmp_path / "calm.html"
    assert sexton("diagnose", "--from", str(IDLE), "--html", str(out)).returncode == 0
    page = look(opened, out)
    assert not page.locator("#selectBand").is_visible()
    expect(page.locator("#chainBody")).to_contain_text("No problems found")


def test_zooming_below_a_second_shows_the_stacks_of_the_file(opened: Opened, report: Path):
    held = diagnosed(WHOLE).by_id["saturated_core"]
    span = f"v={held.end - 2:.3f},{held.end + 2:.3f}"
    page = settled(opened(f"{report.as_uri()}#{span}"))
    page.locator("#canvas-stacks").scroll_into_view_if_needed()  # what is not seen is not drawn
    settled(page)
    seen = page.evaluate(
        """() => {
          const canvas = document.querySelector("[data-lane=stacks] .picture");
          const all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          const colours = new Set();
          for (let at = 0; at < all.length; at += 4) colours.add(all.slice(at, at + 3).join());
          return colours.size;
        }"""
    )
    assert seen > 2  # none, one and more samples


def test_what_a_report_does_not_hold_is_said_and_never_made_up(opened: Opened, report: Path):
    page = look(opened, report)
    page.locator("#byTask").fill("python3")
    page.locator("#byTask").press("Enter")
    expect(page.locator("#panelNote")).to_contain_text("cannot filter by task")


@pytest.mark.whole
def test_the_next_reset_is_found_without_a_server(opened: Opened, report: Path):
    page = look(opened, report)
    page.locator("[data-do=zoomIn]").click()
    page.locator("[data-do=zoomIn]").click()
    page.locator("[data-do=nextReset]").click()
    settled(page)
    reset = diagnosed(WHOLE).by_id["nic_resets"].start
    assert 0 < share_of(page, reset) < 1


def test_a_lanes_table_is_there_as_text(opened: Opened, report: Path):
    page = look(opened, report)
    page.locator("#canvas-cores").focus()
    page.keyboard.press("t")
    page.locator("#tableDialog[open] table").wait_for()
    assert "core 1" in page.locator("#tableBody").inner_text()


def test_without_scripts_the_text_is_all_there(chromium: Browser, report: Path):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    text = page.locator("body").inner_text()
    assert "CAUSE CHAIN" in text
    assert "lab-agent.service restarts every" in text
    assert not page.locator("#explorer").is_visible()
    context.close()


def test_hostile_names_stay_text(opened: Opened, report: Path, tmp_path: Path):
    data = data_of(report.read_text())
    bad = HOSTILE.replace("\udcff", "")
    data["recording"]["node"]["host"] = bad
    for lane in data["lanes"].values():
        lane["names"] = [bad for _ in lane["names"]]
    for mark in data["marks"]["marks"]:
        mark["text"] = mark["entity"] = bad
    for finding in data["explain"]["findings"]:
        finding["summary"] = bad
    for flame in data["flames"]:
        flame["document"]["names"] = [bad for _ in flame["document"]["names"]]
    out = tmp_path / "hostile.html"
    out.write_text(incident_html(diagnosed(WHOLE), data), errors="backslashreplace")
    page = look(opened, out)
    expect(page.locator("#panelNote")).to_have_text(re.compile(r"^[1-9][\d,]* samples"))
    assert page.evaluate("window.pwned") is None
    assert page.locator("#chainBody script").count() == 0


def test_dark_is_dark(opened: Opened, report: Path):
    page = look(opened, report, color_scheme="dark")
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, back[4:-1].split(","))) < 60


@pytest.mark.whole
def test_on_paper_it_has_its_text_and_its_pictures(opened: Opened, report: Path, tmp_path: Path):
    page = look(opened, report)
    page.emulate_media(media="print")
    assert page.locator("#verdict pre").is_visible()
    assert page.locator("#canvas-cores").is_visible()
    assert not page.locator("#moves").is_visible()
    assert len(page.pdf(path=tmp_path / "incident.pdf")) > 20_000


@pytest.mark.whole
def test_axe_finds_no_serious_fault_in_it(opened: Opened, report: Path):
    found = Axe().run(look(opened, report)).response["violations"]
    serious = [
        (violation["id"], violation["nodes"][0]["html"][:120])
        for violation in found
        if violation["impact"] in ("serious", "critical")
    ]
    assert serious == []
