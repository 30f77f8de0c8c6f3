"""When findings were, and whether one can have led to the other.

A link needs the right order in time. Findings know the span of their worst; where something
happened more than once, the window's own rows tell every moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import TypeVar

from sexton.model.finding import Finding
from sexton.model.row import Row
from sexton.model.window import Window
from sexton.series.steps import Step, span

R = TypeVar("R", bound=Row)
#: The log and the readings disagree by that much.
READ_S = 2.0


def near(cause: Finding, effect: Finding, slack_s: float) -> bool:
    """Did the effect begin while the cause lasted, or within `slack_s` of it?"""
    if cause.start is None or effect.start is None:
        return False
    return cause.start - slack_s <= effect.start <= (cause.end or cause.start) + slack_s


def together(one: Finding, other: Finding, slack_s: float) -> bool:
    """Do their spans touch, give or take `slack_s`? Not where one of them has no moment."""
    if one.start is None or other.start is None:
        return False
    first, last = one.start - slack_s, (one.end or one.start) + slack_s
    return other.start <= last and (other.end or other.start) >= first


def moved(
    window: Window, kind: type[R], key: Callable[[R], Hashable], between: tuple[float, float]
) -> dict[Hashable, Step[R]]:
    """Each entity's step over the readings around a span (UNIX): the last before it to the first
    after it, so that nothing inside is lost."""
    return span(window.between(kind, *(window.mono(value) for value in between)), key)


def clock(wall_s: float | None) -> str:
    """The time of day in UTC.

    >>> clock(1_740_000_002.4), clock(None), clock(1e30)
    ('21:20:02', '', '')
    """
    if wall_s is None:
        return ""
    try:
        return time.strftime("%H:%M:%S", time.gmtime(wall_s))
    except (OverflowError, OSError, ValueError):
        return ""


def day(wall_s: float) -> str:
    """The date in UTC, empty where there is none.

    >>> day(1_740_000_002.4)
    '2025-02-19'
    """
    try:
        return time.strftime("%Y-%m-%d", time.gmtime(wall_s))
    except (OverflowError, OSError, ValueError):
        return ""
