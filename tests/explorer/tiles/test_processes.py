"""Questions that another process answers; real processes, really killed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.synthetic import write
from sexton.errors import CommandError, StoreError
from sexton.explorer.tiles import processes
from sexton.explorer.tiles.processes import ForkServer, Gone, Unanswered
from sexton.explorer.tiles.view import View
from tests.support.synthetic import small

INCIDENT = Path(__file__).parents[2] / "incidents" / "whole_chain-6.18-v1" / "recording"
PROBLEMS: list[str] = []


class Worker:
    """Work that the tests control."""

    prepared = 0

    @property
    def problems_so_far(self) -> list[str]:
        return PROBLEMS

    def prepare(self, name: str) -> None:
        self.prepared += 1

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        return (self.prepared, *work(name, arguments)) if name == "name" else work(name, arguments)


def work(name: str, arguments: tuple[Any, ...]) -> Any:
    if name == "sleep":
        Path(arguments[0]).write_text(str(os.getpid()))
        time.sleep(60)
    if name == "refuse":
        raise CommandError(arguments[0])
    if name == "miss":
        raise StoreError(arguments[0])
    if name == "break":
        raise ValueError(arguments[0])
    if name == "tell":
        PROBLEMS.append("a damaged segment")
    if name == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "spend":
        until = time.process_time() + arguments[0]
        while time.process_time() < until:
            pass
        if arguments[1:]:
            os.kill(os.getpid(), signal.SIGKILL)
    if name == "much":
        return bytes(arguments[0])
    return name, arguments, os.getpid()


@pytest.fixture
def server() -> Iterator[ForkServer]:
    made = ForkServer(Worker())
    yield made
    made.close()


def soon(holds: Callable[[], bool]) -> bool:
    """Within what a crowded machine needs."""
    until = time.monotonic() + 20
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return holds()


def is_there(pid: int) -> bool:
    try:
        return b" Z" not in Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2][:3]
    except OSError:
        return False


def asleep(server: ForkServer, place: Path, stop: Callable[[], bool]) -> tuple[Any, list[str]]:
    """Somebody asks what takes a minute; who works on it, and what will be raised."""
    raised: list[str] = []

    def ask() -> None:
        try:
            server.ask("sleep", (str(place / "pid"),), stop)
        except Unanswered as error:
            raised.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    assert soon(lambda: (place / "pid").exists() and (place / "pid").read_text() != "")
    return asking, raised


def test_each_question_is_answered_by_a_process_of_its_own(server: ForkServer):
    found = [server.ask("name", (number, "a")) for number in range(3)]
    assert [item[1:3] for item in found] == [("name", (number, "a")) for number in range(3)]
    assert [item[0] for item in found] == [1, 2, 3]  # what one was prepared with the next has too
    assert len({item[3] for item in found} | {os.getpid()}) == 4
    assert soon(lambda: not any(is_there(item[3]) for item in found))


def test_answers_may_be_large(server: ForkServer):
    assert len(server.ask("much", (5_000_000,))) == 5_000_000


def test_what_is_raised_there_is_raised_here(server: ForkServer):
    with pytest.raises(CommandError, match="no such core"):
        server.ask("refuse", ("no such core",))
    with pytest.raises(StoreError, match="nothing then"):
        server.ask("miss", ("nothing then",))
    with pytest.raises(RuntimeError, match=r"ValueError: oh in .*test_processes.py line \d+"):
        server.ask("break", ("oh",))
    with pytest.raises(CommandError, match="query is too long"):
        server.ask("name", ("x" * 200_000,))


def test_problems_of_the_recording_are_reported_here(server: ForkServer):
    PROBLEMS.clear()
    for _ in range(2):
        server.ask("tell", ())
    assert PROBLEMS == ["a damaged segment"]


def test_when_nobody_waits_any_more_it_ends(server: ForkServer, tmp_path: Path):
    stopped = threading.Event()
    asking, raised = asleep(server, tmp_path, stopped.is_set)
    pid = int((tmp_path / "pid").read_text())
    assert is_there(pid)
    stopped.set()
    asking.join(20)
    assert raised == ["cancelled: the client has disconnected"]
    assert soon(lambda: not is_there(pid))


def test_a_killed_worker_is_reported_and_the_next_query_is_answered(
    server: ForkServer, tmp_path: Path
):
    asking, raised = asleep(server, tmp_path, lambda: False)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    asking.join(20)
    assert raised == ["the worker process was killed; is there enough memory?"]
    assert server.ask("name", ())[1] == "name"


def test_several_are_worked_on_at_the_same_time(server: ForkServer, tmp_path: Path):
    stopped = threading.Event()
    asking, _ = asleep(server, tmp_path, stopped.is_set)
    assert server.ask("name", ())[1] == "name"
    stopped.set()
    asking.join(20)


@pytest.fixture
def steady() -> Iterator[ForkServer]:
    """Answers some questions itself."""
    made = ForkServer(Worker(), itself=("name", "break", "die", "spend"))
    yield made
    made.close()


def test_short_queries_need_no_process_of_their_own(steady: ForkServer):
    found = [steady.ask("name", (number,)) for number in range(3)]
    assert [item[0] for item in found] == [1, 2, 3]
    assert len({item[3] for item in found}) == 1
    assert found[0][3] not in (os.getpid(), steady.pid)
    with pytest.raises(RuntimeError, match="ValueError: oh"):
        steady.ask("break", ("oh",))
    assert steady.ask("name", ())[3] == found[0][3]
    assert steady.ask("other", ())[2] != found[0][3]


def test_a_query_that_kills_the_fork_server_is_reported_and_the_next_is_answered(
    steady: ForkServer,
):
    before = steady.ask("name", ())
    with pytest.raises(Unanswered, match="was killed"):
        steady.ask("die", ())
    after = steady.ask("name", ())
    assert after[0] == 1  # it began anew
    assert after[3] != before[3]
    assert not is_there(before[3])
    steady.close()
    assert soon(lambda: not is_there(after[3]) and not is_there(steady.pid))


def test_after_many_answers_it_is_renewed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processes, "_MOST_OWN", 3)
    made = ForkServer(Worker(), itself=("name",))
    try:
        found = [made.ask("name", ()) for _ in range(7)]
        assert [item[0] for item in found] == [1, 2, 3, 1, 2, 3, 1]
        assert len({item[3] for item in found}) == 3
        before = made.usage().cpu_s
        assert made.ask("other", ())[0] == "other"
        assert made.usage().cpu_s >= before
    finally:
        made.close()


def test_what_nobody_waits_for_any_more_does_not_end_it(steady: ForkServer):
    before = steady.ask("name", ())[3]
    with pytest.raises(Unanswered, match="cancelled"):
        steady.ask("spend", (0.5,), lambda: True)
    assert steady.ask("name", ())[3] == before


@pytest.mark.parametrize("kept", [True, False])
def test_what_workers_cost_is_counted_also_of_those_that_were_killed(kept: bool):
    made = ForkServer(Worker(), itself=("spend", "name") if kept else ())
    try:
        before = made.usage()
        made.ask("spend", (0.3,))
        with pytest.raises(Unanswered):
            made.ask("spend", (0.3, "and die"))
        made.ask("name", ())
        assert soon(lambda: made.usage().cpu_s - before.cpu_s >= 0.55)
        assert made.usage().bytes > 1 << 20
    finally:
        made.close()
    assert made.usage() == (0.0, 0)


def test_workers_that_ended_are_not_left_as_zombies(server: ForkServer):
    pid = server.ask("name", ())[3]
    assert soon(lambda: not Path(f"/proc/{pid}").exists())


def test_where_they_are_all_gone_it_says_so(tmp_path: Path):
    made = ForkServer(Worker())
    os.kill(made.pid, signal.SIGKILL)
    with pytest.raises(Gone):
        made.ask("name", ())
    made.close()


def test_where_no_process_can_be_had_it_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch):
    """A fake: fork(2) fails in the fork server."""
    real, forks = os.fork, []

    def fork() -> int:
        forks.append(1)
        if len(forks) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return real()

    monkeypatch.setattr(os, "fork", fork)
    made = ForkServer(Worker())
    with pytest.raises(Unanswered, match="was killed"):
        made.ask("name", ())
    assert made.ask("name", ())[1] == "name"
    made.close()


@pytest.mark.parametrize("again", [False, True])
def test_a_view_answers_itself_if_the_fork_server_is_killed(again: bool):
    view = View.open(INCIDENT)
    view.fork()
    assert view._processes is not None
    pid = view._processes.pid
    assert view.span is not None
    if again:
        view.diagnosis(*view.span)
    os.kill(pid, signal.SIGKILL)
    start, end = view.span
    assert view.diagnosis(start + 1, end).findings
    assert view._processes is None
    assert not is_there(pid)
    assert view.seen(start, end).flame.samples > 0
    view.close()


SERVER = """
import sys, threading
from tests.explorer.tiles.test_processes import Worker
from sexton.explorer.tiles.processes import ForkServer
made = ForkServer(Worker())
print(made.pid, flush=True)
made.ask("sleep", (sys.argv[1],))
"""


def test_none_of_them_outlives_a_server_that_is_killed(tmp_path: Path):
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path / "pid")], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    first = int(server.stdout.readline())
    assert soon(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    both = first, int((tmp_path / "pid").read_text())
    server.kill()
    server.wait()
    assert soon(lambda: not any(map(is_there, both)))


def test_answers_are_those_that_we_would_have_given():
    ours, theirs = View.open(INCIDENT), View.open(INCIDENT)
    theirs.fork()
    try:
        assert ours.span is not None
        start, end = ours.span
        diagnoses = [item.diagnosis(start, end) for item in (ours, theirs)]
        assert diagnoses[0].findings == diagnoses[1].findings
        assert diagnoses[0].chains == diagnoses[1].chains
        whys = [item.why("eth0") for item in (ours, theirs)]
        assert whys[0].about == whys[1].about
        assert whys[0].aligned == whys[1].aligned
        flames = [item.seen(start, end) for item in (ours, theirs)]
        assert flames[0].flame.samples == flames[1].flame.samples > 0
        assert flames[0].flame.tree.frames.names == flames[1].flame.tree.frames.names
        assert theirs.seen(start, end) is flames[1]
        parts = (start, start + 40), (start + 40, end)
        differences = [item.difference(parts[1], parts[0]) for item in (ours, theirs)]
        assert (differences[0].after == differences[1].after).all()
        with pytest.raises(CommandError, match="no such name: 'eth77'"):
            theirs.why("eth77")
        with pytest.raises(StoreError, match="no stacks were recorded"):
            theirs.flame(0.0, 10.0)
    finally:
        theirs.close()


@pytest.mark.parametrize(
    "recorder",
    [
        pytest.param(True, id="recorded"),
        pytest.param(False, id="begun_again", marks=pytest.mark.whole),
    ],
)
def test_what_is_recorded_after_the_fork_is_in_the_answer(tmp_path: Path, recorder: bool):
    write(tmp_path, small("crash_loop", hours=1.1))
    held = os.open(tmp_path / "LOCK", os.O_RDWR | os.O_CREAT)
    if recorder:
        fcntl.flock(held, fcntl.LOCK_EX)  # as a recorder has it
    try:
        every = sorted((tmp_path / "segments").iterdir())
        every[-1].rename(tmp_path / "aside")
        view = View.open(tmp_path)
        assert view.live == recorder
        assert view.span is not None
        before = view.span[1]
        view.fork()
        view.diagnosis(*view.span)
        (tmp_path / "aside").rename(every[-1])
        assert view.refresh()
        found = view.diagnosis(before + 1, view.span[1])
        assert found.findings
        view.close()
    finally:
        os.close(held)
