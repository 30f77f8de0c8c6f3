"""First picture, frame intervals and the main thread's time per frame, in a real Chromium.

    python -m bench.web.frames RECORDING|http://… [--cores] [--json]

Serves the recording (or uses a running server), opens the page at 1366 x 768, and pans and zooms
with real input events while a tracer records the page's main thread. A *frame* is the time between
two callbacks of the page's animation loop; its *work* is every task of the main thread in it
(script, style, layout, paint), in wall time and (*cpu*) in CPU time, which does not depend on other
programs. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

from bench.programs import CHROMIUM
from bench.table import Measured, against_limit

CATEGORIES = "devtools.timeline,disabled-by-default-devtools.timeline"
FIRST = "performance.getEntriesByName('sexton-first-picture')[0]?.startTime ?? null"
SERVE = "from sexton.cli.main import main; import sys; sys.exit(main())"
LARGEST = "Math.max(...performance.getEntriesByType('resource').map((e) => e.decodedBodySize))"
FLAME = """performance.getEntriesByType("resource").filter((e) => e.name.includes("/api/flame"))
  .map((e) => e.duration).pop() ?? null"""
#: Promises in seconds, milliseconds and megabytes.
_COMMAND_S = 3
_FIRST_S, _FRAME_MS, _SLOW_FRAME_MS, _WORK_MS, _ANSWER_MB, _MEMORY_MB = 1.5, 17, 50, 8, 1, 500
#: A longer gap is a pause between two gestures, not a slow frame.
REST_MS = 400.0


def main() -> int:
    """Print the measurements as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("recording")
    parser.add_argument("--cores", action="store_true", help="with the cores lane expanded")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.recording.startswith("http"):
        result = measured(args.recording, args.cores)
    else:
        result = served(args.recording, args.cores)
    print(json.dumps(result) if args.json else _table(result))
    return 0


def rows(result: dict[str, Any]) -> list[Measured]:
    """Rows of the table; for gestures the worst values."""
    moved = [
        value for name, value in result.items() if name in GESTURES and "interval_p95_ms" in value
    ]
    why = "" if moved else "nothing moved"

    def worst(number: str) -> float | None:
        return max((frame[number] for frame in moved), default=None)

    tail = worst("work_p95_ms")
    work = "explorer: script and paint a frame, median"
    if tail is not None:
        work += f" (95th percentile {tail:.1f} ms)"
    lines = [
        against_limit(
            "explorer: first picture, after the page was opened",
            *(result["first_picture_cold_ms"] / 1000, _FIRST_S, "s", ""),
        ),
        against_limit(
            "explorer: pan and zoom, a frame, median",
            *(worst("interval_median_ms"), _FRAME_MS, "ms", why),
        ),
        against_limit(
            "explorer: pan and zoom, a frame, 95th percentile",
            *(worst("interval_p95_ms"), _SLOW_FRAME_MS, "ms", why),
        ),
        against_limit(work, worst("work_median_ms"), _WORK_MS, "ms", why),
        against_limit(
            "explorer: largest answer", result["largest_answer_kb"] / 1000, _ANSWER_MB, "MB", ""
        ),
    ]
    if "ready_s" in result:
        # The browser already runs when a person opens the printed address.
        seconds = result["ready_s"] + result["first_picture_cold_ms"] / 1000
        what = "explorer: first picture, from the command on"
        lines.append(against_limit(what, seconds, _COMMAND_S, "s", ""))
    if "server_mb" in result:
        lines.append(
            against_limit(
                "explorer: the server's memory", result["server_mb"], _MEMORY_MB, "MB", ""
            )
        )
    return lines


def served(recording: str, cores: bool) -> dict[str, Any]:
    began = time.monotonic()
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, "serve", recording, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        ready_s = time.monotonic() - began
        result = measured(address, cores)
        return {**result, "ready_s": ready_s, "server_mb": _peak_mb(server.pid)}
    finally:
        server.terminate()
        server.wait(10)


def _peak_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024 / 1e6  # type: ignore[index]


def measured(address: str, cores: bool) -> dict[str, Any]:
    """Open the page twice: with a server that just started, and after it has read everything."""
    result: dict[str, Any] = {"load": os.getloadavg()[0]}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name in ("first_picture_cold_ms", "first_picture_warm_ms"):
            page = browser.new_page(viewport={"width": 1366, "height": 768})
            page.goto(address)
            page.locator("body[data-drawn=yes]").wait_for(timeout=60_000)
            result[name] = page.evaluate(FIRST)
            if name.endswith("warm_ms"):
                break
            page.close()
        if cores:
            page.keyboard.press("c")
        page.wait_for_timeout(1500)
        for name, gesture in GESTURES.items():
            result[name] = _of(page, gesture)
        result |= _flame(page)
        result["largest_answer_kb"] = page.evaluate(LARGEST) / 1000
        result["heap_mb"] = page.evaluate("performance.memory.usedJSHeapSize / 2 ** 20")
        browser.close()
    return result


