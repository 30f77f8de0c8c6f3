"""Tables: the visible span of a lane as text.

A table reads the span from `sexton.series`, as detectors do, so the page and the verdict give the
same number for the same seconds. Tiles are rounded pictures of the same values.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from sexton.explorer.tiles.build import Taken, places
from sexton.explorer.tiles.pyramid import Array, Ints
from sexton.model.aligned import F64
from sexton.model.lane import COLUMNS, MOST_TILES, TOP
from sexton.replay.span import Span, unbroken
from sexton.replay.window import RecordedWindow
from sexton.store.recording import Recording

#: A step into the span begins with a reading before it: tables of lanes are read at least this
#: often.
_REACH_S = 120.0


class TableSpan:
    """From `start` to `end` (UNIX seconds), with a window per boot that ran then."""

    def __init__(self, recording: Recording, start: float, end: float) -> None:
        self.start, self.end = start, end
        self._recording = recording

    @cached_property
    def windows(self) -> list[RecordedWindow]:
        """Opened on first use; each extends a little beyond the span."""
        low, high = self.start - _REACH_S, self.end + _REACH_S
        boots: dict[str, list[tuple[float, float]]] = {}
        for span in unbroken(self._recording):
            (mono, wall), (_, until) = span.start, span.end
            if until >= low and wall <= high:
                ends = (max(low, wall), min(high, until))
                boots.setdefault(span.boot_id, []).extend((end - wall + mono, end) for end in ends)
        spans = (Span(boot, min(ends), max(ends)) for boot, ends in boots.items())
        return [RecordedWindow(self._recording, span) for span in spans]


class TableColumns:
    """Means and peaks of lines over columns of `1 << level` seconds, as tiles have them: a step
    counts in the seconds whose middles it contains, else in that of its own middle; its time is
    divided among them. The mean is over known time.
    """

    def __init__(self, first: int, number: int, level: int) -> None:
        self.first, self.number, self.level = first, number, level

    def mean_and_peak(self, parts: Sequence[tuple[Taken, Array]]) -> tuple[F64, F64]:
        """The value of one line from all its parts; NaN if unknown."""
        total, known = np.zeros(self.number), np.zeros(self.number)
        peak = np.full(self.number, -np.inf)
        for taken, values in parts:
            step, column, weight = self._places(taken)
            value = values[step].astype(np.float64)
            fine = ~np.isnan(value)
            column, weight, value = column[fine], weight[fine], value[fine]
            total += np.bincount(column, weight * value, self.number)
            known = np.maximum(known, np.bincount(column, weight, self.number))
            np.maximum.at(peak, column, value)
        with np.errstate(divide="ignore", invalid="ignore"):
            return total / known, np.where(np.isinf(peak), np.nan, peak)

    def _places(self, taken: Taken) -> tuple[Ints, Ints, F64]:
        """Which step counts in which column, with which weight."""
        found = list(places(taken.start, taken.end))
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        step, second, part = (
            np.concatenate(item)
            for item in zip(*((at.readings, at.columns, at.part) for at in found), strict=True)
        )
        column = (second >> self.level) - self.first
        inside = (column >= 0) & (column < self.number)
        step = step[inside]
        return step, column[inside], taken.seconds[0][step] * part[inside]


def level_for(start: float, end: float, most: int) -> int:
    """The finest level at which the span has at most `most` columns.

    >>> level_for(0, 100, 200), level_for(0, 1000, 200), level_for(0, 1e9, 200)
    (0, 3, 12)
    """
    most = max(min(most, COLUMNS * (MOST_TILES - 1)), 1)
    for level in range(TOP):
        if (end - start) / (1 << level) <= most:
            return level
    return TOP


def tiles_of(start: float, end: float, level: int) -> tuple[int, int, int, int]:
    """A span's first column and number of columns, first tile and number of tiles."""
    width = 1 << level
    first = math.floor(start / width)
    number = max(math.ceil(end / width) - first, 1)
    tile = first // COLUMNS
    return first, number, tile, (first + number - 1) // COLUMNS - tile + 1


def clock(wall_s: float) -> str:
    """A time in UTC.

    >>> clock(0.25)
    '1970-01-01 00:00:00'
    """
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(math.floor(wall_s)))
    except (OverflowError, OSError, ValueError):
        return f"{wall_s:.0f}"


def number(value: float) -> str:
    """
    >>> number(float("nan")), number(0.0), number(1234567.0), number(3.25), number(0.0042)
    ('unknown', '0', '1,234,567', '3.25', '0.0042')
    """
    if math.isnan(value):
        return "unknown"
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
