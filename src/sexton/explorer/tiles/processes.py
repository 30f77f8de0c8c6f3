"""Expensive queries, each in a separate process.

An explanation of a night takes seconds of a core and two hundred megabytes. A thread would hold the
interpreter's lock while tiles are requested, keep the memory, and could not be stopped. So a fork
server, started before there are threads, opens the recording as well, and forks a worker for each
query: it exits with its answer, or when its client disconnects. Workers exit when the pipe
closes.

Short queries that come every few seconds need no worker: forking, and the pages that both then
copy, cost more than the answer. The fork server itself answers those. It has a supervisor, which
starts it again from scratch if one of them kills it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import resource
import select
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

from sexton.errors import CommandError, SextonError, StoreError
from sexton.model.text import printable
from sexton.sandbox import end_with

#: Has the client gone?
Stop = Callable[[], bool]
#: A query: its name and its arguments. It has to fit in one datagram.
Question = tuple[str, tuple[Any, ...]]
_MOST_BYTES = 1 << 17
#: How often to check that the client is still connected.
_LOOK_S = 0.1
#: The fork server exits at once when it is closed, unless the kernel holds it.
_ENDS_S = 1.0
#: No query that succeeds takes this long.
_MOST_S = 300.0
#: Tiles go first: the page must stay responsive while an explanation is computed.
_NICE = 5
#: Until a fork server that was killed is started again.
_AGAIN_S = 1.0
#: After so many answers of its own (a day's at one each 15 s) a fork server gives way to a fresh
#: one: its memory must not depend on how long a node has been up.
_MOST_OWN, _RENEW = 5760, 3
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ANSWERED, _REFUSED, _NOT_THERE, _BROKEN = "answered", "refused", "not there", "broken"


class Unanswered(SextonError):
    """No answer: the worker was killed, or it took too long."""


class Gone(SextonError):
    """The fork server has exited."""


class Work(Protocol):
    """Work for a child process; problems it finds in the recording are sent back."""

    @property
    def problems_so_far(self) -> list[str]: ...

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Run in a child process."""
        ...

    def prepare(self, name: str) -> None:
        """Runs in the fork server before each query, so that workers inherit what it read."""
        ...


class Usage(NamedTuple):
    """CPU time of a process and all it has started, and the resident bytes of those that run."""

    cpu_s: float
    bytes: int


class ForkServer:
    """Runs `work` in child processes; thread-safe. `itself`: queries that it answers without a
    worker, one after the other."""

    def __init__(self, work: Work, itself: Collection[str] = ()) -> None:
        self._work = work
        self._is_supervised = bool(itself)
        self._sending = threading.Lock()
        self._to, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        gc.freeze()  # so that the collector does not copy shared pages
        us = os.getpid()
        pid = os.fork()
        if not pid:
            try:
                end_with(us)
                self._to.close()
                _ignore_signals()
                if itself:
                    _supervise()
                _serve(other, work, itself)
            finally:
                os._exit(1)
        other.close()
        self.pid = pid

    def ask(self, name: str, arguments: tuple[Any, ...], stop: Stop | None = None) -> Any:
        """The worker's answer, or its exception; `Unanswered` if there was none, `Gone` if the fork
        server has exited."""
        question = pickle.dumps((name, arguments))
        if len(question) > _MOST_BYTES:
            raise CommandError("the query is too long")
        mine, its = os.pipe()
        try:
            try:
                with self._sending:
                    socket.send_fds(self._to, [question], [its])
            except OSError:
                raise Gone("the worker processes have exited") from None
            finally:
                os.close(its)
            answer = _read_reply(mine, stop)
        finally:
            os.close(mine)  # the worker sees the pipe close and exits
        try:
            how, what, problems = pickle.loads(answer)
        except (EOFError, pickle.UnpicklingError):
            if not self._is_there():
                raise Gone("the worker processes have exited") from None
            raise Unanswered("the worker process was killed; is there enough memory?") from None
        known = self._work.problems_so_far
        known += [problem for problem in problems if problem not in known]
        if how == _ANSWERED:
            return what
        raise {_REFUSED: CommandError, _NOT_THERE: StoreError}.get(how, RuntimeError)(what)

    def usage(self) -> Usage:
        """What it and its workers have used. The pages of a supervisor, which only waits, are all
        shared with this process."""
        found = _usage(self.pid)
        return found._replace(bytes=found.bytes - _own(self.pid).bytes * self._is_supervised)

    def close(self) -> None:
        """Close the fork server and wait for it. One that is stopped, or waits for a disk, is not
        waited for: it is killed, and ends when it can."""
        self._to.close()
        until = time.monotonic() + _ENDS_S
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > until:
                    os.kill(self.pid, signal.SIGKILL)
                    break
                time.sleep(0.01)

    def _is_there(self) -> bool:
        """Polled for a moment: a process closes its files before it can be waited for."""
        try:
            for _ in range(10):
                if os.waitpid(self.pid, os.WNOHANG) != (0, 0):
                    return False
                time.sleep(0.02)
        except ChildProcessError:
            return False
        return True


