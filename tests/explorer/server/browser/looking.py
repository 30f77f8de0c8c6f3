"""How tests look at the page: wait until it is drawn, read a pixel, point at a moment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page

#: The page's own colours (theme.js), as the test has them a second time on purpose.
STALL = {"light": (213, 94, 0), "dark": (255, 122, 46)}


@contextmanager
def told_address(*arguments: str) -> Iterator[str]:
    """What a real `sexton` command that serves prints, until it is ended."""
    server = subprocess.Popen(
        [sys.executable, "-m", "sexton", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address
        yield address
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()


def drawn(page: Page) -> Page:
    """Once every lane that can be seen shows its numbers."""
    page.locator("body[data-drawn=yes]").wait_for(timeout=60_000)
    return page


def settled(page: Page) -> Page:
    """Also after a move: two frames later the page has said whether it is complete."""
    page.evaluate("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")
    return drawn(page)


def pixel(page: Page, lane: str, x: float, y: float) -> tuple[int, int, int]:
    """The colour at a share of a lane's width and height: its picture, and what lies over it."""
    script = """([lane, x, y]) => {
      const over = document.getElementById("canvas-" + lane);
      const picture = over.parentElement.querySelector(".picture");
      const box = over.getBoundingClientRect(), moved = picture.getBoundingClientRect();
      const at = (canvas, left, wide) => Array.from(canvas.getContext("2d").getImageData(
        Math.floor((Math.floor(box.width * x) + box.left - left) / wide * canvas.width + 1e-3),
        Math.floor(canvas.height * y), 1, 1).data);
      const below = at(picture, moved.left, moved.width), above = at(over, box.left, box.width);
      return below.slice(0, 3).map((each, at) => each + (above[at] - each) * above[3] / 255);
    }"""
    red, green, blue = (round(item) for item in page.evaluate(script, [lane, x, y]))
    return red, green, blue


def near(one: tuple[int, ...], other: tuple[int, ...], most: int = 6) -> bool:
    return all(abs(a - b) <= most for a, b in zip(one, other, strict=True))


def view_of(page: Page) -> tuple[float, float]:
    """The span that the address holds, once it does."""
    address(page)
    start, end = page.evaluate(
        "new URLSearchParams(location.hash.slice(1)).get('v').split(',').map(Number)"
    )
    return start, end


def address(page: Page) -> str:
    """The whole of it, once it has come to rest: it is written a quarter of a second later."""
    before = ""
    for _ in range(40):
        page.wait_for_timeout(300)
        if page.url == before and "v=" in before:
            return before
        before = page.url
    raise AssertionError(f"the address does not come to rest: {before}")


def share_of(page: Page, time: float) -> float:
    """Where a moment is, as a share of the lanes' width."""
    start, end = view_of(page)
    return (time - start) / (end - start)


def drag(page: Page, lane: str, first: float, last: float) -> None:
    """Over a lane, from one share of its width to another."""
    box = page.locator(f"#canvas-{lane}").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + first * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + (first + last) / 2 * box["width"], y)
    page.mouse.move(box["x"] + last * box["width"], y)
    page.mouse.up()
