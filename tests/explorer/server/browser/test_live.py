"""The page beside a recorder that runs, on this kernel, with cgroups that have hostile names."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from tests.explorer.server.browser.looking import drawn, settled, view_of
from tests.support.zombies import zombies

pytestmark = [pytest.mark.browser, pytest.mark.root]
#: A directory can be called so; only a slash cannot be in it.
HOSTILE = '<img src=x onerror="alert(%d)"><script>alert(2)<b>'
#: The recorder writes every five seconds.
PATIENCE_MS = 20_000


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Path]:
    """A recording that grows."""
    place = tmp_path / "recording"
    command = [sys.executable, "-m", "sexton", "record", str(place), "--no-ring", "--no-probe"]
    recorder = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert recorder.stderr is not None
        assert "recording into" in recorder.stderr.readline()
        yield place
    finally:
        recorder.terminate()
        recorder.communicate(timeout=120)


@pytest.fixture
def served(recording: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "sexton", "serve", str(recording), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        at = server.stdout.readline().strip()
        for _ in range(100):
            with urlopen(at + "api/recording", timeout=10) as answer:
                if json.load(answer)["start"] is not None:
                    break
            time.sleep(0.2)
        yield at
    finally:
        server.terminate()
        server.communicate(timeout=120)


def test_a_recorder_is_followed_and_hostile_names_of_its_kernel_are_text(
    recording: Path, served: str, opened
):
    mark = [sys.executable, "-m", "sexton", "recording", "mark", str(recording), "<b>job 17</b>"]
    page: Page = drawn(opened(served))
    expect(page.locator("#follow")).to_have_attribute("aria-pressed", "true")
    _, before = view_of(page)
    events, lane = page.locator("[data-lane=events]"), page.locator("[data-lane=memcgs]")
    with zombies(1) as maker:
        maker.make(8, HOSTILE)
        subprocess.run(mark, check=True, capture_output=True)
        hostile = lane.locator(".of[title*='<img src=x onerror']")
        expect(hostile.first).to_be_attached(timeout=PATIENCE_MS)
    expect(events.locator(".reading")).to_contain_text("mark", timeout=PATIENCE_MS)
    settled(page)
    _, after = view_of(page)
    assert after > before + 2
    rows = page.locator("#tableBody")
    for of, words in ((events, ["<b>job 17</b>"]), (lane, ["<img src=x onerror", "<script>"])):
        of.locator(".asTable").click()
        for word in words:
            expect(rows).to_contain_text(word)
        page.keyboard.press("Escape")
    # A dialog or a fault would have been noticed by `opened`; and nothing became an element.
    assert page.evaluate("document.querySelectorAll('img, body script, #tableBody b').length") == 0
