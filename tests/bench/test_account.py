"""What a program costs, on this kernel: the whole tree, however short its children live."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.crowd import children
from bench.recorder.account import EndedEarly, Program, account, cost, hierarchy, running

pytestmark = pytest.mark.root


def python(source: str, seconds: float = 0) -> Program:
    return Program("python", (sys.executable, "-c", source), seconds)


def left() -> list[Path]:
    return list(hierarchy().glob(f"sexton-bench-cost-{os.getpid()}*"))


def test_a_grandchild_that_nobody_waits_for_is_counted():
    # What burns has lost its parent: no rusage of anyone who is waited for has it.
    burns = "while time.process_time() < 0.5: pass"
    source = f"""
import os, time
ended, busy_processes = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        {burns}
    os._exit(0)
os.close(busy_processes)
os.wait()
os.read(ended, 1)  # until what burns has ended
"""
    taken = cost(python(source), 0)
    assert taken.cpu_s > 0.5
    assert left() == []


def test_memory_is_summed_over_the_tree():
    one = "x = bytearray(60_000_000)\nimport time; time.sleep(3)"
    two = "import os\nos.fork()\n" + one
    assert cost(python(one), 0).peak_bytes > 60e6
    assert cost(python(two), 0).peak_bytes > 120e6


def test_bytes_written_just_before_the_end_are_seen(tmp_path: Path):
    source = f"open({str(tmp_path / 'x')!r}, 'wb').write(bytes(3_000_000))"
    assert cost(python(source), 0).written_bytes >= 3_000_000


def test_a_program_that_fails_says_so_and_one_that_ends_early_too():
    assert cost(python("raise SystemExit(3)"), 0).failure == "exit code 3"
    assert cost(python("raise SystemExit('no disk')"), 0).failure == "exit code 1: no disk"
    assert "exited after" in cost(python("pass", seconds=30), 0).failure
    assert cost(python("pass"), 0).failure == ""


def test_whoever_is_left_behind_is_counted_and_ended():
    source = "import os, time\npid = os.fork()\nif pid == 0: time.sleep(600)"
    taken = cost(python(source), 0)
    assert taken.left_behind == 1
    assert left() == []


def test_a_server_is_asked_to_end_when_its_time_is_over():
    ticks: list[int] = []
    argv = (sys.executable, "-c", "import time; time.sleep(600)")
    server = Program("server", argv, 2.2, ends_itself=False, tick=lambda: ticks.append(1))
    assert cost(server, 0).failure == ""
    assert ticks


def test_one_that_ends_while_something_else_is_measured_spoils_the_measurement():
    def measure() -> None:
        with account() as held, running(python("raise SystemExit(7)"), held):
            os.waitid(os.P_PID, held.pids()[0], os.WEXITED | os.WNOWAIT)

    with pytest.raises(EndedEarly, match="7"):
        measure()
    assert left() == []


def test_one_that_goes_on_is_ended_when_the_measurement_is_over():
    with account() as held:
        with running(python("import time; time.sleep(600)"), held):
            assert len(held.pids()) == 1
        assert held.pids() == []
    assert left() == []


def test_a_child_of_the_crowd_never_cleans_up_what_is_the_parents(tmp_path: Path):
    cleaned = tmp_path / "cleaned"

    def fail() -> None:
        raise SystemExit(1)

    try:
        with children(2, fail) as made:
            for child in made:
                os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    finally:
        with cleaned.open("a") as file:
            file.write("once\n")
    assert cleaned.read_text() == "once\n"
