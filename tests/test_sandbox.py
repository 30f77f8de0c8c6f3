"""A confined process gets no more memory, time or reach than it was given, and dies as one line."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sexton import sandbox
from sexton.cli.window import confine_to, read_archived
from sexton.errors import CommandError, StoreError
from sexton.sandbox import Limits, calls, confine, in_force, limits_for

#: Runs its argument as a command that confines itself.
RUN = """
import ctypes, os, resource, signal, socket, sys, threading, time
sys.argv[1:1] = ["diagnose"]
from sexton import sandbox
from sexton.sandbox import calls
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


def run(body: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """`before` is done by the parent."""
    argv = [sys.executable, "-c", RUN.replace("def command", f"{before}\ndef command", 1), body]
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
    # On a machine with many other tests, one second of CPU time takes longer than ten.
    patience = "sandbox._LIFE = sandbox._AFTERWARDS_S = 100\n"
    ended = run(f"{patience}sandbox.confine(sandbox.Limits(200 << 20, 1))\nwhile True: pass")
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
    body = "calls.ARCHITECTURES.clear()\n" + SMALL + "bytes(300 << 20)"
    ended = run(body)
    first, second = ended.stderr.splitlines()
    assert "reading with limits on memory and time only" in first
    assert second.startswith("sexton: night: not enough memory")


def test_where_another_filter_denies_seccomp_itself_prctl_is_used():
    """As in a unit of an older systemd with SystemCallFilter=@system-service."""
    body = """
name = os.uname().machine
calls.ARCHITECTURES[name] = (*calls.ARCHITECTURES[name][:2], -1)
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


ME, PARENT = 4000, 3000
STRANGER = 5000
#: Calls that depend on their arguments: number on x86-64 and aarch64, arguments, whether they are
#: allowed to a process that may fork and to one that is alone.
CHECKED = {
    "a thread": ((56, 220), (0x10000 | 0x100,), True, True),
    "a process": ((56, 220), (17,), True, False),
    "a user namespace": ((56, 220), (0x10000000 | 17,), False, False),
    "a network namespace in a thread": ((56, 220), (0x40010000,), False, False),
    "a mount namespace": ((56, 220), (0x00020000,), False, False),
    "a cgroup namespace": ((56, 220), (0x02000000,), False, False),
    "itself killed": ((62, 129), (ME, 9), True, True),
    "its child killed": ((62, 129), (STRANGER, 9), True, False),
    "its parent killed": ((62, 129), (PARENT, 9), False, False),
    "init killed": ((62, 129), (1, 9), False, False),
    "its group killed": ((62, 129), (0, 9), False, False),
    "everything killed": ((62, 129), (0xFFFFFFFF, 9), False, False),
    "a thread of its own signalled": ((234, 131), (ME, ME, 6), True, True),
    "a thread of its parent signalled": ((234, 131), (PARENT, PARENT, 6), False, False),
    "a thread killed": ((200, 130), (STRANGER, 9), True, False),
    "its own limits": ((302, 261), (0, 7), True, True),
    "its parent's limits": ((302, 261), (PARENT, 7), False, False),
    "its own cores": ((203, 122), (0,), True, True),
    "its parent's cores": ((203, 122), (PARENT,), False, False),
    "its own niceness": ((141, 140), (0, 0, 10), True, True),
    "its parent's niceness": ((141, 140), (0, PARENT, 10), False, False),
    "its user's niceness": ((141, 140), (2, 0, 10), False, False),
    "the terminal's size": ((16, 29), (0, 0x5413), True, True),
    "input of the terminal": ((16, 29), (0, 0x5412), False, False),
    "input of the console": ((16, 29), (0, 0x541C), False, False),
    "a pair of streams": ((53, 199), (1, 0x80001), True, True),
    "a pair of packets": ((53, 199), (1, 5), True, True),
    "a pair of datagrams": ((53, 199), (1, 0x80002), False, False),
    "private memory": ((9, 222), (0, 4096, 3, 0x22), True, True),
    "a mapped file": ((9, 222), (0, 4096, 1, 0x01), True, True),
    "shared memory": ((9, 222), (0, 4096, 3, 0x21), False, False),
    "validated shared memory": ((9, 222), (0, 4096, 3, 0x23), False, False),
}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("alone", [False, True])
def test_the_filter_answers_every_call_as_its_tables_say(machine: str, alone: bool):
    code = calls.instructions(machine, calls.Who(ME, PARENT, alone))
    steps = [code[at : at + 8] for at in range(0, len(code), 8)]
    column = machine == "aarch64"
    architecture = calls.ARCHITECTURES[machine][0]
    denied = {numbers[column] for numbers in calls.DENIED.values()} - {-1}
    denied |= {57, 58} if alone and not column else set()
    checked = {numbers[column] for numbers, *_ in CHECKED.values()} | {435}
    for number in range(600):
        if number not in checked:
            allowed = _answer(steps, architecture, number) == calls.ALLOW
            assert allowed == (number not in denied), number
    assert _answer(steps, architecture, 435) & 0xFFFF == 38, "clone3: ENOSYS"
    assert _answer(steps, architecture, 0x40000000 + 41) == calls.REFUSE, "x32"
    assert _answer(steps, 0x40000003, 20) == calls.REFUSE, "i386"
    for what, (numbers, arguments, *allowed_to) in CHECKED.items():
        answer = _answer(steps, architecture, numbers[column], arguments)
        assert (answer == calls.ALLOW) == allowed_to[alone], what


def _answer(
    steps: list[bytes], architecture: int, number: int, arguments: tuple[int, ...] = ()
) -> int:
    """What the kernel's interpreter of classic BPF would answer."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *(*arguments, *[0] * 6)[:6])
    at = held = 0
    while True:
        code = int.from_bytes(steps[at][:2], "little")
        yes, no = steps[at][2:4]
        value = int.from_bytes(steps[at][4:], "little")
        at += 1
        if code == 0x20:
            held = int.from_bytes(data[value : value + 4], "little")
        elif code == 0x54:
            held &= value
        elif code == 0x06:
            return value
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += yes if holds else no


TRY = """
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def tried(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) >= 0:
        return "worked"
    return os.strerror(ctypes.get_errno())
column = calls.ARCHITECTURES[os.uname().machine][1]
"""


def test_every_denied_call_is_refused_by_the_kernel():
    """Each with arguments that would do nothing, or fail otherwise."""
    body = f"""{TRY}
sandbox.confine(sandbox.Limits(200 << 20, 20, alone=True))
tables = {{**calls.DENIED, **calls._DENIED_ALONE, **calls._DENIED_BRIEF}}
for name, numbers in tables.items():
    if numbers[column] >= 0:
        print(name, tried(numbers[column], -1, 0, 0, 0, 0, 0), sep=": ")
"""
    ended = run(body)
    lines = ended.stdout.splitlines()
    assert len(lines) > 70
    assert [line for line in lines if not line.endswith(": Operation not permitted")] == []


def test_calls_that_depend_on_their_arguments_are_refused_by_the_kernel():
    body = f"""{TRY}
sandbox.confine(sandbox.Limits(200 << 20, 20))
x86 = column == 0
print("user namespace", tried(56 if x86 else 220, 0x10000000 | 17, 0, 0, 0, 0))
print("clone3", tried(435, 0, 0))
print("type into the terminal", tried(16 if x86 else 29, 0, 0x5412, 0))
print("signal the parent", tried(62 if x86 else 129, os.getppid(), 0))
print("limit the parent", tried(302 if x86 else 261, os.getppid(), 7, 0, 0))
print("datagrams", tried(53 if x86 else 199, 1, 2, 0, 0))
print("shared memory", tried(9 if x86 else 222, 0, 4096, 3, 0x21, -1, 0))
thread = threading.Thread(target=print, args=("threads work",))
thread.start()
thread.join()
child = os.fork()
if child == 0:
    time.sleep(60)
os.kill(child, signal.SIGKILL)
print("children end with", os.waitpid(child, 0)[1])
"""
    ended = run(body)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "user namespace Operation not permitted",
        "clone3 Function not implemented",
        "type into the terminal Operation not permitted",
        "signal the parent Operation not permitted",
        "limit the parent Operation not permitted",
        "datagrams Operation not permitted",
        "shared memory Operation not permitted",
        "threads work",
        "children end with 9",
    ]


