"""Two fixers never act at once.

The lock is the kernel's (`flock`): whoever dies, however, no longer holds it, and a child that
still works for a dead parent does. Its limit is ours: who takes it says until when, and is ended by
its own alarm when that time is over, so that nobody waits for a fixer that hangs for ever. What it
says of itself (who, since when, until when, for what) is in the file, for whoever is refused.
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
from typing import Any

from sexton.cure.state import State
from sexton.errors import CommandError
from sexton.model.text import printable
from sexton.model.text import seconds as duration

#: Time to stop a child, to write the journal's last line and to go.
GRACE_S = 15.0


class Overdue(CommandError):
    """Our own limit is over."""


@contextmanager
def held(state: State, doing: str, limit_s: float) -> Iterator[None]:
    """Hold the lock for at most `limit_s` and some grace; `CommandError` where another does."""
    state.make()
    path = f"{state.directory}/lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(_refusal(os.pread(descriptor, 4096, 0))) from None
        now = time.time()
        told = {"pid": os.getpid(), "doing": doing, "since": now, "until": now + limit_s + GRACE_S}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(told).encode("ascii"), 0)
        with _alarm(limit_s + GRACE_S, doing):
            yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _refusal(content: bytes) -> str:
    told: dict[str, Any] = {}
    try:
        parsed = json.loads(content)
        told = parsed if isinstance(parsed, dict) else {}
        left = float(told["until"]) - time.time()
        text = f"process {int(told['pid'])} is at it already ({printable(str(told['doing']))})"
    except (ValueError, KeyError, TypeError):
        return "another fixer is at work here; two never act at once"
    if left > 0:
        return f"{text}: two never act at once; it has to end within {duration(left)}"
    return f"{text} and is {duration(-left)} past its limit: look at it (ps {told['pid']})"


@contextmanager
def _alarm(limit_s: float, doing: str) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise Overdue(
            f"{doing} took longer than its limit of {duration(limit_s)} and was ended;"
            " sexton fix status shows how far it came"
        )

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
