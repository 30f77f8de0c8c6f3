"""What every report on a capture says: host, time range, lost samples, problems."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sexton.model.profile import Facts
from sexton.model.text import count, printable, seconds, shorten
from sexton.reports.text import blocks

_MOST_PROBLEMS = 4
#: Labels of a profile's reports are narrower than those of a verdict.
labelled = partial(blocks.labelled, indent=8)


class Times(NamedTuple):
    """Times of a capture as text: wall clock where known, else seconds from its start.

    `wall_s` gives UNIX seconds for a time of the capture's own clock.
    """

    start_ns: int
    wall_s: Callable[[int], float | None]

    def since(self, time_ns: int) -> float:
        """Seconds from the capture's start."""
        return (time_ns - self.start_ns) / 1e9

    def clock(self, time_ns: int, digits: int = 0) -> str:
        """``02:14:07.32`` here, or ``+127.32`` where the capture has no wall clock.

        >>> times = Times(10**9, lambda time_ns: None)
        >>> times.clock(2 * 10**9), times.clock(8 * 10**8), times.clock(0, 1)
        ('+1', '+0', '-1.0')
        """
        wall = self.wall_s(time_ns)
        shown = None if wall is None else _clock(wall, digits)
        rounded = round(self.since(time_ns), digits) + 0.0  # -0.0 becomes 0.0
        return f"{rounded:+.{digits}f}" if shown is None else shown

    def date(self, time_ns: int) -> str:
        """``2026-11-15 02:12:00 UTC``; empty without a wall clock."""
        wall = self.wall_s(time_ns)
        try:
            return "" if wall is None else time.strftime("%F %T %Z", time.localtime(wall))
        except (OverflowError, OSError, ValueError):
            return ""

    @property
    def has_wall(self) -> bool:
        return self.wall_s(self.start_ns) is not None


@dataclass(frozen=True, slots=True)
class Capture:
    """An opened capture. `end_ns` is `None` where the format has no timestamps.

    Samples are counted on first use: that takes time for hours of recording. `events` are the
    names of the sampled events.
    """

    facts: Facts
    times: Times
    end_ns: int | None
    counted: Callable[[], int]
    events: tuple[str, ...] = ()

    @property
    def samples(self) -> int:
        return self.counted()

    @property
    def name(self) -> str:
        """The host's name, else the name of the file."""
        name = self.facts.host or self.facts.path.rstrip("/").rpartition("/")[2] or "capture"
        return shorten(printable(name), 48)

    @property
    def span_s(self) -> float | None:
        return None if self.end_ns is None else self.times.since(self.end_ns)


def identity(capture: Capture) -> str:
    """One line: cores, kernel, span, samples."""
    facts, span = capture.facts, capture.span_s
    parts = [
        count(facts.cores, "core") if facts.cores else "",
        f"Linux {printable(facts.release)}" if facts.release else "",
        _when(capture) if span is not None else "no timestamps",
        count(capture.samples, "sample"),
    ]
    return f"{capture.name}   " + " · ".join(part for part in parts if part)


def _when(capture: Capture) -> str:
    span = seconds(capture.span_s or 0.0)
    date = capture.times.date(capture.times.start_ns)
    return f"{span} from {date}" if date else f"{span}, no wall clock"


def footnotes(capture: Capture, width: int, more: Sequence[str] = ()) -> Iterator[str]:
    """Lost samples, always, and problems."""
    yield from labelled("LOST", [lost(capture.facts)], width)
    yield from _problems(capture, width, more)


def shortfalls(capture: Capture, width: int) -> list[str]:
    """Lost samples and problems below a picture; nothing where there are none."""
    dropped = [lost(capture.facts)] if capture.facts.lost or capture.facts.throttled else []
    lines = [*labelled("LOST", dropped, width), *_problems(capture, width)]
    return ["", *lines] if lines else []


def _problems(capture: Capture, width: int, more: Sequence[str] = ()) -> Iterator[str]:
    known = [printable(problem) for problem in (*capture.facts.problems, *more)]
    problems = list(dict.fromkeys(known))
    shown = problems[:_MOST_PROBLEMS]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more: see --json")
    yield from labelled("PROBLEMS", shown, width)


def lost(facts: Facts) -> str:
    """Lost samples and throttling in words; unknown is not zero.

    >>> lost(Facts(lost=0, throttled=0))
    'no samples lost, not throttled'
    >>> lost(Facts(lost=1200, throttled=None))
    '1,200 samples lost, throttling unknown'
    """
    if facts.lost is None and facts.throttled is None:
        return "unknown: this format does not record lost samples"
    dropped = {None: "number of lost samples unknown", 0: "no samples lost"}.get(
        facts.lost, f"{count(facts.lost or 0, 'sample')} lost"
    )
    throttled = {None: "throttling unknown", 0: "not throttled"}.get(
        facts.throttled, f"throttled {count(facts.throttled or 0, 'time')}"
    )
    return f"{dropped}, {throttled}"


def percent(share: float) -> str:
    """A share in percent, with more digits for small ones.

    >>> [percent(share) for share in (0.0, 0.00004, 0.0042, 0.123, 0.9996)]
    ['0 %', '<0.01 %', '0.42 %', '12.3 %', '100.0 %']
    """
    value = share * 100
    if value == 0:
        return "0 %"
    if abs(value) < 0.01:
        return "<0.01 %"
    return f"{value:.2f} %" if abs(value) < 1 else f"{value:.1f} %"


def significance(q: float) -> str:
    """A q-value, rounded.

    >>> [significance(q) for q in (0.0, 3e-7, 0.0123, 0.5, float("nan"))]
    ['<1e-99', '3e-07', '0.012', '0.50', '-']
    """
    if q != q:
        return "-"
    if q < 1e-99:
        return "<1e-99"
    if q < 0.001:
        return f"{q:.0e}"
    return f"{q:.3f}" if q < 0.1 else f"{q:.2f}"


def _clock(wall_s: float, digits: int) -> str | None:
    """
    >>> _clock(1794708847.32, 2)[-3:], _clock(1794708847.999, 2)[-3:]
    ('.32', '.00')
    """
    try:
        whole, parts = divmod(round(wall_s * 10**digits), 10**digits)
        hms = time.strftime("%T", time.localtime(whole))
    except (OverflowError, OSError, ValueError):
        return None
    return f"{hms}.{parts:0{digits}d}" if digits else hms
