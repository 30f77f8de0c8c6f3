"""Flame graphs as SVG in a real browser: zoom, search, keys; and that nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.reports.svg.flame_picture import boxes_of, difference_boxes
from sexton.reports.svg.flame_svg import Words, flame_svg
from tests.cli.profile.made import HOSTILE, difference_of, flame_of
from tests.support.browser import Page, browser, needs_chromium

pytestmark = needs_chromium
SOME = {
    "kubelet;main;k:do_syscall_64;k:vfs_read": 600,
    "kubelet;main;k:do_syscall_64": 100,
    "kubelet;other": 200,
    "python3;main": 100,
    **{f"odd;{name}": 10 for name in HOSTILE},
}
BOX = "[...document.querySelectorAll('g[data-d]')].find((g) => g.textContent.startsWith('{}'))"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as opened:
        yield opened


@pytest.fixture
def flame(page: Page, tmp_path: Path) -> Page:
    made = tmp_path / "flame.svg"
    made.write_text(flame_svg(boxes_of(flame_of(SOME)), Words(HOSTILE[0], HOSTILE[1])))
    return opened(page, made)


def opened(page: Page, path: Path, **how) -> Page:
    page.requests.clear()
    page.errors.clear()
    page.open(path, **how)
    assert page.requests == [path.resolve().as_uri()]
    assert page.errors == []
    return page


def width(page: Page, name: str) -> float:
    return page.run(f"Number({BOX.format(name)}.querySelector('rect').getAttribute('width'))")


def is_shown(page: Page, name: str) -> bool:
    return page.run(f"{BOX.format(name)}.getAttribute('display') !== 'none'")


def click(page: Page, name: str) -> None:
    place = page.run(
        f"(() => {{ const r = {BOX.format(name)}.querySelector('rect'); r.scrollIntoView({{block: "
        "'center'}); const b = r.getBoundingClientRect();"
        "return [b.left + b.width / 2, b.top + 5]; })()"
    )
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        page.mouse(kind, *place)


def text(page: Page, which: str) -> str:
    return page.run(f"document.querySelector('{which}').textContent")


def test_a_click_zooms_and_reset_goes_back(flame: Page):
    before = width(flame, "kubelet")
    click(flame, "kubelet")
    assert width(flame, "kubelet") > before
    assert width(flame, "kubelet") == pytest.approx(width(flame, "all"), abs=1)
    assert not is_shown(flame, "python3")
    assert "900 samples" in text(flame, ".told")
    flame.run("document.querySelector('.reset').click()")
    assert is_shown(flame, "python3")
    assert width(flame, "kubelet") == pytest.approx(before, abs=0.1)
    assert flame.errors == []


def test_pointing_at_a_box_tells_its_counts_and_share(flame: Page):
    click(flame, "vfs_read")
    message = text(flame, ".told")
    total = sum(SOME.values())
    assert "600 samples" in message
    assert f"{100 * 600 / total:.1f} %" in message


def test_search_marks_what_matches_and_tells_its_share(flame: Page):
    flame.run("document.querySelector('.search').focus()")
    flame.type("^(vfs_read|do_sys)")
    total = sum(SOME.values())
    assert text(flame, ".found") == f"{100 * 700 / total:.1f} % in 2 boxes"  # nested: once
    assert flame.run("document.querySelectorAll('g.hit').length") == 2
    flame.key("Escape")
    assert flame.run("document.querySelectorAll('g.hit').length") == 0


@pytest.mark.parametrize("typed", ["(", "[a-", "</script>", "\\", "*"])
def test_a_search_that_is_no_expression_is_looked_for_as_it_is(flame: Page, typed: str):
    flame.run("document.querySelector('.search').focus()")
    flame.type(typed)
    assert text(flame, ".found") != ""
    assert flame.errors == []


def test_keys_walk_the_graph(flame: Page):
    flame.run("document.querySelector('svg.flame').focus()")
    flame.run("document.querySelector('.flip').click()")  # both now run the same way as the other
    flame.run("document.querySelector('.flip').click()")
    flame.run("document.querySelector('svg.flame').focus()")
    flame.key("ArrowUp")
    assert text(flame, ".told").startswith("kubelet")
    flame.key("ArrowUp")
    assert text(flame, ".told").startswith("main")
    flame.key("ArrowRight")
    assert text(flame, ".told").startswith("other")
    flame.key("Enter")
    assert not is_shown(flame, "python3")
    flame.key("Escape")
    assert is_shown(flame, "python3")


def test_names_are_shown_as_text_and_run_nothing(flame: Page):
    shown = flame.run(
        "[...document.querySelectorAll('g[data-d] > title')].map((each) => each.textContent)"
    )
    assert any(item.startswith("</script><script>alert(1)\n") for item in shown)
    assert any(item.startswith("nul\\x00nul\n") for item in shown)
    assert flame.run("document.querySelectorAll('script:not([type])').length") == 1


def test_text_never_leaves_its_box(flame: Page):
    wide = flame.run(
        "[...document.querySelectorAll('g[data-d]')].filter((g) => {"
        "const text = g.querySelector('text'), rect = g.querySelector('rect').getBBox();"
        "return text.textContent && text.getBBox().width > rect.width; }).length"
    )
    assert wide == 0


def test_a_difference_can_be_seen_from_either_side(page: Page, tmp_path: Path):
    made = tmp_path / "difference.svg"
    found = difference_of({"a;x": 90, "a;y": 10}, {"a;x": 10, "a;y": 90}, 0.001)
    made.write_text(flame_svg(difference_boxes(found), Words("t")))
    opened(page, made)
    after = width(page, "y")
    page.run("document.querySelector('.side').click()")  # both
    both = width(page, "y")
    page.run("document.querySelector('.side').click()")  # before
    before = width(page, "y")
    assert before < both < after
    assert both == pytest.approx((before + after) / 2, rel=0.05)


def test_the_picture_is_there_without_scripts(page: Page, tmp_path: Path):
    made = tmp_path / "flame.svg"
    made.write_text(flame_svg(boxes_of(flame_of(SOME)), Words("t")))
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.go(made)
        page.picture(tmp_path / "flame.png")
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)
    assert (tmp_path / "flame.png").stat().st_size > 5000
    assert page.run("document.querySelector('.bar') === null && document.title !== null")
    assert is_shown(page, "kubelet")
