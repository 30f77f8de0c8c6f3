"""A computation in a child process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from sexton.replay.child import Child


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_result_larger_than_a_pipe_comes_back():
    with Child(lambda: np.arange(1_000_000)) as child:
        found = child.result()
    assert found is not None
    assert found.sum() == 499_999_500_000


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda: 1 // 0, id="fails"),
        pytest.param(lambda: os.kill(os.getpid(), signal.SIGKILL), id="killed"),
        pytest.param(lambda: lambda: 0, id="cannot be sent"),
    ],
)
def test_a_child_that_fails_has_no_result_and_prints_nothing(
    work: object, capfd: pytest.CaptureFixture[str]
):
    with Child(work) as child:  # type: ignore[arg-type]
        assert child.result() is None
    assert capfd.readouterr() == ("", "")


def test_no_child_is_left_when_its_result_is_not_wanted(tmp_path: Path):
    place = tmp_path / "pid"

    def work() -> None:
        place.write_text(str(os.getpid()))
        time.sleep(600)

    with Child(work):
        while not place.exists() or not place.read_text():
            time.sleep(0.01)
        pid = int(place.read_text())
        assert _is_running(pid)
    assert not _is_running(pid)


def test_without_a_free_process_there_is_no_result(monkeypatch: pytest.MonkeyPatch):
    def refused() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    with Child(lambda: 1) as child:
        assert child.result() is None


def test_a_child_that_is_stuck_has_no_result():
    with Child(lambda: time.sleep(600)) as child:
        assert child.result(most_s=0.1) is None
