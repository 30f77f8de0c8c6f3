"""A line that moves while something takes longer than two seconds; silent when piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CLEAR = "\r\x1b[K"


@contextmanager
def countdown(total_s: float, doing: str = "watching") -> Iterator[Callable[[float], None] | None]:
    """A progress line on standard error, wiped at the end; `None` where nobody would see it."""
    if not sys.stderr.isatty() or total_s < 2:
        yield None
        return

    def tick(gone_s: float) -> None:
        done = int(20 * min(gone_s / total_s, 1))
        bar = "━" * done + "─" * (20 - done)
        sys.stderr.write(f"{_CLEAR} {doing} {bar} {max(total_s - gone_s, 0):.0f} s left")
        sys.stderr.flush()

    try:
        yield tick
    finally:
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()
