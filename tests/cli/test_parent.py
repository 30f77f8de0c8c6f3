"""A command ends though a thread of it cannot, and signals reach it as if it had no parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sexton import sandbox
from sexton.cli import parent
from sexton.cli.parent import needs_child
from tests.support.hung import hung_mount

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


#: The program itself, with a shorter patience.
IMPATIENT = """
import sys
from sexton import sandbox
from sexton.cli import parent
from sexton.cli.main import command
parent.SILENT_S = float(sys.argv.pop(1))
command()
"""
#: Commands that read or write a path of the user's; `@` is on a hung mount.
ON_A_MOUNT = [
    "diagnose --from @", "diagnose @", "diagnose --root @", "diagnose --seconds 1 --html @",
    "diagnose --config @", "why core 1 --from @", "zombies @", "zombies --root @",
    "fix plan --from @", "fix status --state @", "audit --root @", "audit --policy @",
    "audit --since @", "gate --root @", "gate --policy @", "gate --seconds 1 --out @.json",
    "top --root @", "profile @", "profile flame @", "record @", "record --preflight @",
    "recording info @", "recording verify @", "recording mark @ text",
    "recording export @ --out /tmp/none", "serve @ --port 0", "serve --token-file @ --port 0",
    "sources --root @", "config --config @",
]  # fmt: skip


def on_a_mount(words: str, place: Path, patience_s: float) -> tuple[subprocess.Popen[str], str]:
    """Start a command with a path on a mount of its own that does not answer."""
    path = f"{place}/it"
    argv = [word.replace("@", path) for word in words.split()]
    run = [sys.executable, "-B", "-c", IMPATIENT, str(patience_s), *argv]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    return subprocess.Popen(run, stderr=subprocess.PIPE, text=True, **streams), path


@pytest.mark.root
@pytest.mark.parametrize("words", ON_A_MOUNT)
def test_a_path_on_a_hung_mount_is_one_line_that_names_it(words: str, tmp_path: Path):
    with hung_mount(tmp_path) as held:
        process, path = on_a_mount(words, Path(held.replace("self", str(os.getpid()))), 1.0)
        assert process.wait(60) == 2
    with process:
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()
    (line,) = [line for line in lines if "no answer" in line]
    assert path.removesuffix("/it") in line
    assert "is its mount hung?" in line


@pytest.mark.root
def test_ctrl_c_ends_a_command_that_is_stuck_before_its_patience_does(tmp_path: Path):
    with hung_mount(tmp_path) as held:
        place = Path(held.replace("self", str(os.getpid())))
        process, path = on_a_mount("recording info @", place, 3600.0)
        inside = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(OSError, IndexError):
                child = inside.read_text().split()[0]
                if Path(f"/proc/{child}/wchan").read_text().startswith("fuse"):
                    break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    with process:
        assert process.stderr is not None
        assert path in process.stderr.read()


def test_a_command_that_was_asked_to_end_does_not_wait_for_a_reader():
    body = """
print("ready", flush=True)
signal.signal(signal.SIGTERM, lambda *_: None)
reader, writer = os.pipe()
while True:
    os.write(writer, b"x" * 4096)
"""
    with start(body) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM


#: A call that is stuck, and what remains to be done once it returns.
REMAINING = """
import os, signal, sys, threading, time
from sexton.cli.parent import run_in_child
def hang():
    open(sys.argv[1] + "/tasks", "w").write(str(threading.get_native_id()))
    open(sys.argv[1] + "/freezer.state", "w").write("FROZEN")
    time.sleep(0.001)
def command():
    global thread
    thread = threading.Thread(target=hang, daemon=True)
    thread.start()
    while not open(sys.argv[1] + "/tasks").read():
        time.sleep(0.01)
    print("the verdict")
    sys.stdout.flush()
    return 7
def remaining():
    thread.join()
    open(sys.argv[2], "w").write("removed")
sys.exit(run_in_child(command, lambda: remaining))
"""


@pytest.mark.root
def test_what_is_left_behind_holds_no_pipe_and_removes_what_it_made(freezer: Path, tmp_path: Path):
    done = tmp_path / "done"
    argv = [sys.executable, "-B", "-c", REMAINING, str(freezer), str(done)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (7, "the verdict\n")
    assert not done.exists()
    freezer.joinpath("freezer.state").write_text("THAWED")
    deadline = time.monotonic() + 60
    while not done.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert done.exists()


@pytest.mark.parametrize("hard", [None, 200])
def test_the_table_of_open_files_has_its_size_before_there_are_threads(hard: int | None):
    """Or the kernel waits for every core when it grows."""
    code = """
import resource, sys
from sexton.cli import main
hard = int(sys.argv[1]) or resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 100), hard))
main._make_room_for_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], fd_size())
"""
    fd_size = """
def fd_size():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("FDSize:"))
"""
    ended = subprocess.run(
        [sys.executable, "-c", fd_size + code, str(hard or 0)], stdout=subprocess.PIPE, check=True
    )
    soft, size = map(int, ended.stdout.split())
    assert soft == (hard or 4096)
    assert size >= soft


def test_a_recorder_has_room_for_its_files_from_the_start(tmp_path: Path):
    words = ["record", str(tmp_path / "kept"), "--no-probe", "--no-trace", "--no-ring"]
    recorder = subprocess.Popen([sys.executable, "-m", "sexton", *words])
    try:
        while not (tmp_path / "kept/status.json").exists():
            assert recorder.poll() is None
            time.sleep(0.05)
        task = Path(f"/proc/{recorder.pid}/task/{recorder.pid}")
        (child,) = task.joinpath("children").read_text().split()
        status = Path(f"/proc/{child}/status").read_text()
        (size,) = (line for line in status.splitlines() if line.startswith("FDSize:"))
        assert int(size.split()[1]) >= 4096
    finally:
        recorder.terminate()
        recorder.wait()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["diagnose"], True),
        (["fix", "plan"], True),
        (["diagnose", "--from", "x"], True),
        (["serve"], True),
        (["recording", "verify", "x"], True),
        (["config"], True),
        (["demo"], True),
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


def test_a_recorder_can_be_left_under_a_service_manager_but_not_as_a_containers_first_process(
    monkeypatch,
):
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert needs_child(["record", "/r"])
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert not needs_child(["record", "/r"])


@pytest.mark.parametrize(
    ("verb", "pid", "limit_s"), [("record", 1, 30), ("record", 7, 5), ("top", 1, 5)]
)
def test_a_recorder_that_a_service_manager_stops_has_time_to_write(
    verb: str, pid: int, limit_s: float, monkeypatch
):
    monkeypatch.setattr(sys, "argv", ["sexton", verb, "/r"])
    monkeypatch.setattr(os, "getppid", lambda: pid)
    child = parent._Child(os.getpid(), -1, sandbox.new_note())
    assert child._limit_s == parent.SILENT_S
    child._asked.append(signal.SIGTERM)
    assert child._limit_s == limit_s


@pytest.mark.parametrize(("verb", "status"), [("record", 128 + signal.SIGSEGV), ("why", 2)])
def test_a_recorder_that_crashes_is_restarted_by_systemd(
    verb: str, status: int, monkeypatch, capsys
):
    """Its unit has RestartPreventExitStatus=2."""
    monkeypatch.setattr(sys, "argv", ["sexton", verb, "/r"])
    child = parent._Child(os.getpid(), -1, sandbox.new_note())
    assert child._status(-signal.SIGSEGV) == status
    assert f"sexton: {verb} failed: it crashed (SIGSEGV)" in capsys.readouterr().err
