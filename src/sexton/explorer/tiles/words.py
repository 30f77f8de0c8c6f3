"""Lanes in words: the table of the visible span, which every canvas has beside it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from sexton.model.lane import COLUMNS, MOST_TILES, TOP
from sexton.model.text import printable


def level_for(start: float, end: float, most: int) -> int:
    """The finest level at which the span has at most so many columns.

    >>> level_for(0, 100, 200), level_for(0, 1000, 200), level_for(0, 1e9, 200)
    (0, 3, 12)
    """
    most = max(min(most, COLUMNS * (MOST_TILES - 1)), 1)
    for level in range(TOP):
        if (end - start) / (1 << level) <= most:
            return level
    return TOP


def tiles_of(start: float, end: float, level: int) -> tuple[int, int, int, int]:
    """The first column of a span, how many there are, and the tiles that hold them."""
    width = 1 << level
    first = math.floor(start / width)
    number = max(math.ceil(end / width) - first, 1)
    tile = first // COLUMNS
    return first, number, tile, (first + number - 1) // COLUMNS - tile + 1


def clock(wall_s: float, level: int = 0) -> str:
    """A moment in UTC, as exact as a column is.

    >>> clock(0.25), clock(86399.98, -1)
    ('1970-01-01 00:00:00', '1970-01-01 23:59:59.980')
    """
    try:
        text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(math.floor(wall_s)))
    except (OverflowError, OSError, ValueError):
        return f"{wall_s:.0f}"
    return text if level >= 0 else f"{text}.{math.floor(wall_s * 1000 + 0.5) % 1000:03d}"


def number(value: float) -> str:
    """
    >>> number(float("nan")), number(0.0), number(1234567.0), number(3.25), number(0.0042)
    ('not known', '0', '1,234,567', '3.25', '0.0042')
    """
    if math.isnan(value):
        return "not known"
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def names(things: Sequence[object]) -> tuple[str, ...]:
    """As a page may show them."""
    return tuple(printable(str(each)) for each in things)
