"""Flame graphs as SVG in a real browser: names are text, and nothing is run or loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.reports.svg.flame_picture import boxes_of
from sexton.reports.svg.flame_svg import Words, flame_svg
from tests.cli.profile.made import HOSTILE, flame_of
from tests.support.browser import Page, browser, needs_chromium

pytestmark = needs_chromium
SOME = {
    "kubelet;main;k:do_syscall_64;k:vfs_read": 600,
    "kubelet;main;k:do_syscall_64": 100,
    "kubelet;other": 200,
    "python3;main": 100,
    **{f"odd;{name}": 10 for name in HOSTILE},
}


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as opened:
        yield opened


@pytest.fixture
def flame(page: Page, tmp_path: Path) -> Page:
    made = tmp_path / "flame.svg"
    made.write_text(flame_svg(boxes_of(flame_of(SOME)), Words(HOSTILE[0], HOSTILE[1])))
    page.requests.clear()
    page.errors.clear()
    page.open(made)
    assert page.requests == [made.resolve().as_uri()]
    assert page.errors == []
    return page


def test_names_are_shown_as_text_and_run_nothing(flame: Page):
    shown = flame.run(
        "[...document.querySelectorAll('g.boxes > g > title')].map((each) => each.textContent)"
    )
    assert any(item.startswith("</script><script>alert(1)\n") for item in shown)
    assert any(item.startswith("nul\\x00nul\n") for item in shown)
    assert flame.run("document.querySelectorAll('script').length") == 0


def test_text_never_leaves_its_box(flame: Page):
    wide = flame.run(
        "[...document.querySelectorAll('g.boxes > g')].filter((g) => {"
        "const text = g.querySelector('text'), rect = g.querySelector('rect').getBBox();"
        "return text.textContent && text.getBBox().width > rect.width; }).length"
    )
    assert wide == 0
