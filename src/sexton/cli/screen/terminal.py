"""The keyboard without waiting for Enter, put back as it was whatever happens."""

from __future__ import annotations

import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

#: Waits so long for a key; the key, or "" where none came.
Keys = Callable[[float], str]


@contextmanager
def keyboard() -> Iterator[Keys]:
    """Single keys from standard input; where that is no terminal, only the waiting.

    A termination ends the block like Ctrl-C, so that the screen is put back then, too.
    """
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        if not sys.stdin.isatty():
            yield _no_key
            return
        descriptor = sys.stdin.fileno()
        saved = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor)
            yield _key
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)
    finally:
        signal.signal(signal.SIGTERM, before)


def _key(timeout_s: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], max(timeout_s, 0.0))
    if not ready:
        return ""
    # Past Python's own buffer: what it read ahead would not wake the next select.
    import os

    return os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace")


def _no_key(timeout_s: float) -> str:
    select.select([], [], [], max(timeout_s, 0.0))
    return ""


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