def _read_reply(end: int, stop: Stop | None) -> bytes:
    parts: list[bytes] = []
    until = time.monotonic() + _MOST_S
    waiting = select.poll()
    waiting.register(end, select.POLLIN)
    while True:
        if not waiting.poll(_LOOK_S * 1000):
            if stop is not None and stop():
                raise Unanswered("cancelled: the client has disconnected")
            if time.monotonic() > until:
                raise Unanswered(f"no answer within {_MOST_S:.0f} s")
            continue
        part = os.read(end, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _usage(pid: int) -> Usage:
    """Of a process and those below it. What ended is counted once it was waited for."""
    cpu_s, memory = _own(pid)
    children: list[bytes] = []
    with contextlib.suppress(OSError):  # it has ended; or a kernel without CONFIG_PROC_CHILDREN
        children = Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()
    for below in map(_usage, map(int, children)):
        cpu_s, memory = cpu_s + below.cpu_s, memory + below.bytes
    return Usage(cpu_s, memory)


def _own(pid: int) -> Usage:
    """Of a process, with the CPU time of those that it has waited for; nothing if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return Usage(0.0, 0)
    return Usage(sum(map(int, fields[11:15])) * _TICK_S, int(fields[21]) * _PAGE_BYTES)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the parent; this process exits with it


def _supervise() -> None:
    """Return in a child. This process starts another when one was killed or is to be renewed, and
    ends when one has ended."""
    us = os.getpid()
    while True:
        pid = os.fork()
        if not pid:
            end_with(us)
            return
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == 0:
            os._exit(0)
        if status != _RENEW:
            time.sleep(_AGAIN_S)


def _serve(requests: socket.socket, work: Work, itself: Collection[str]) -> NoReturn:
    us, own = os.getpid(), 0
    # Waited for, so that what they cost is known.
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        question, ends, *_ = socket.recv_fds(requests, _MOST_BYTES, 1)
        if not question:
            os._exit(0)
        if not ends:  # too many files are open: the client sees its end closed
            continue
        name, arguments = pickle.loads(question)
        with contextlib.suppress(SextonError):  # reported when a part of it is requested
            work.prepare(name)
        if name in itself:
            signal.alarm(int(_MOST_S))  # nobody waits any more: it kills this process
            with contextlib.suppress(OSError):  # the client has gone
                _answer(ends[0], work, name, arguments)
            signal.alarm(0)
            os.close(ends[0])
            own += 1
            if own == _MOST_OWN:
                os._exit(_RENEW)
            continue
        try:
            pid = os.fork()
        except OSError:  # no process available: close the pipe and continue
            pid = -1
        if not pid:
            try:
                end_with(us)
                requests.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _be_a_worker(ends[0])
                _answer(ends[0], work, name, arguments)
            finally:
                os._exit(0)
        os.close(ends[0])


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _be_a_worker(end: int) -> None:
    # A pipe without a reader polls as an error. A timer checks it: no thread is needed for that.
    waited_for = select.poll()
    waited_for.register(end, 0)
    signal.signal(signal.SIGALRM, lambda *_: waited_for.poll(0) and os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
    os.nice(_NICE)
    # Python runs that handler between bytecodes: a library that never returns is stopped by this.
    resource.setrlimit(resource.RLIMIT_CPU, (int(_MOST_S), int(_MOST_S) + 5))


def _answer(end: int, work: Work, name: str, arguments: tuple[Any, ...]) -> None:
    known = len(work.problems_so_far)
    try:
        answer: tuple[str, Any] = _ANSWERED, work.answer(name, arguments)
    except CommandError as error:
        answer = _REFUSED, str(error)
    except SextonError as error:
        answer = _NOT_THERE, str(error)
    except MemoryError:
        answer = _NOT_THERE, "not enough memory for this part of the recording"
    except Exception as error:  # noqa: BLE001 - reported where it can be seen
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} in {last.filename} line {last.lineno}"
        answer = _BROKEN, printable(what)
    left = memoryview(pickle.dumps((*answer, work.problems_so_far[known:]), protocol=5))
    while left:
        left = left[os.write(end, left) :]
