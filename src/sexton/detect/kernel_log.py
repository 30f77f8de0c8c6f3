"""Kernel log lines with their age, and how far back the log reaches.

The ring buffer is small and drops old lines, so "no such line" proves nothing about the time before
the oldest line: every detector that reads the log says how far back it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sexton.detect.findings import unread
from sexton.detect.rows_read import remembered
from sexton.model.finding import Evidence, Missing
from sexton.model.rows.event import KernelEvent, KernelLog
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window

#: A log line of "today" is at most this old.
DAY_S = 86400.0
#: The log's clock and CLOCK_MONOTONIC drift apart by seconds in weeks; more is another boot.
_DRIFT_S = 60.0
#: A log whose first line is younger than this holds the whole boot.
_BOOT_S = 5.0
#: A log that is flooded is read again by each detector rather than kept in memory.
_MOST_KEPT = 50_000


class Line(NamedTuple):
    """One event of the log. `wall_s`, and `age_s` at the end of the window, are `None` if the line
    has no usable timestamp."""

    event: KernelEvent
    wall_s: float | None
    age_s: float | None

    @property
    def ago(self) -> str:
        """How long before the end of the window it was logged: "5 min ago"."""
        return "at an unknown time" if self.age_s is None else f"{duration(self.age_s)} ago"

    def number(self, field: str) -> int | None:
        value = self.event.fields.get(field)
        return value if isinstance(value, int) else None

    def text(self, field: str) -> str | None:
        value = self.event.fields.get(field)
        return None if value is None else str(value)


def was_read(window: Window) -> bool:
    """Was the log read? An empty log counts."""
    return window.read(KernelLog)


def lacking(window: Window) -> tuple[Missing, ...]:
    """What is missing if the log was not read."""
    return unread(window, KernelLog)


def lines(window: Window, families: Iterable[str]) -> list[Line]:
    """The lines of these families, the oldest first."""
    known = _by_family(window)
    placed = sorted(entry for name in dict.fromkeys(families) for entry in known.get(name, ()))
    kept = [line for _, line in placed]
    dated = all(line.age_s is not None for line in kept)
    return sorted(kept, key=lambda line: -(line.age_s or 0.0)) if dated else kept


def _by_family(window: Window) -> dict[str, list[tuple[int, Line]]]:
    """Every line with its place in the log; a dozen detectors need a few families each."""
    if window.row_count(KernelEvent) > _MOST_KEPT:
        return _read(window)
    return window.keep("kernel lines", lambda: _read(window))


def _read(window: Window) -> dict[str, list[tuple[int, Line]]]:
    found: dict[str, list[tuple[int, Line]]] = {}
    for place, event in enumerate(window.all(KernelEvent) or ()):
        found.setdefault(event.family, []).append((place, _dated(window, event)))
    return found


def _dated(window: Window, event: KernelEvent) -> Line:
    if event.wall_s is not None:
        return Line(event, event.wall_s, max(0.0, window.end - event.wall_s))
    if event.mono_us is not None:
        age = window.end_mono - event.mono_us / 1e6
        if age >= -_DRIFT_S:
            return Line(event, window.end - max(0.0, age), max(0.0, age))
    return Line(event, None, None)


class Reach(NamedTuple):
    """How far back the log goes: `seconds` before the window's end, `None` if it has no dates."""

    seconds: float | None
    whole_boot: bool
    lost: int
    origin: str

    @property
    def words(self) -> str:
        """For the end of a summary: "since boot", "in the last 3 h 2 min"."""
        if self.whole_boot:
            return "since boot"
        if self.seconds is None:
            return "in an undated log"
        return f"in the last {duration(self.seconds)}"

    @property
    def wrong_if(self) -> str:
        """What an empty log may have missed."""
        lost = f"{count(self.lost, 'record')} lost; " if self.lost else ""
        return f"{lost}it happened before the log begins" if not self.whole_boot else lost[:-2]

    @property
    def covers_a_day(self) -> bool:
        return self.lost == 0 and self.covers(DAY_S)

    def covers(self, seconds: float) -> bool:
        """Whether it goes back that far, or to the boot."""
        return self.whole_boot or (self.seconds or 0.0) >= seconds

    def no_lines(
        self, what: str, wrong_if: str = "the lines were lost", number: float = 0
    ) -> Evidence:
        """Evidence that the log has no such line; `wrong_if` is for a log of the whole boot."""
        reason = self.wrong_if or wrong_if
        return Evidence(what, "0", "0", self.words, self.origin, number, reason)


#: Of a log that was not read.
NO_REACH = Reach(None, False, 0, "kernel log")


@remembered
def reach(window: Window) -> Reach | None:
    """How far back the log goes; `None` if it was not read."""
    if not window.read(KernelLog):
        return None
    logs = list(window.changes(KernelLog, ("oldest_mono_us", "lost", "origin")))
    starts = [log.oldest_mono_us for log in logs if log.oldest_mono_us is not None]
    lost = max((log.lost for log in logs), default=0)
    origin = next((log.origin for log in logs if log.origin), "/dev/kmsg")
    if not starts:
        return Reach(None, False, lost, origin)
    oldest_s = min(starts) / 1e6
    back = max(0.0, window.end_mono - oldest_s)
    return Reach(back, oldest_s <= _BOOT_S and lost == 0, lost, origin)


def bursts(found: Iterable[Line], key: Callable[[Line], str | None], gap_s: float) -> list[Burst]:
    """Lines about one thing logged close together: a driver writes several lines per reset.

    The catalogue's `phase` separates events: a "cause" or "start" after "done" or "failed" begins
    the next one.
    """
    made: list[Burst] = []
    undated: dict[str | None, list[Line]] = {}
    latest: dict[str | None, Burst] = {}
    for line in found:
        name = key(line)
        if line.wall_s is None:
            undated.setdefault(name, []).append(line)
            continue
        last = latest.get(name)
        if last is not None and last.continues_with(line, gap_s):
            last.lines.append(line)
        else:
            latest[name] = Burst(name, [line])
            made.append(latest[name])
    for name, group in undated.items():
        # Each event logs each of its lines once: the most frequent line counts the events.
        by_pattern: dict[str, list[Line]] = {}
        for line in group:
            by_pattern.setdefault(line.event.pattern, []).append(line)
        most = max(len(lines) for lines in by_pattern.values())
        made += [
            Burst(name, [lines[turn] for lines in by_pattern.values() if turn < len(lines)])
            for turn in range(most)
        ]
    return made


@dataclass(slots=True)
class Burst:
    """Lines about one event."""

    name: str | None
    lines: list[Line]

    @property
    def age_s(self) -> float | None:
        return self.lines[-1].age_s

    @property
    def wall_s(self) -> float | None:
        return self.lines[-1].wall_s

    def continues_with(self, line: Line, gap_s: float) -> bool:
        """Is this dated line still about the same event?"""
        last = self.lines[-1]
        if last.text("phase") in ("done", "failed") and line.text("phase") in ("cause", "start"):
            return False
        return (line.wall_s or 0.0) - (last.wall_s or 0.0) <= gap_s