def test_a_process_that_is_alone_starts_no_other():
    body = """
sandbox.confine(sandbox.Limits(200 << 20, 20, alone=True))
thread = threading.Thread(target=print, args=("a thread",))
thread.start()
thread.join()
try:
    os.fork()
except PermissionError:
    print("no process")
"""
    assert sorted(run(body).stdout.splitlines()) == ["a thread", "no process"]


#: As a user without rights; the modules are imported before, since they may lie in root's home.
WITHOUT_RIGHTS = """
import mmap, traceback, sexton.sandbox.calls, sexton.sandbox.rights
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as after execve
"""
#: On a busy machine the child may be done before the parent runs again.
SLOW_PARENT = """
def fork(fork=os.fork):
    child = fork()
    if child != 0:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child
os.fork = fork
"""


@pytest.mark.parametrize(
    ("before", "more"),
    [
        ("", ""),
        (WITHOUT_RIGHTS, ""),
        (WITHOUT_RIGHTS, ", symbols=True"),
        (WITHOUT_RIGHTS + SLOW_PARENT, ", symbols=True"),
    ],
    ids=["as we are", "without rights", "without rights, for symbols", "of a slow parent"],
)
def test_the_memory_of_its_parent_is_out_of_reach(before: str, more: str):
    body = f"""
sandbox.confine(sandbox.Limits(200 << 20, 20{more}))
try:
    open(f"/proc/{{os.getppid()}}/mem", "r+b")
except PermissionError:
    print("no")
"""
    ended = run(body, before)
    assert (ended.stdout, ended.stderr) == ("no\n", "")


