"""Two fixers never act at once, and none for ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sexton.cure.journal import State
from sexton.cure.lock import Overdue, hold_lock
from sexton.errors import CommandError

_HOLDER = """
import sys, time
from sexton.cure.lock import hold_lock
from sexton.cure.journal import State
with hold_lock(State(*sys.argv[1:]), "an apply", 100):
    print("held", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def state(tmp_path) -> State:
    return State(str(tmp_path / "fix"))


@pytest.fixture
def holder(state: State):
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, state.directory, state.node_lock], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_the_second_is_told_who_holds_it_and_until_when(state: State, holder):
    with pytest.raises(CommandError) as refused, hold_lock(state, "another", 1):
        pytest.fail("two at once")
    text = str(refused.value)
    assert f"process {holder.pid} holds the lock (an apply)" in text
    assert "ends within" in text


def test_another_state_directory_is_no_way_around_it(state: State, holder, tmp_path):
    with (
        pytest.raises(CommandError, match=f"process {holder.pid} holds the lock"),
        hold_lock(State(str(tmp_path / "other"), state.node_lock), "another", 1),
    ):
        pytest.fail("two at once")
    assert State().node_lock == State("/elsewhere").node_lock


def test_without_the_nodes_lock_nothing_is_changed(tmp_path):
    state = State(str(tmp_path / "fix"), str(tmp_path / "absent" / "lock"))
    with pytest.raises(CommandError, match="without this lock"), hold_lock(state, "x", 1):
        pytest.fail("without a lock")


def test_one_that_was_killed_no_longer_holds_it(state: State, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with hold_lock(state, "another", 10):
        document = json.loads(Path(state.directory, "lock").read_text())
    assert document["pid"] == os.getpid()


def test_one_past_its_limit_is_named(state: State, holder):
    document = json.loads(Path(state.node_lock).read_text())
    with open(state.node_lock, "w") as stream:
        json.dump({**document, "until": time.time() - 90}, stream)
    with (
        pytest.raises(CommandError, match=r"1 min 3\d s over its time limit"),
        hold_lock(state, "x", 1),
    ):
        pytest.fail("two at once")


def test_its_limit_ends_whoever_holds_it(state: State, monkeypatch):
    monkeypatch.setattr("sexton.cure.lock.GRACE_S", 0.0)
    with pytest.raises(Overdue, match="exceeded its time limit"), hold_lock(state, "x", 0.05):
        time.sleep(30)
    with hold_lock(state, "x", 10):
        pass
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_junk_in_the_file_of_a_holder_is_no_crash(state: State, holder):
    for junk in (b"", b"\xff\x00", b"[]", b'{"pid": "x", "until": 1, "doing": 1}'):
        with open(state.node_lock, "wb") as stream:
            stream.write(junk)
        with (
            pytest.raises(CommandError, match="another sexton fix is running"),
            hold_lock(state, "x", 1),
        ):
            pytest.fail("two at once")
