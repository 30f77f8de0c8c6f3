"""Whatever becomes of the processes: they are gone, and the answer is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sexton.replay import reader_pool as crews
from sexton.replay.reader_pool import Crew
from sexton.store.recording import Recording
from tests.replay.reader_pool.together import (
    PATIENCE_S,
    both_there,
    square,
    wait_for,
)


def killed_elsewhere(us: int, flag: Path, item: int) -> int:
    """Whoever is not us dies of it, and we go on when that has happened."""
    if os.getpid() != us:
        flag.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    assert wait_for(flag.exists)
    return item


def fails_elsewhere(us: int, flag: Path, item: int) -> int:
    if os.getpid() != us:
        flag.write_text(str(os.getpid()))
        raise RuntimeError("only here")
    assert wait_for(flag.exists)
    return item


@pytest.mark.parametrize("do", [killed_elsewhere, fails_elsewhere])
def test_what_a_worker_that_dies_had_taken_is_done_here(
    recording: Recording, tmp_path: Path, do: Any, capfd: pytest.CaptureFixture[str]
):
    flag = tmp_path / "gone"
    with Crew(recording, 2) as crew:
        assert list(crew.each(partial(do, os.getpid(), flag), range(40))) == list(range(40))
        assert crew._workers == []
        again = list(crew.each(square, range(40)))
    assert again == [(each * each, os.getpid()) for each in range(40)]
    assert not Path("/proc", flag.read_text()).exists()
    assert capfd.readouterr() == ("", "")


def test_a_worker_that_hangs_is_not_waited_for(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(crews, "_PATIENCE_S", 0.05)
    with Crew(recording, 2) as crew:
        list(crew.each(square, range(16)))
        worker = crew._workers[0].pid
        os.kill(worker, signal.SIGSTOP)
        found = list(crew.each(square, range(40)))
        assert crew._workers == []
    assert [number for number, _ in found] == [each * each for each in range(40)]
    assert not Path("/proc", str(worker)).exists()


def fails_everywhere(item: int) -> int:
    if item == 33:
        raise ValueError("nobody can")
    return item


def test_what_is_wrong_with_an_item_is_raised_here(recording: Recording):
    with Crew(recording, 2) as crew:
        with pytest.raises(ValueError, match="nobody can"):
            list(crew.each(fails_everywhere, range(40)))
        # Nobody answers now what was asked before.
        assert [each for each, _ in crew.each(square, range(40))] == [n * n for n in range(40)]


def test_nobody_and_nothing_is_left_behind(recording: Recording, tmp_path: Path):
    before = sorted(os.listdir("/proc/self/fd"))
    with Crew(recording, 3) as crew:
        assert all(crew.each(partial(both_there, tmp_path), range(16), weights=[1] * 16))
        workers = [worker.pid for worker in crew._workers]
        assert len(workers) == 2
    assert not any(Path("/proc", str(each)).exists() for each in workers)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert list(crew.each(square, [3, 4])) == [(9, os.getpid()), (16, os.getpid())]


ORPHANED = """
import os, signal, sys
from pathlib import Path
from sexton.replay.reader_pool import Crew
from sexton.store.recording import Recording
with Crew(Recording(Path(sys.argv[1])), 3) as crew:
    list(crew.each(abs, range(100)))
    print(*(worker.pid for worker in crew._workers), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_whoever_forked_them(recording: Recording):
    ran = subprocess.run(
        [sys.executable, "-c", ORPHANED, recording.path],
        stdout=subprocess.PIPE,
        check=False,
        timeout=120,
    )  # returns when the last of them has closed its standard output
    assert ran.returncode == -signal.SIGKILL
    pids = ran.stdout.split()
    assert len(pids) == 2
    assert wait_for(lambda: not any(_runs(int(each)) for each in pids))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


INTERRUPTED = """
import sys, time
from pathlib import Path
from sexton.replay.reader_pool import Crew
from sexton.store.recording import Recording
try:
    with Crew(Recording(Path(sys.argv[1])), 3) as crew:
        list(crew.each(abs, range(100)))
        print(*(worker.pid for worker in crew._workers), flush=True)
        list(crew.each(time.sleep, [600.0] * 100))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("everybody", [True, False], ids=["the terminal", "one of us"])
def test_an_interrupt_ends_all_and_says_nothing(recording: Recording, everybody: bool):
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, recording.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as asked:
        assert asked.stdout is not None
        pids = asked.stdout.readline().split()
        (os.killpg if everybody else os.kill)(asked.pid, signal.SIGINT)
        _, said = asked.communicate(timeout=PATIENCE_S)
    assert len(pids) == 2
    assert (asked.returncode, said) == (130, b"")
    assert not any(Path("/proc", each.decode()).exists() for each in pids)