@pytest.mark.root
def test_root_keeps_only_the_rights_to_files():
    body = """
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")))
sandbox.confine(sandbox.Limits(200 << 20, 20%s))
for line in open("/proc/self/status"):
    if line.startswith(("CapEff", "CapPrm")):
        print(int(line.split()[1], 16))
try:
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
except ValueError:
    print("limits stay")
"""
    before, effective, permitted, limits = run(body % "").stdout.split("\n", 3)
    assert int(before, 16).bit_count() > 10
    assert (effective, permitted, limits) == ("6", "6", "limits stay\n")
    symbols = run(body % ", symbols=True").stdout.splitlines()
    assert symbols[1:3] == [str(6 | 1 << 19 | 1 << 34)] * 2


def landlock() -> int:
    """Its version here; less than 1 where the kernel has none."""
    return int(ctypes.CDLL(None).syscall(444, None, 0, 1))


@pytest.mark.skipif(landlock() < 3, reason="the kernel has no Landlock 3 (Linux 6.2)")
def test_only_its_outputs_are_writable(tmp_path: Path):
    for name in ("here", "there", "link"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").rmdir()
    (tmp_path / "link").symlink_to("here")
    (tmp_path / "there/file").write_text("kept")
    body = f"""
os.chdir({str(tmp_path)!r})
from sexton.cli.output import write_whole
sandbox.confine(sandbox.Limits(200 << 20, 20, writable=("link/out", "/dev/stdout")))
write_whole("link/out", (b"first",))
write_whole("link/out", (b"second",))
for act in (
    lambda: open("there/file", "w"),
    lambda: open("there/new", "w"),
    lambda: os.truncate("there/file", 0),
    lambda: os.unlink("there/file"),
    lambda: os.rename("here/out", "there/out"),
    lambda: os.mkdir("there/more"),
    lambda: os.symlink("x", "there/link"),
    lambda: open("/proc/sys/kernel/core_pattern", "r+"),
):
    try:
        act()
        print("worked")
    except OSError as error:
        print(error.strerror)
open("/dev/null", "w").close()
sys.stdout.flush()
write_whole("/dev/stdout", (b"end",))
"""
    ended = run(body)
    assert ended.stderr == ""
    refused = ended.stdout.splitlines()
    assert len(refused) == 9
    assert set(refused[:8]) <= {"Permission denied", "Invalid cross-device link"}
    assert refused[8] == "end"
    assert (tmp_path / "here/out").read_text() == "second"
    assert (tmp_path / "there/file").read_text() == "kept"
    (tmp_path / "logs").mkdir()
    with (tmp_path / "logs/log").open("wb") as log:
        argv = [sys.executable, "-c", RUN, body.replace("kept", "")]
        subprocess.run(argv, stdout=log, timeout=60, check=False)
    written = (tmp_path / "logs/log").read_text()
    assert written.startswith("end")  # a stream of its own, from the beginning
    assert "worked" not in written


@pytest.mark.skipif(landlock() < 6, reason="the kernel has no Landlock 6 (Linux 6.12)")
def test_no_process_but_its_own_is_signalled():
    other = subprocess.Popen(["sleep", "60"])
    try:
        ended = run(f"{SMALL}os.kill({other.pid}, 0)")
        assert "PermissionError" in ended.stderr
    finally:
        other.kill()
        other.wait()


def test_an_output_ends_at_its_limit_and_what_was_there_does_not_count(tmp_path: Path):
    body = """
sandbox.confine(sandbox.Limits(200 << 20, 20, output_bytes=1000))
print("x" * 900, flush=True)
try:
    print("x" * 900, flush=True)
except OSError as error:
    print(error.strerror, file=sys.stderr, flush=True)
os._exit(0)
"""
    log = tmp_path / "log"
    log.write_bytes(bytes(5000))
    argv = [sys.executable, "-c", RUN, body]
    with log.open("ab") as stream:
        ended = subprocess.run(
            argv, stdout=stream, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert ended.stderr == "File too large\n"
    assert log.stat().st_size == 6000


def test_one_that_sleeps_is_ended_by_its_parent():
    """Whatever it did to its alarm."""
    body = """
sandbox._AFTERWARDS_S = 0
sandbox.confine(sandbox.Limits(200 << 20, 1))
signal.alarm(0)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
time.sleep(600)
"""
    ended = run(body, "parent._LOOK_S = 0.2")
    assert ended.returncode == 2
    assert "it exceeded the time limit for its input" in ended.stderr
