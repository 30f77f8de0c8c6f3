"""``python -m tests.docs.pictures [NAME…]`` takes the README's pictures anew, into docs/pictures.

A real Chromium looks at a real `sexton demo` and at a page of `sexton diagnose --html`: nothing in
them is drawn by hand. Look at each before it is committed.
"""

from __future__ import annotations

import base64
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from bench.programs import CHROMIUM
from sexton.explorer.server.tour import INCIDENT

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MOST_BYTES = 200_000
_SIZE = {"width": 1280, "height": 720}
#: Of the tour, by the step's id, and what each picture is called.
STEPS = {
    "average": "average",
    "unfolded": "cores",
    "nic_resets": "reset",
    "saturated_core": "flame",
    "crash_looping_unit": "unit",
    "cure": "cure",
}
OTHERS = ("explorer", "dark", "report")


#: The pixels of a PNG, red, green, blue and opacity, as a data URL.
_PIXELS = """async (png) => {
  const bytes = Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes]));
  const { width, height } = image;
  const pen = new OffscreenCanvas(width, height).getContext("2d");
  pen.drawImage(image, 0, 0);
  const blob = new Blob([pen.getImageData(0, 0, width, height).data]);
  const reader = new FileReader();
  const read = new Promise((go) => { reader.onload = () => go(reader.result); });
  reader.readAsDataURL(blob);
  return [width, height, await read];
}"""


def names() -> list[str]:
    return sorted([*STEPS.values(), *OTHERS])


@contextmanager
def demo() -> Iterator[str]:
    command = [sys.executable, "-m", "sexton", "demo"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


def opened(browser: Browser, address: str, scheme: str = "light") -> Page:
    context = browser.new_context(
        viewport=_SIZE, color_scheme=scheme, reduced_motion="reduce", device_scale_factor=1
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("body[data-drawn=yes]", timeout=120_000)
    return page


def take(page: Page, name: str) -> None:
    """Once all of it is drawn: tiles, samples, the explanation."""
    page.evaluate("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")
    page.wait_for_selector("body[data-drawn=yes]", timeout=120_000)
    page.wait_for_selector("#chainBody [data-finding]", state="attached", timeout=120_000)
    if page.locator("#panel").is_visible():
        expect(page.locator("#panelNote")).to_contain_text("samples", timeout=120_000)
    page.mouse.move(0, 0)
    path = PICTURES / f"{name}.png"
    path.write_bytes(packed(page, page.screenshot()))
    size = path.stat().st_size
    print(f"{path.name}: {size:,} bytes")
    assert size <= MOST_BYTES, f"{path} is larger than {MOST_BYTES:,} bytes"


def packed(page: Page, png: bytes) -> bytes:
    """The same pixels, a quarter smaller than browsers write them: flat colours need no filter."""
    plain = page.context.browser.new_page()
    width, height, url = plain.evaluate(_PIXELS, base64.b64encode(png).decode())
    plain.close()
    pixels = base64.b64decode(url.partition(",")[2])
    rows = bytearray()
    for at in range(0, len(pixels), 4 * width):
        row = bytearray(3 * width)
        for channel in range(3):
            row[channel::3] = pixels[at + channel : at + 4 * width : 4]
        rows += b"\0" + row
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


def walk(page: Page) -> None:
    """Through the tour, a picture at each step that has a name."""
    page.locator("#tour").wait_for()
    while page.locator("#tour").is_visible():
        step = page.evaluate("document.body.dataset.tourStep")
        if step in STEPS:
            take(page, STEPS[step])
        page.keyboard.press("ArrowRight")


def unfolded(page: Page) -> Page:
    """Without the tour, with all lanes."""
    page.locator("#tour").wait_for()
    page.keyboard.press("Escape")
    page.locator("#tour-again").evaluate("(button) => button.blur()")
    return page


def main(wanted: set[str]) -> None:
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as place:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with demo() as address:
            if wanted & set(STEPS.values()):
                walk(opened(browser, address))
            for name, scheme in (("explorer", "light"), ("dark", "dark")):
                if name in wanted:
                    take(unfolded(opened(browser, address, scheme)), name)
        if "report" not in wanted:
            return
        report = Path(place, "incident.html")
        command = [sys.executable, "-m", "sexton", "diagnose", "--html", str(report)]
        lines = [*command, "--from", str(INCIDENT / "recording")]
        subprocess.run(lines, stdout=subprocess.DEVNULL, check=False)
        take(opened(browser, report.as_uri()), "report")


if __name__ == "__main__":
    main(set(sys.argv[1:]) or set(names()))
