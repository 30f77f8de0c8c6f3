"""Which thread a process waits for: one in a call that should return, or that waits on purpose."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sexton.host import stuck
from sexton.host.stuck import Thread, Watch
from tests.support.hung import hung_mount


@contextmanager
def child(body: Callable[[], object]) -> Iterator[int]:
    """A process that runs `body`; killed at the end."""
    pid = os.fork()
    if pid == 0:
        os.closerange(3, 1024)  # the device of a hung mount as well: it ends with its last user
        with suppress(BaseException):
            body()
        os._exit(0)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)


def found(pid: int, ending: bool = False, looks: int = 4) -> Thread | None:
    """What the last of some looks says, each 0.3 s after the other."""
    watch = Watch(pid)
    said = None
    for _ in range(looks):
        said = watch.look(0.5, ending, 60.0)
        time.sleep(0.3)
    return said


def endless() -> None:
    """A read that never returns."""
    os.read(os.pipe()[0], 1)


WAITING = {
    "a timer": lambda: time.sleep(1e6),
    "a pipe": endless,
    "a select with an end": lambda: select.select([os.pipe()[0]], [], [], 1e6),
    "another thread": lambda: threading.Event().wait(),
    "a child": lambda: os.waitpid(_sleeper(), 0),
}


def _sleeper() -> int:
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    return pid


@pytest.mark.parametrize("what", WAITING)
def test_what_waits_on_purpose_is_not_stuck(what: str):
    with child(WAITING[what]) as pid:
        assert found(pid) is None


def test_what_computes_is_not_stuck():
    def busy() -> None:
        while True:
            sum(range(1000))

    with child(busy) as pid:
        assert found(pid) is None


def test_once_it_is_to_end_a_wait_for_a_reader_is_no_excuse_but_one_with_an_end_is():
    with child(endless) as pid:
        assert found(pid, ending=True) is not None
    with child(lambda: time.sleep(1e6)) as pid:
        assert found(pid, ending=True) is None


@pytest.mark.root
def test_a_call_on_a_hung_mount_is_stuck_and_its_path_is_known(tmp_path: Path):
    with hung_mount(tmp_path) as place:
        path = f"{place.replace('self', str(os.getpid()))}/file"
        with child(lambda: os.stat(path)) as pid:
            thread = found(pid)
            assert thread is not None
            assert thread.tid == pid
            assert Watch(pid).place(thread)[0] == path


@pytest.mark.root
def test_a_command_that_waits_for_a_thread_or_a_child_on_a_hung_mount_is_stuck(tmp_path: Path):
    with hung_mount(tmp_path) as place:
        path = f"{place.replace('self', str(os.getpid()))}/file"

        def in_a_thread() -> None:
            thread = threading.Thread(target=os.stat, args=(path,))
            thread.start()
            thread.join()

        def in_a_child() -> None:
            pid = os.fork()
            if pid == 0:
                os.stat(path)
            os.waitpid(pid, 0)

        for body in (in_a_thread, in_a_child):
            with child(body) as pid:
                thread = found(pid)
                assert thread is not None, body
                assert thread.tid != pid


@pytest.mark.root
def test_a_thread_that_was_abandoned_does_not_end_a_command_that_goes_on(tmp_path: Path):
    with hung_mount(tmp_path) as place:
        path = f"{place.replace('self', str(os.getpid()))}/file"

        def body() -> None:
            threading.Thread(target=os.stat, args=(path,), daemon=True).start()
            while True:
                time.sleep(0.05)

        with child(body) as pid:
            assert found(pid) is None


def test_time_in_which_the_watcher_did_not_run_does_not_count(monkeypatch: pytest.MonkeyPatch):
    """Both may have been stopped or starved: the child did not hang all that time."""
    still = Thread(os.getpid(), os.getpid(), stuck.CALL, ("257 0x0",))
    watch = Watch(os.getpid())
    monkeypatch.setattr(watch, "_threads", lambda: iter([still]))
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert watch.look(60.0, False, 10.0) is None
    now[0] += 3600
    assert watch.look(60.0, False, 10.0) is None
    for _ in range(6):
        now[0] += 10
        last = watch.look(60.0, False, 10.0)
    assert last is still


def test_where_the_kernel_does_not_show_calls_nothing_is_stuck(monkeypatch: pytest.MonkeyPatch):
    def refuse(path: str) -> str:
        raise PermissionError(path)

    monkeypatch.setattr(stuck, "_read", refuse)
    assert Watch(os.getpid()).look(0.0, True, 1.0) is None
