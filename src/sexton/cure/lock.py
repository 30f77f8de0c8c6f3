"""One `sexton fix` at a time on a node, whatever its state directory.

There are two locks, one of the node and one of the state directory. Both are kernel locks
(`flock`): released when their holder dies, however that happens, and still held by a child that
outlives its parent. The holder sets a time limit, and an alarm ends it at that limit, so nothing
waits forever for a hung process. The lock files name the holder, its start and end times and its
task.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sexton.cure.journal import State
from sexton.errors import CommandError
from sexton.model.text import printable
from sexton.model.text import seconds as duration

#: Time to stop a child, write the journal's last line and exit.
GRACE_S = 15.0


class Overdue(CommandError):
    """This process exceeded its own time limit."""


@contextmanager
def hold_lock(state: State, doing: str, limit_s: float) -> Iterator[None]:
    """Hold the lock for at most `limit_s` plus `GRACE_S`; `CommandError` if it is taken."""
    state.make()
    now = time.time()
    holder = {"pid": os.getpid(), "doing": doing, "since": now, "until": now + limit_s + GRACE_S}
    content = json.dumps(holder).encode("ascii")
    with (
        _locked(state.node_lock, content),
        _locked(f"{state.directory}/lock", content),
        _alarm(limit_s + GRACE_S, doing),
    ):
        yield


@contextmanager
def _locked(path: str, content: bytes) -> Iterator[None]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CommandError(
            f"{path}: {error.strerror}; refusing to change anything without this lock"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(_refusal(os.pread(descriptor, 4096, 0))) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _refusal(content: bytes) -> str:
    try:
        holder = json.loads(content)
        left = float(holder["until"]) - time.time()
        text = f"process {int(holder['pid'])} holds the lock ({printable(str(holder['doing']))})"
    except (ValueError, KeyError, TypeError):
        return "another sexton fix is running; only one may run at a time"
    if left > 0:
        return f"{text}; only one fix may run at a time, this one ends within {duration(left)}"
    return f"{text} and is {duration(-left)} over its time limit: check it (ps {holder['pid']})"


@contextmanager
def _alarm(limit_s: float, doing: str) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise Overdue(
            f"{doing} exceeded its time limit of {duration(limit_s)} and was stopped;"
            " sexton fix status shows how far it got"
        )

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
