"""Cgroups and processes with hostile names on the running kernel: nothing raw reaches a reader."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import quiet, sexton
from tests.support.zombies import scratch_cgroup

pytestmark = pytest.mark.root
#: Everything a file name may hold here: no slash, and cgroupfs refuses newlines.
CGROUPS = (
    b"\x1b[2J\x1b]0;taken\x07",
    b"\xff\xfe",
    b"<script>alert(1)<script>",
    b"[bold red]x[link=file:",
    b"a\tb\rc\x7f\xc2\x9b31m",
    "\u202egnp.exe\u2028".encode(),
    b" (deleted)",
    b"%s%n{0}",
    b"L" * 250,
)
TASKS = (b"a) R 1\nx", b"\x1b[31m\xff<b>")
_PR_SET_NAME = 15


@contextlib.contextmanager
def burning(name: bytes) -> Iterator[int]:
    """A process of that name that keeps the kernel busy."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            ctypes.CDLL(None).prctl(_PR_SET_NAME, name, 0, 0, 0)
            until = time.monotonic() + 120
            while time.monotonic() < until:
                os.getppid()
        os._exit(0)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.fixture
def hostile() -> Iterator[Path]:
    """A cgroup of our own with children of every name, and a process of each name burning."""
    with scratch_cgroup() as (_, parent), contextlib.ExitStack() as stack:
        children = [Path(os.fsdecode(os.fsencode(parent) + b"/" + name)) for name in CGROUPS]
        for child in children:
            child.mkdir()
        for name, child in zip(TASKS, children, strict=False):
            pid = stack.enter_context(burning(name))
            (child / "cgroup.procs").write_text(str(pid))
        yield parent


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, other in value.items():
            yield from (name, *strings(other))
    elif isinstance(value, list):
        for element in value:
            yield from strings(element)


def test_nothing_raw_reaches_a_terminal_or_a_program(hostile: Path) -> None:
    commands: tuple[tuple[str | bytes, ...], ...] = (
        ("diagnose", "--seconds", "2.5"),
        ("why", "task", TASKS[0], "--seconds", "2.5"),
        ("why", "cgroup", os.fsencode(hostile), "--seconds", "1"),
        ("zombies", "--seconds", "0.5"),
        ("sources",),
    )
    # All at once: most of their time is waiting, and meanwhile two tasks burn.
    with ThreadPoolExecutor(2 * len(commands)) as pool:
        for_people = pool.map(lambda words: sexton(*words), commands)
        for_programs = pool.map(lambda words: sexton(*words, "--json"), commands)
    for ended in for_people:
        quiet(ended)
    for ended in for_programs:
        quiet(ended)
        answer = json.loads(ended.stdout)
        assert json.loads(json.dumps(answer)) == answer
        for text in strings(answer):
            text.encode()  # no lone surrogate, which other programs' parsers refuse
            assert text.isprintable(), text


def test_the_screen_names_the_burning_task_on_one_line(hostile: Path) -> None:
    pids = [pid for child in hostile.glob("*/cgroup.procs") for pid in child.read_text().split()]
    # In real time, before whatever else runs here: the screen names the busiest task of each core.
    os.sched_setscheduler(int(pids[0]), os.SCHED_RR, os.sched_param(1))
    ended = sexton("top", "--interval", "2", env={"COLUMNS": "160"})
    quiet(ended, allowed=[0])
    assert b"a) R 1\\nx[" in ended.stdout or b"\\x1b[31m\\xff<b>[" in ended.stdout


@pytest.mark.whole
def test_watch_prints_the_escaped_paths_of_removed_cgroups(hostile: Path) -> None:
    """One line per death, whatever its name."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            until = time.monotonic() + 30
            while time.monotonic() < until:  # until we are killed: deaths for whoever watches
                for name in CGROUPS:
                    path = os.fsencode(hostile) + b"/d" + name[:200]
                    os.mkdir(path)
                    os.rmdir(path)
                time.sleep(0.2)
        os._exit(0)
    try:
        ended = sexton("zombies", "--watch", "--seconds", "3")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for left in hostile.iterdir():
            if left.is_dir() and left.name.startswith("d"):
                left.rmdir()
    quiet(ended, allowed=[0])
    assert b"/d\\x1b[2J\\x1b]0;taken\\x07\n" in ended.stdout
    assert b"/d\\xff\\xfe\n" in ended.stdout


@pytest.mark.whole
def test_processes_that_vanish_while_they_are_read_do_no_harm() -> None:
    """A storm of forks: between listing and reading, most are gone."""
    storm = os.fork()
    if storm == 0:
        with contextlib.suppress(BaseException):
            until = time.monotonic() + 60
            while time.monotonic() < until:
                for _ in range(20):
                    if os.fork() == 0:
                        os._exit(0)
                for _ in range(20):
                    os.wait()
        os._exit(0)
    try:
        ended = sexton("diagnose", "--seconds", "3", "--json")
    finally:
        os.kill(storm, signal.SIGKILL)
        os.waitpid(storm, 0)
    quiet(ended)
    states = {source["id"]: source for source in json.loads(ended.stdout)["sources"]}
    assert states["procfs.tasks"]["state"] == "ok"
    assert states["procfs.process_cgroup"]["state"] == "ok"
