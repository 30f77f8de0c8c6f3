"""The page over a real incident, served by `sexton serve`: from the reset to the leaking unit."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.explorer.server.browser.conftest import INCIDENT
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

pytestmark = pytest.mark.browser
DIAGNOSIS = json.loads((INCIDENT.parent / "diagnosis.json").read_text())
FINDINGS = {finding["id"]: finding for finding in DIAGNOSIS["findings"]}
CHAIN = [
    "cgroup_churn",
    "zombie_memcgs",
    "saturated_core",
    "starved_napi",
    "nic_resets",
    "tcp_loss",
    "job_deaths",
]


@pytest.fixture
def page(incident, opened) -> Page:
    return drawn(opened(incident))


def lit(page: Page) -> str | None:
    return page.locator(".finding[aria-current=step]").get_attribute("data-finding")


def samples(page: Page, before: int | None = None) -> int:
    """How many the flame graph is of, once it is all there and another number than before."""
    counted = r"(?!.*reading more)([\d,]+) samples?\b"
    other = "" if before is None else rf"(?!{before:,} )"
    note = page.locator("#panelNote")
    expect(note).to_have_text(re.compile("^" + other + counted), timeout=60_000)
    return int(re.match(r"[\d,]+", note.inner_text())[0].replace(",", ""))


def test_the_way_from_the_reset_to_the_leaking_unit_by_keys(page):
    expect(page.locator(".finding")).to_have_count(len(CHAIN), timeout=60_000)
    page.keyboard.press("r")
    expect(page.locator("#tip")).to_contain_text("eth0")
    start, end = view_of(page)
    assert start <= FINDINGS["nic_resets"]["start"] <= end
    for number, name in reversed(list(enumerate(CHAIN, 1))):
        page.keyboard.press(str(number))
        settled(page)
        assert lit(page) == name
        start, end = view_of(page)
        assert start <= FINDINGS[name]["end"]
        assert end >= FINDINGS[name]["start"]
    expect(page.locator(".finding[aria-current=step]")).to_contain_text("lab-agent.service")
    owners = page.locator("[data-lane=memcgs] .reading")
    expect(owners).to_contain_text("lab-agent.service")


def test_the_same_way_by_clicks(page):
    expect(page.locator(".finding")).to_have_count(len(CHAIN), timeout=60_000)
    page.get_by_role("button", name="reset ▸").click()
    page.locator("[data-finding=starved_napi]").click()
    assert lit(page) == "starved_napi"
    page.locator("[data-finding=saturated_core]").click()
    settled(page)
    fold = page.locator("[data-lane=cores] .fold")
    expect(fold).to_have_attribute("aria-expanded", "true")
    expect(page.locator("[data-lane=cores] .readout")).to_have_text("core 0")
    page.locator("[data-finding=cgroup_churn]").click()
    expect(page.locator(".finding[aria-current=step]")).to_contain_text("lab-agent.service")
    assert "link=0" in address(page)


def test_the_stalled_core_has_the_colour_of_a_stall_and_the_other_has_not(page):
    page.keyboard.press("c")
    settled(page)
    held = FINDINGS["saturated_core"]
    middle = share_of(page, (held["start"] + held["end"]) / 2)
    assert near(pixel(page, "cores", middle, 0.3), STALL["light"], 10)
    assert not near(pixel(page, "cores", middle, 0.8), STALL["light"], 40)
    page.keyboard.press("d")
    settled(page)
    assert near(pixel(page, "cores", middle, 0.3), STALL["dark"], 10)


def test_a_brushed_span_has_its_flame_graph_functions_difference_and_explanation(page):
    held = FINDINGS["saturated_core"]
    first, last = share_of(page, held["start"]), share_of(page, held["end"])
    drag(page, "average", first, last)
    of_all = samples(page)
    expect(page.locator("[data-finding=saturated_core]")).to_be_visible(timeout=60_000)
    page.keyboard.press("/")
    page.keyboard.type("mem_cgroup_iter")
    expect(page.locator("#found")).to_contain_text("%")
    page.keyboard.press("Escape")
    page.locator("#byCore").select_option("0")
    of_the_core = samples(page, of_all)
    assert 0 < of_the_core < of_all
    assert "core=0" in address(page)
    page.get_by_role("tab", name="functions").click()
    expect(page.locator("#functionsBox tbody tr").first).to_be_visible(timeout=60_000)
    expect(page.locator("#functionsBox")).to_contain_text("mem_cgroup_iter")
    page.get_by_role("tab", name="flame graph").click()
    page.keyboard.press("B")
    expect(page.locator("#panelNote")).to_contain_text("red: grew", timeout=60_000)
    page.locator("#byTask").fill("lab-walker")
    page.keyboard.press("Enter")
    assert "task=lab-walker" in address(page)
    assert 0 < samples(page, of_the_core) < of_the_core
    page.locator("#byTask").fill("nobody")
    page.keyboard.press("Enter")
    said = "no samples match core 0, task nobody in this span"
    expect(page.locator("#panelNote")).to_contain_text(said, timeout=60_000)


def test_every_lane_has_a_table_that_the_keyboard_reaches(page):
    page.keyboard.press("c")
    lanes = page.evaluate("[...document.querySelectorAll('.lane')].map((e) => e.dataset.lane)")
    assert len(lanes) >= 8
    for lane in lanes:
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.id") == f"canvas-{lane}"
        page.keyboard.press("t")
        expect(page.locator("#tableBody tbody tr").first).to_be_visible(timeout=60_000)
        assert page.evaluate("document.activeElement.id") == "tableBody"
        page.keyboard.press("Escape")
        expect(page.locator("#tableDialog")).to_be_hidden()
        assert page.evaluate("document.activeElement.id") == f"canvas-{lane}"


def test_tab_walks_through_a_lane_in_a_sane_order(page):
    page.locator("[data-lane=average] .grip").focus()
    seen = []
    for _ in range(5):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.className || document.activeElement.id"))
    assert seen == ["fold", "more", "asTable", "pin", "canvas-average"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#tableTitle")).to_contain_text("Machine average")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.whole)])
def test_axe_finds_nothing_serious(scheme, incident, opened):
    page = drawn(opened(incident, color_scheme=scheme))
    expect(page.locator(".finding")).to_have_count(len(CHAIN), timeout=60_000)
    page.keyboard.press("c")
    drag(page, "average", 0.6, 0.8)
    assert samples(page) > 0
    settled(page)
    assert faults(page) == []
    page.keyboard.press("g")
    expect(page.locator("#functionsBox tbody tr").first).to_be_visible(timeout=60_000)
    page.keyboard.press("?")
    expect(page.locator("#helpBody")).to_contain_text("next NIC reset")
    assert faults(page) == []


def faults(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {node['html'][:120]} {node['failureSummary'][:200]}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize("width", [400, 600, 601, 700, 760, 761, 820, 821, 900, 901, 1150])
def test_a_narrow_window_shows_the_verdict_and_the_lanes(width, incident, opened):
    """On both sides of the widths at which the layout changes."""
    page = drawn(opened(incident, viewport={"width": width, "height": 700}))
    assert page.evaluate("document.getElementById('canvas-average').clientWidth") > width / 2.2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CUT_OFF) == []
    page.evaluate(OF_A_LIVE_RECORDING)
    assert page.evaluate(CUT_OFF) == []
    expect(page.locator("#chainBody")).to_contain_text("SICK", timeout=60_000)
    expect(page.get_by_text("SICK", exact=True)).to_be_in_viewport()
    page.locator("[data-finding=nic_resets]").click()
    assert lit(page) == "nic_resets"
    assert page.evaluate("document.getElementById('lanes').clientHeight") > 200
    drag(page, "average", 0.4, 0.6)
    expect(page.locator("#panelNote")).to_contain_text("sample")
    expect(page.get_by_text("SICK", exact=True)).to_be_in_viewport()
    assert page.evaluate(CUT_OFF) == []


#: Buttons that this recording does not need.
OF_A_LIVE_RECORDING = """() => {
  document.getElementById("follow").hidden = document.getElementById("problems").hidden = false;
  document.getElementById("problems").textContent = "12 problems";
}"""
CUT_OFF = """() => [...document.querySelectorAll("#top button, #chain > header button")]
  .filter((each) => each.checkVisibility()).filter((each) => {
    const box = each.getBoundingClientRect();
    return box.left < 0 || box.right > innerWidth || box.top < 0 || box.bottom > innerHeight;
  }).map((each) => each.textContent)"""
OUTSIDE = """() => {
  const header = document.querySelector("#panel > header"), around = header.getBoundingClientRect();
  const all = [...header.querySelectorAll("button, input, select")]
    .filter((control) => !control.closest("[hidden]"));
  const out = all.filter((each) => {
    const box = each.getBoundingClientRect();
    const over = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    return box.width < 5 || box.left < Math.max(around.left, 0) || box.top < around.top
      || box.right > Math.min(around.right, innerWidth) + 0.5
      || box.bottom > Math.min(around.bottom, innerHeight) + 0.5
      || !(over === each || each.contains(over));
  });
  return [all.length, out.map((each) => each.id || each.dataset.do)];
}"""


@pytest.mark.parametrize(
    ("width", "height"),
    [(1024, 700), pytest.param(1280, 720, marks=pytest.mark.whole), (1366, 768)],
)
@pytest.mark.parametrize("compared", [False, True])
def test_every_control_of_the_span_can_be_reached(width, height, compared, incident, opened):
    held = FINDINGS["saturated_core"]["start"]
    words = f"s={held:.3f},{held + 0.5:.3f}&tab=flame&search=mem_cgroup"
    if compared:
        words += f"&b={held - 1:.3f},{held - 0.5:.3f}&view=sandwich&of=vfs_read"
    size = {"width": width, "height": height}
    page = drawn(opened(f"{incident}#{words}", viewport=size))
    expect(page.locator("#panelNote")).to_contain_text("sample", timeout=60_000)
    expect(page.locator("#found")).not_to_be_empty()
    count, outside = page.evaluate(OUTSIDE)
    assert (count, outside) == (13 if compared else 12, [])
    assert page.evaluate("document.getElementById('flameBox').clientHeight") > 60


def test_a_search_in_an_address_is_plain_words_until_somebody_wants_a_pattern(incident, opened):
    held = FINDINGS["saturated_core"]
    span = f"s={held['start']:.3f},{held['end']:.3f}&tab=flame"
    page = drawn(opened(f"{incident}#{span}&search={quote('mem_cgroup_(iter|x)')}"))
    found = page.locator("#found")
    expect(found).to_have_text("not found, matched as plain text", timeout=60_000)
    page.locator("#search").press("Enter")
    expect(found).to_contain_text("%")
    page.locator("#search").fill(r"^(\w+)+!$")  # of which one name is enough to hang a page
    expect(found).to_have_text("not found, matched as plain text")