def _flame(page: Page) -> dict[str, float]:
    """Time from request to response, if stacks were recorded."""
    if not page.locator("#canvas-stacks").count():
        return {}
    page.keyboard.press("0")
    page.keyboard.press("s")
    page.locator("#panelBody:not([aria-busy]) #panelNote:has-text('samples')").wait_for()
    took: float = page.evaluate(FLAME)
    page.keyboard.press("Escape")
    return {"flame_ms": took}


def _pan_by_keys(page: Page) -> None:
    for key in ["+"] * 4 + ["ArrowRight"] * 14 + ["ArrowLeft"] * 14:
        page.keyboard.press(key)
        page.wait_for_timeout(90)


# A mouse sends events at least once per frame: each event waits only until the page has handled the
# previous one. (With an extra pause every other frame would be idle and look cheap.)


def _pan_by_mouse(page: Page) -> None:
    box = page.locator("#ruler").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 12)
    page.mouse.down()
    for way in (-1, 1, -1):
        for step in range(60):
            part = step / 60 if way < 0 else 1 - step / 60
            page.mouse.move(box["x"] + box["width"] * (0.8 - 0.6 * part), box["y"] + 12)
    page.mouse.up()


def _zoom_by_wheel(page: Page) -> None:
    box = page.locator("#ruler").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.55, box["y"] + 12)
    for delta in [-60] * 70 + [60] * 70:
        page.mouse.wheel(0, delta)


def _crosshair(page: Page) -> None:
    box = page.locator("#canvas-average").bounding_box()
    assert box is not None
    for step in range(120):
        page.mouse.move(box["x"] + 60 + step * 5, box["y"] + 20)


GESTURES: dict[str, Callable[[Page], None]] = {
    "pan_keys": _pan_by_keys,
    "pan_mouse": _pan_by_mouse,
    "zoom_wheel": _zoom_by_wheel,
    "crosshair": _crosshair,
}


def _of(page: Page, gesture: Callable[[Page], None]) -> dict[str, float]:
    """Intervals and work of the frames of one gesture."""
    session = page.context.new_cdp_session(page)
    events: list[dict[str, Any]] = []
    session.on("Tracing.dataCollected", lambda reply: events.extend(reply["value"]))
    session.send("Tracing.start", {"categories": CATEGORIES, "transferMode": "ReportEvents"})
    page.wait_for_timeout(200)
    gesture(page)
    _end_trace(session, page)
    return frames_of(events)


def _end_trace(session: CDPSession, page: Page) -> None:
    done: list[bool] = []
    session.on("Tracing.tracingComplete", lambda _: done.append(True))
    session.send("Tracing.end")
    until = time.monotonic() + 20
    while not done and time.monotonic() < until:
        page.wait_for_timeout(50)
    session.detach()


def frames_of(events: Sequence[dict[str, Any]]) -> dict[str, float]:
    """A frame starts when the page's animation callback fires."""
    fired = sorted(
        (event["ts"], event["pid"], event["tid"])
        for event in events
        if event["name"] == "FireAnimationFrame"
    )
    if len(fired) < 3:
        return {"frames": len(fired)}
    _, process, thread = fired[0]
    tasks = sorted(
        (event["ts"], event.get("dur", 0), event.get("tdur", 0))
        for event in events
        if event["name"] == "RunTask" and event["pid"] == process and event["tid"] == thread
    )
    intervals, works, cpus = [], [], []
    at = 0
    for (begin, *_), (end, *_) in itertools.pairwise(fired):
        if (end - begin) / 1000 > REST_MS:
            continue
        while at < len(tasks) and tasks[at][0] + tasks[at][1] < begin:
            at += 1
        work = cpu = 0.0
        here = at
        while here < len(tasks) and tasks[here][0] < end:
            first, lasts, spent = tasks[here]
            inside = max(min(first + lasts, end) - max(first, begin), 0)
            work += inside
            cpu += spent * inside / lasts if lasts else 0
            here += 1
        intervals.append((end - begin) / 1000)
        works.append(work / 1000)
        cpus.append(cpu / 1000)
    return {
        "frames": len(intervals),
        "interval_median_ms": statistics.median(intervals),
        "interval_p95_ms": _percentile(intervals, 95),
        "work_median_ms": statistics.median(works),
        "work_p95_ms": _percentile(works, 95),
        "cpu_median_ms": statistics.median(cpus),
        "cpu_p95_ms": _percentile(cpus, 95),
    }


def _percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def _table(result: dict[str, Any]) -> str:
    lines = []
    for name, value in result.items():
        if isinstance(value, dict):
            words = "  ".join(
                f"{key.removesuffix('_ms')} {item:.1f}" for key, item in value.items()
            )
            lines.append(f"{name:24} {words}")
        else:
            lines.append(f"{name:24} {value:.1f}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
