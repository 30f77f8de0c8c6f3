"""`sexton top`: one plain screen in a pipe, a live one on a terminal that is left as it was."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from sexton.cli.main import main

COMMAND = [sys.executable, "-m", "sexton", "top", "--interval", "0.3"]
ALTERNATE_ON, ALTERNATE_OFF = b"\x1b[?1049h", b"\x1b[?1049l"


def test_piped_it_prints_plain_screens_and_ends():
    ended = subprocess.run(
        [*COMMAND, "--frames", "2"],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "90", "LINES": "30", "FORCE_COLOR": "1"},
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\x1b" not in ended.stdout
    assert ended.stdout.count(" busy on average") == 2
    assert ended.stdout.count("zombies  ") == 2
    assert max(len(line) for line in ended.stdout.splitlines()) <= 90


def test_the_first_piped_screen_shows_how_the_number_of_zombies_changes():
    if "?" in _zombies(["--interval", "0.3"]):
        pytest.skip("zombies cannot be counted here")
    assert re.search(r"steady for|[+-][0-9,]+ in ", _zombies(["--interval", "1"]))


def _zombies(arguments: list[str]) -> str:
    ended = subprocess.run(
        [*COMMAND[:4], *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith(" zombies  ")]
    return line


def test_the_task_that_burns_is_on_the_screen():
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with contextlib.suppress(PermissionError):  # so that a busy machine gives it a core
            os.sched_setscheduler(burner.pid, os.SCHED_RR, os.sched_param(1))
        # Another test may burn the same core for a moment: one of sixty frames has to show it.
        frames = [*COMMAND, "--frames", "60"]
        with subprocess.Popen(frames, stdout=subprocess.PIPE, text=True) as top:
            assert top.stdout is not None
            shown = any(f"[{burner.pid}]" in line for line in top.stdout)
            top.kill()
    finally:
        burner.kill()
        burner.wait()
    assert shown


@pytest.mark.parametrize("wrong", [["--interval", "0"], ["--frames", "none"], ["--root", "/nope"]])
def test_wrong_arguments_are_one_line(wrong: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["top", *wrong]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("end", ["q", signal.SIGTERM, signal.SIGINT])
def test_on_a_terminal_it_draws_and_puts_everything_back(end: str | signal.Signals):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    child = subprocess.Popen(
        COMMAND,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"},
        start_new_session=True,
    )
    seen = _until(ours, b"zombies")
    assert ALTERNATE_ON in seen
    if isinstance(end, str):
        os.write(ours, end.encode())
    else:
        child.send_signal(end)
    seen += _until(ours, ALTERNATE_OFF)
    status = child.wait(timeout=120)
    after = termios.tcgetattr(theirs)
    os.close(ours)
    os.close(theirs)
    assert status == 0
    assert ALTERNATE_OFF in seen
    assert b"Traceback" not in seen
    assert after == before


def _until(descriptor: int, mark: bytes) -> bytes:
    seen = b""
    deadline = time.monotonic() + 60
    while mark not in seen and time.monotonic() < deadline:
        ready, _, _ = select.select([descriptor], [], [], 0.2)
        if ready:
            seen += os.read(descriptor, 65536)
    return seen
