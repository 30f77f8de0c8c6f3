"""A real Chromium, the page in it, and everything that must not happen there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from bench.programs import CHROMIUM, NO_CHROMIUM
from tests.explorer.server.browser.looking import told_address

INCIDENT = Path(__file__).parents[3] / "incidents/whole_chain-6.18-v1/recording"
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(event.violatedDirective + " " + event.blockedURI));
"""
Opened = Callable[..., Page]
#: Playwright waits for 5 s, which is little on a machine that does other work.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Opened]:
    """Opens addresses; at the end of the test nothing may have gone wrong in any of them."""
    pages: list[tuple[Page, list[str], list[str]]] = []

    def open_(address: str, *, faulty: bool = False, **how: Any) -> Page:
        """A `faulty` server's answers are noted in the console, and are what the test is about."""
        how = {"viewport": {"width": 1366, "height": 768}, "reduced_motion": "reduce", **how}
        context = chromium.new_context(**how)
        context.set_default_timeout(60_000)
        page = context.new_page()
        texts: list[str] = []
        wrong: list[str] = []
        page.on("request", lambda request: texts.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))

        def noted(said: ConsoleMessage) -> None:
            expected = faulty and said.text.startswith("Failed to load resource")
            if said.type == "error" and not expected:
                wrong.append(said.text)

        page.on("console", noted)
        page.add_init_script(WATCH)
        page.goto(address)
        pages.append((page, texts, wrong))
        return page

    yield open_
    for page, lines, wrong in pages:
        home = urlsplit(page.url).netloc
        assert {urlsplit(line).netloc for line in lines if not line.startswith("data:")} == {home}
        assert wrong == []
        assert page.evaluate("window.violations") == []
        page.context.close()


@pytest.fixture(scope="session")
def incident() -> Iterator[str]:
    """The address of a real `sexton serve` over a recording of a real kernel."""
    with told_address("serve", str(INCIDENT), "--port", "0") as address:
        yield address
