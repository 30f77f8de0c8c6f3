"""Progress lines on standard error, for anything longer than two seconds; silent when piped or on a
terminal that cannot move its cursor (TERM=dumb)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sexton.cli.output import has_cursor

_CLEAR = "\r\x1b[K"
_BAR = 20


def _show(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


def _bar(share: float) -> str:
    done = int(_BAR * min(share, 1))
    return "━" * done + "─" * (_BAR - done)


@contextmanager
def countdown(total_s: float, doing: str = "watching") -> Iterator[Callable[[float], None] | None]:
    """A progress bar, cleared at the end; `None` without a terminal."""
    if not has_cursor(sys.stderr) or total_s < 2:
        yield None
        return

    def tick(gone_s: float) -> None:
        left = f"{max(total_s - gone_s, 0):.0f} s left"
        _show(f"{_CLEAR} {doing} {_bar(gone_s / total_s)} {left}")

    try:
        yield tick
    finally:
        _show(_CLEAR)


@contextmanager
def steps(doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """For work in steps: call the tick with (done, total); shown after two seconds."""
    if not has_cursor(sys.stderr):
        yield None
        return
    started = shown = time.monotonic()

    def tick(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - started < 2 or now - shown < 0.1:
            return
        shown = now
        _show(f"{_CLEAR} {doing} {_bar(done / max(total, 1))} {done:,} of {total:,}")

    try:
        yield tick
    finally:
        if shown > started:
            _show(_CLEAR)


#: Kinds of notes that are printed.
_PRINTED = frozenset(("shed", "restored", "over", "lost", "disk"))


@contextmanager
def recorder_line(directory: str) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """A recorder's status: a line that is updated, or one line when piped."""
    from sexton.model.text import printable, size
    from sexton.model.text import seconds as duration

    place = printable(directory)
    alarms = 0
    known: list[dict[str, Any]] = []

    def print_new(status: dict[str, Any], before: str) -> None:
        """What was paused, resumed or lost since the last call; not by the notes' times, which
        step back with the clock."""
        nonlocal known
        for note in status["notes"]:
            if note["kind"] in _PRINTED and note not in known:
                _show(f"{before}{note['detail']}\n")
        known = status["notes"]

    if not has_cursor(sys.stderr):
        print(f"sexton: recording into {place}", file=sys.stderr)
        yield lambda status: print_new(status, "sexton: ")
        return

    def tick(status: dict[str, Any]) -> None:
        nonlocal alarms
        print_new(status, f"{_CLEAR} ")
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
        _show(f"{_CLEAR} {' · '.join(parts)} · Ctrl-C to stop")

    _show(f" recording into {place} · Ctrl-C to stop")
    try:
        yield tick
    finally:
        _show(f"{_CLEAR} closing the recording\n")


@contextmanager
def working(doing: str, after_s: float = 2.0) -> Iterator[None]:
    """For work of unknown length: shows the elapsed time after two seconds."""
    if not has_cursor(sys.stderr):
        yield
        return
    import threading

    done = threading.Event()
    started = time.monotonic()

    def show() -> None:
        if done.wait(after_s):
            return
        while True:
            _show(f"{_CLEAR} {doing}: {time.monotonic() - started:.0f} s")
            if done.wait(0.5):
                _show(_CLEAR)
                return

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
