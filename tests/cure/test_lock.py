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

from sexton.cure.lock import Overdue, held
from sexton.cure.state import State
from sexton.errors import CommandError

_HOLDER = """
import sys, time
from sexton.cure.lock import held
from sexton.cure.state import State
with held(State(sys.argv[1]), "an apply", 100):
    print("held", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def state(tmp_path) -> State:
    return State(str(tmp_path / "fix"))


@pytest.fixture
def holder(state: State):
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, state.directory], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_the_second_is_told_who_holds_it_and_until_when(state: State, holder):
    with pytest.raises(CommandError) as refused, held(state, "another", 1):
        pytest.fail("two at once")
    text = str(refused.value)
    assert f"process {holder.pid} is at it already (an apply)" in text
    assert "has to end within" in text


def test_one_that_was_killed_no_longer_holds_it(state: State, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with held(state, "another", 10):
        told = json.loads(Path(state.directory, "lock").read_text())
    assert told["pid"] == os.getpid()


def test_one_past_its_limit_is_named(state: State, holder):
    told = json.loads(Path(state.directory, "lock").read_text())
    with open(f"{state.directory}/lock", "w") as stream:
        json.dump({**told, "until": time.time() - 90}, stream)
    with pytest.raises(CommandError, match=r"1 min 3\d s past its limit"), held(state, "x", 1):
        pytest.fail("two at once")


def test_its_limit_ends_whoever_holds_it(state: State, monkeypatch):
    monkeypatch.setattr("sexton.cure.lock.GRACE_S", 0.0)
    with pytest.raises(Overdue, match="took longer than its limit"), held(state, "x", 0.05):
        time.sleep(30)
    with held(state, "x", 10):
        pass
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_junk_in_the_file_of_a_holder_is_no_crash(state: State, holder):
    for junk in (b"", b"\xff\x00", b"[]", b'{"pid": "x", "until": 1, "doing": 1}'):
        with open(f"{state.directory}/lock", "wb") as stream:
            stream.write(junk)
        with pytest.raises(CommandError, match="another fixer is at work"), held(state, "x", 1):
            pytest.fail("two at once")
