"""Progress lines on standard error, for anything longer than two seconds; silent when piped or on a
terminal that cannot move its cursor (TERM=dumb)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sexton.cli.output import moves

_CLEAR = "\r\x1b[K"


@contextmanager
def countdown(total_s: float, doing: str = "watching") -> Iterator[Callable[[float], None] | None]:
    """A progress bar, cleared at the end; `None` without a terminal."""
    if not moves(sys.stderr) or total_s < 2:
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
    """For work in steps: call the tick with (done, total); shown after two seconds."""
    if not moves(sys.stderr):
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


#: Notes that belong on the terminal.
_TOLD = frozenset(("shed", "restored"))


@contextmanager
def recorder_line(directory: str) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """A recorder's status: a line that is updated, or one line when piped."""
    from sexton.model.text import printable, size
    from sexton.model.text import seconds as duration

    place = printable(directory)
    alarms, told_s = 0, 0.0

    def tell(status: dict[str, Any], before: str) -> None:
        """What the recorder gave up or took back since the last time."""
        nonlocal told_s
        for note in status["notes"]:
            if note["wall_s"] > told_s and note["kind"] in _TOLD:
                sys.stderr.write(f"{before}{note['detail']}\n")
                sys.stderr.flush()
            told_s = max(told_s, note["wall_s"])

    if not moves(sys.stderr):
        print(f"sexton: recording into {place}", file=sys.stderr)
        yield lambda status: tell(status, "sexton: ")
        return

    def tick(status: dict[str, Any]) -> None:
        nonlocal alarms
        tell(status, f"{_CLEAR} ")
        if status["alarms"] > alarms:
            alarms = status["alarms"]
            sys.stderr.write(f"{_CLEAR} alarm {alarms}: sexton recording info {place}\n")
        share = status["cpu_percent_of_a_core"]
        parts = [
            f"recording into {place} for {duration(status['at'] - status['since'])}",
            f"{size(status['held_bytes'])} kept",
            f"{size(status['rss_bytes'])} of memory",
            *([] if share is None else [f"{share:.1f} % of a core"]),
            *([f"cannot write: {status['problem']}"] if status["problem"] else []),
        ]
        sys.stderr.write(f"{_CLEAR} {' · '.join(parts)} · Ctrl-C to stop")
        sys.stderr.flush()

    sys.stderr.write(f" recording into {place} · Ctrl-C to stop")
    sys.stderr.flush()
    try:
        yield tick
    finally:
        sys.stderr.write(f"{_CLEAR} closing the recording\n")
        sys.stderr.flush()


@contextmanager
def working(doing: str, after_s: float = 2.0) -> Iterator[None]:
    """For work of unknown length: shows the elapsed time after two seconds."""
    if not moves(sys.stderr):
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

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
