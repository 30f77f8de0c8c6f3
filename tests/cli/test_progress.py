"""The line that moves is for people: silent when piped, and gone when the work is."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stderr

import pytest

from sexton.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_work_that_lasts_is_told_and_the_line_is_wiped():
    terminal = Terminal()
    with redirect_stderr(terminal), progress.working("reading", after_s=0):
        for _ in range(1000):
            if "reading: " in terminal.getvalue():
                break
            time.sleep(0.01)
    assert "reading: " in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_work_that_is_soon_done_says_nothing():
    terminal = Terminal()
    with redirect_stderr(terminal), progress.working("reading", after_s=60):
        pass
    assert terminal.getvalue() == ""


def test_a_failure_passes_through():
    with (
        redirect_stderr(Terminal()),
        pytest.raises(KeyError),
        progress.working("reading", after_s=0),
    ):
        raise KeyError("x")


def test_nothing_is_said_to_a_pipe():
    pipe = io.StringIO()
    with redirect_stderr(pipe), progress.working("reading", after_s=0):
        time.sleep(0.05)
    assert pipe.getvalue() == ""
