"""A command ends though a thread of it cannot, and signals reach it as if it had no parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sexton.cli.parent import needs_child

#: Runs the rest of its arguments as the body of a command, in a child.
RUN = """
import os, signal, sys, threading, time
from sexton.cli.parent import run_in_child
def command():
    scope = {"status": 0}
    exec(sys.argv[1], globals(), scope)
    return scope["status"]
sys.exit(run_in_child(command))
"""
#: A thread that the kernel does not let go, not even by SIGKILL: frozen by the freezer of v1.
STUCK = """
def hang():
    open(sys.argv[2] + "/tasks", "w").write(str(threading.get_native_id()))
    time.sleep(1e6)
threading.Thread(target=hang, name="sexton-source disk", daemon=True).start()
while not open(sys.argv[2] + "/tasks").read():
    time.sleep(0.01)
open(sys.argv[2] + "/freezer.state", "w").write("FROZEN")
print("the verdict", os.getpid(), flush=True)
status = 7
"""


def start(body: str, *more: str, **options) -> subprocess.Popen[str]:
    argv = [sys.executable, "-B", "-c", RUN, body, *more]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **options)


@pytest.fixture
def freezer() -> Iterator[Path]:
    place = Path("/sys/fs/cgroup/freezer") / f"sexton-test-{os.getpid()}"
    if not place.parent.joinpath("tasks").exists():
        pytest.skip("no freezer of cgroup v1")
    place.mkdir()
    try:
        yield place
    finally:
        place.joinpath("freezer.state").write_text("THAWED")
        deadline = time.monotonic() + 30
        while place.exists() and time.monotonic() < deadline:
            with suppress(OSError):
                place.rmdir()


@pytest.mark.root
def test_a_command_ends_though_the_kernel_holds_one_of_its_threads(freezer: Path):
    with start(STUCK, str(freezer)) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert said[:2] == ["the", "verdict"]
        assert process.wait(60) == 7
        left = Path(f"/proc/{said[2]}")
        assert left.exists(), "it is left behind"
        freezer.joinpath("freezer.state").write_text("THAWED")
        deadline = time.monotonic() + 60
        while left.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left.exists(), "and ends once the kernel lets it"


@pytest.mark.parametrize("status", [0, 1, 3, 130])
def test_its_exit_status_is_the_commands(status: int):
    with start(f"status = {status}") as process:
        assert process.wait(60) == status


def test_a_command_that_is_killed_is_reported_as_a_shell_would():
    with start("os.kill(os.getpid(), signal.SIGKILL)") as process:
        assert process.wait(60) == 128 + signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_command_once(number: signal.Signals):
    body = f"""
came = []
signal.signal({int(number)}, lambda number, frame: came.append(number))
print("ready", flush=True)
while not came:
    time.sleep(0.01)
time.sleep(0.2)
status = len(came)
"""
    with start(body) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(60) == 1


def test_ctrl_c_on_a_terminal_reaches_both_and_is_not_passed_on_again():
    body = """
came = []
signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
print("ready", flush=True)
while not came:
    time.sleep(0.01)
time.sleep(0.2)
status = len(came)
"""
    ours, terminal = os.openpty()
    try:
        with start(body, stdin=terminal, preexec_fn=_controlling) as process:
            assert process.stdout is not None
            process.stdout.readline()
            os.write(ours, b"\x03")
            assert process.wait(60) == 1
    finally:
        os.close(ours)
        os.close(terminal)


def _controlling() -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_command_does_not_outlive_a_parent_that_is_killed():
    with start("print(os.getpid(), flush=True); time.sleep(1e6)") as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        deadline = time.monotonic() + 60
        while _runs(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["diagnose"], True),
        (["fix", "plan"], True),
        (["diagnose", "--from", "x"], True),
        (["serve"], True),
        (["recording", "verify", "x"], True),
        (["completion"], False),
        (["--version"], False),
        ([], False),
        (["record", "/r"], True),
    ],
)
def test_only_commands_that_read_a_node_or_files_from_elsewhere_run_in_a_child(
    arguments: list[str], wanted: bool
):
    assert needs_child(arguments) is wanted


def test_a_recorder_that_a_service_manager_started_stays_its_main_process(monkeypatch):
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert not needs_child(["record", "/r"])
