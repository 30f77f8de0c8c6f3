"""A line that moves while something takes longer than two seconds; silent when piped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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


@contextmanager
def steps(doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """For work whose length is known in steps: told (done, total), shown from two seconds on."""
    if not sys.stderr.isatty():
        yield None
        return
    started = shown = time.monotonic()

    def tick(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - started < 2 or now - shown < 0.1:
            return
        shown = now
        filled = 20 * done // max(total, 1)
        bar = "━" * filled + "─" * (20 - filled)
        sys.stderr.write(f"{_CLEAR} {doing} {bar} {done:,} of {total:,}")
        sys.stderr.flush()

    try:
        yield tick
    finally:
        if shown > started:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


@contextmanager
def recorder_line(directory: str) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """What a recorder does, on standard error: a line that moves, or one line when piped."""
    from sexton.model.text import printable, size
    from sexton.model.text import seconds as duration

    place = printable(directory)
    if not sys.stderr.isatty():
        print(f"sexton: recording into {place}", file=sys.stderr)
        yield None
        return
    alarms = 0

    def tick(told: dict[str, Any]) -> None:
        nonlocal alarms
        if told["alarms"] > alarms:
            alarms = told["alarms"]
            sys.stderr.write(f"{_CLEAR} alarm {alarms}: sexton recording info {place}\n")
        share = told["cpu_percent_of_a_core"]
        parts = [
            f"recording into {place} for {duration(told['at'] - told['since'])}",
            f"{size(told['held_bytes'])} held",
            f"{size(told['rss_bytes'])} of memory",
            *([] if share is None else [f"{share:.1f} % of a core"]),
            *([f"cannot write: {told['problem']}"] if told["problem"] else []),
        ]
        sys.stderr.write(f"{_CLEAR} {' · '.join(parts)} · Ctrl-C ends it")
        sys.stderr.flush()

    sys.stderr.write(f" recording into {place} · Ctrl-C ends it")
    sys.stderr.flush()
    try:
        yield tick
    finally:
        sys.stderr.write(f"{_CLEAR} sealing what was recorded\n")
        sys.stderr.flush()


@contextmanager
def working(doing: str, after_s: float = 2.0) -> Iterator[None]:
    """For work of unknown length: from two seconds on, for how long it has been going."""
    if not sys.stderr.isatty():
        yield
        return
    import threading

    done = threading.Event()
    started = time.monotonic()

    def show() -> None:
        if done.wait(after_s):
            return
        while True:
            sys.stderr.write(f"{_CLEAR} {doing}: {time.monotonic() - started:.0f} s")
            sys.stderr.flush()
            if done.wait(0.5):
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()
                return

    shower = threading.Thread(target=show, daemon=True)
    shower.start()
    try:
        yield
    finally:
        done.set()
        shower.join()
