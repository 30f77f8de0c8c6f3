"""An end for regular expressions that would search for years, such as ``(.*.*)*x``.

Python's `re` tries every way there is, and knows no limit. It does look for signals meanwhile, so
a timer of this process's own processor time ends it. Signals belong to the main thread: in others
nothing is bounded.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sexton.errors import CommandError

#: Any sane expression is done with a million names in a few seconds.
MOST_SECONDS = 20.0


@contextmanager
def patience(pattern: re.Pattern[str], seconds: float = MOST_SECONDS) -> Iterator[None]:
    """`CommandError` when what is searched in the block takes more than so much processor time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise CommandError(
            f"{pattern.pattern!r} takes too long to search for: repeat nothing that repeats itself"
        )

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
