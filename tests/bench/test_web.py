"""The explorer's bench: what it makes of its numbers, and what it says without a browser."""

from __future__ import annotations

import argparse

import pytest

from bench.recorder.plan import Plan, add_options, plan
from bench.web import lanes, report
from bench.web.frames import frames_of, rows

FRAMES = {
    "interval_median_ms": 16.7,
    "interval_p95_ms": 33.0,
    "work_median_ms": 5.0,
    "work_p95_ms": 12.0,
}
TOLD = {
    "first_picture_cold_ms": 1200.0,
    "largest_answer_kb": 900.0,
    "pan_keys": FRAMES,
    "zoom_wheel": {**FRAMES, "interval_p95_ms": 60.0},
}


def planned() -> Plan:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return plan(parser.parse_args(["--hours", "0.1", "--cores", "2"]))


def test_of_the_gestures_the_worst_is_held_against_the_promise():
    missed = [row.what for row in rows(TOLD) if row.missed]
    assert missed == ["explorer: pan and zoom, a frame, 95th percentile"]
    assert "95th percentile 12.0 ms" in rows(TOLD)[3].what


def test_a_page_on_which_nothing_moved_has_kept_no_promise():
    still = {**TOLD, "pan_keys": {"frames": 1}, "zoom_wheel": {"frames": 2}}
    assert [row.unmeasured for row in rows(still)] == [False, True, True, True, False]


def test_a_server_that_was_measured_has_its_memory_told():
    assert rows({**TOLD, "server_mb": 600.0})[-1].missed


def test_work_is_counted_in_the_frame_in_which_it_was_done():
    fired = [
        {"name": "FireAnimationFrame", "ts": at * 1000, "pid": 1, "tid": 1}
        for at in (0, 16, 32, 48)
    ]
    task = {"name": "RunTask", "ts": 17_000, "dur": 4000, "tdur": 3000, "pid": 1, "tid": 1}
    elsewhere = {**task, "tid": 2, "dur": 9000}
    found = frames_of([*fired, task, elsewhere])
    assert found["frames"] == 3
    assert found["interval_median_ms"] == 16
    assert found["work_p95_ms"] == 4
    assert found["cpu_p95_ms"] == 3
    assert found["work_median_ms"] == 0


def test_without_a_recording_or_a_browser_nothing_is_kept(monkeypatch: pytest.MonkeyPatch):
    taken = []
    monkeypatch.setattr(report, "generate", lambda *_: "no room")
    report.measure(planned(), taken.append)
    assert [item.unmeasured for item in taken] == [True, True]
    assert all("no room" in item.here for item in taken)

    numbers = {"read_s": 0.5, "tile_ms": 1.0, "all_mb": 200.0, "flame_s": 0.1}
    monkeypatch.setattr(report, "generate", lambda *_: {})
    monkeypatch.setattr(lanes, "rounds", lambda _: numbers)
    monkeypatch.setattr(report, "_without_browser", lambda: "needs chromium")
    taken.clear()
    report.measure(planned(), taken.append)
    assert [item.what for item in taken if item.unmeasured] == [
        "explorer: first picture and frames"
    ]
    assert taken[-1].what == lanes.FLAME
