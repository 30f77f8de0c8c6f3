"""What the recorder gives up is said on its terminal at once, and once."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.cli.progress import recorder_line


def status(*notes: tuple[float, str, str]) -> dict[str, Any]:
    return {
        "alarms": 0, "at": 2.0, "since": 1.0, "held_bytes": 1, "rss_bytes": 1, "problem": "",
        "cpu_percent_of_a_core": 0.5,
        "notes": [{"wall_s": at, "kind": kind, "detail": words} for at, kind, words in notes],
    }  # fmt: skip


@pytest.mark.parametrize("terminal", [True, False])
def test_it_is_said_at_once_and_once(terminal: bool, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    shed = (5.0, "shed", "stack decoding paused; samples kept: 3.1 % of a core, limit 2.0 %")
    with recorder_line("/r") as tick:
        assert tick is not None
        tick(status((4.0, "detail", "a note for the recording")))
        tick(status(shed))
        restored = (6.0, "restored", "perf.decode resumed")
        tick(status(shed, restored))
        tick(status(shed, restored, (1.0, "over", "CPU time over its limit")))  # the clock jumped
    said = capsys.readouterr().err
    assert said.count("stack decoding paused") == 1
    assert said.count("perf.decode resumed") == 1
    assert said.count("CPU time over") == 1
    assert "a note for the recording" not in said
