"""A confined process gets no more memory, time or reach than it was given, and dies as one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sexton import sandbox
from sexton.cli.window import confine_to, read_archived
from sexton.errors import CommandError, StoreError
from sexton.sandbox import _DENIED, Limits, _instructions, confine, in_force, limits_for

#: Runs its argument as a command that confines itself.
RUN = """
import ctypes, os, resource, signal, socket, sys, threading, time
sys.argv[1:1] = ["diagnose"]
from sexton import sandbox
from sexton.cli import main, parent
def command():
    try:
        exec(sys.argv[2], globals())
    except MemoryError:
        return main._too_large()
    sys.stdout.flush()
    return 0
sys.exit(parent.run_in_child(command))
"""
SMALL = "sandbox.confine(sandbox.Limits(200 << 20, 20, what='night'))\n"


def run(body: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", RUN, body]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_process_that_does_not_end_with_its_command_is_left_as_it_is():
    confine(Limits(1, 1))
    assert in_force() is None


def test_memory_beyond_the_limit_is_one_line():
    ended = run(SMALL + "bytes(300 << 20)")
    assert ended.returncode == 2
    assert ended.stderr == "sexton: night: not enough memory: reading it may take 200 MB\n"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("ctypes.string_at(0)", "it crashed (SIGSEGV): damaged or hostile input"),
        ("os.abort()", "it crashed (SIGABRT): damaged or hostile input"),
        ("os.kill(os.getpid(), signal.SIGXCPU)", "it exceeded the CPU time"),
        ("signal.alarm(0); os.kill(os.getpid(), signal.SIGALRM)", "it exceeded the time"),
    ],
)
def test_a_crash_is_one_line_and_exit_2(how: str, words: str):
    ended = run(SMALL + how)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"sexton: night: diagnose failed: {words}")
    assert ended.stderr.count("\n") == 1


def test_cpu_time_ends():
    ended = run("sandbox.confine(sandbox.Limits(200 << 20, 1))\nwhile True: pass")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "CPU time" in ended.stderr


def test_neither_network_nor_programs_in_any_thread():
    body = """
def refused(call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return True
begin, said = threading.Event(), []
def work():
    begin.wait()
    said.append(refused(socket.socket))
thread = threading.Thread(target=work)
thread.start()
%s
begin.set()
thread.join()
said.append(refused(socket.socket, socket.AF_UNIX))
said.append(refused(os.execv, "/bin/true", ["true"]))
pair = socket.socketpair()
child = os.fork()
if child == 0:
    os._exit(0 if refused(socket.socket) else 1)
said.append(os.waitpid(child, 0)[1] == 0)
print(said)
"""
    ended = run(body % SMALL.strip())
    assert (ended.stdout, ended.stderr) == ("[True, True, True, True]\n", "")


def test_a_command_that_needs_this_node_keeps_its_buses():
    ended = run("sandbox.confine(sandbox.Limits(200 << 20, 20, live=True))\nsocket.socket()")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_without_seccomp_the_limits_remain_and_it_is_said():
    body = "sandbox._ARCHITECTURES.clear()\n" + SMALL + "bytes(300 << 20)"
    ended = run(body)
    first, second = ended.stderr.splitlines()
    assert "reading with limits on memory and time only" in first
    assert second.startswith("sexton: night: not enough memory")


def test_where_another_filter_denies_seccomp_itself_prctl_is_used():
    """As in a unit of an older systemd with SystemCallFilter=@system-service."""
    body = """
name = os.uname().machine
sandbox._ARCHITECTURES[name] = (*sandbox._ARCHITECTURES[name][:2], -1)
sandbox.confine(sandbox.Limits(200 << 20, 20))
try:
    socket.socket()
except PermissionError:
    print("no")
"""
    ended = run(body)
    assert (ended.stdout, ended.stderr) == ("no\n", "")


def test_limits_grow_with_what_is_on_disk_and_not_with_holes(tmp_path: Path):
    small = limits_for(tmp_path)
    (tmp_path / "data").write_bytes(os.urandom(4 << 20))
    full = limits_for(tmp_path)
    with (tmp_path / "holes").open("wb") as stream:
        stream.truncate(1 << 40)
    assert full.memory_bytes - small.memory_bytes == 32 << 20
    assert limits_for(tmp_path) == full
    assert full.memory_bytes < 600 << 20
    assert full.cpu_s is not None
    assert full.cpu_s <= 60


def test_hard_links_of_a_file_do_not_multiply_the_limits(tmp_path: Path):
    (tmp_path / "data").write_bytes(os.urandom(1 << 20))
    alone = limits_for(tmp_path)
    for number in range(50):
        os.link(tmp_path / "data", tmp_path / f"link{number}")
    assert limits_for(tmp_path) == alone


def test_a_tree_of_many_directories_is_not_walked_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a/b/c").mkdir(parents=True)
    for place in ("a/file", "a/b/c/file"):
        (tmp_path / place).write_bytes(bytes(10))
    assert len([*sandbox._files(str(tmp_path))]) == 2
    monkeypatch.setattr(sandbox, "_MOST_FILES", 3)
    assert len([*sandbox._files(str(tmp_path))]) == 1


def test_what_is_no_input_at_all_is_refused_before_its_size_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sandbox, "_size", lambda _: pytest.fail("its files are counted"))
    with pytest.raises(CommandError, match="Is a directory"):
        read_archived(str(tmp_path))
    with pytest.raises(StoreError, match="not a recording"):
        confine_to(str(tmp_path))


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_ends_at_the_answer_it_is_meant_for(machine: str):
    code = _instructions(machine)
    steps = [code[at : at + 8] for at in range(0, len(code), 8)]
    column = machine == "aarch64"
    denied = {numbers[column] for numbers in _DENIED.values()} - {-1}
    architecture = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    for arch in (architecture, 0x40000003):
        for number in (*range(500), 0x40000000 + 41):
            allowed = _answer(steps, number, arch) == 0x7FFF0000
            assert allowed == (arch == architecture and number < 500 and number not in denied)


def _answer(steps: list[bytes], number: int, architecture: int) -> int:
    """What the kernel's interpreter of classic BPF would answer."""
    at = held = 0
    while True:
        code = int.from_bytes(steps[at][:2], "little")
        yes, no = steps[at][2:4]
        value = int.from_bytes(steps[at][4:], "little")
        at += 1
        if code == 0x20:
            held = architecture if value == 4 else number
        elif code == 0x06:
            return value
        else:
            at += yes if (held == value if code == 0x15 else held >= value) else no
