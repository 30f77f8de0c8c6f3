"""Calm windows to compare a spike with: same cores, same length, close in time.

At most twenty, the nearest first, before and after. For a periodic load they are whole periods
away, so that a burst due at that moment is in them too. If there are too few, shorter windows are
used (their shares vary more, so the test only gets stricter), and finally other cores at the same
time; a note says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sexton.model.profile import Bools
from sexton.profile.spikes.baseline import Period
from sexton.profile.spikes.grid import Grid
from sexton.profile.spikes.spike import SECOND_NS

WANTED = 20
#: With fewer windows of the same cores, shorter ones are used, then other cores.
ENOUGH = 8
_HOUR = 3600
#: Only this much of a longer spike is analysed.
LONGEST_NS = 60 * SECOND_NS


class Window(NamedTuple):
    """A stretch of time of some cores. `trials` is the number of possible samples."""

    start_ns: int
    end_ns: int
    cpus: tuple[int, ...]
    trials: float


class Matched(NamedTuple):
    """The windows to compare with, and a note on them."""

    windows: list[Window]
    note: str


def window_of(grid: Grid, rows: Sequence[int], start_ns: int, end_ns: int) -> Window | None:
    """`None` if it leaves the capture or one of its seconds was not sampled."""
    first = start_ns // SECOND_NS - grid.first
    last = -(-end_ns // SECOND_NS) - grid.first
    if first < 0 or last > grid.seconds or last <= first:
        return None
    trials = grid.trials[np.asarray(rows, np.int64), first:last]
    if not trials.all():
        return None
    capacity = float(trials.mean(axis=1).sum()) * (end_ns - start_ns) / SECOND_NS
    cpus = tuple(int(grid.cpus[row]) for row in rows)
    return Window(start_ns, end_ns, cpus, capacity)


def matched(
    grid: Grid, loud: Bools, rows: Sequence[int], span_ns: tuple[int, int], period: Period | None
) -> Matched:
    """`loud` are the core-seconds that calm windows exclude."""
    start, end = span_ns
    taken: Bools = np.asarray(loud[np.asarray(rows, np.int64)].any(axis=0))
    found: list[Window] = []
    parts = 1
    while parts == 1 or (end - start) // parts >= SECOND_NS:
        more = _own(grid, taken, rows, (start, start + (end - start) // parts), period)
        if len(more) > len(found):
            found, length = more, (end - start) // parts
        if len(found) >= ENOUGH:
            break
        parts *= 2
    if len(found) >= ENOUGH:
        remarks = []
        if length < end - start:
            remarks.append(f"each {length / SECOND_NS:.1f} s long")
        if period is not None:
            remarks.append("each a whole number of periods away")
        return Matched(found, "; ".join(remarks))
    others = []
    for row in range(len(grid.cpus)):
        if row in rows:
            continue
        window = window_of(grid, [row], start, end)
        if window is not None and not _touches(loud[row], grid, window):
            others.append(window)
    if len(others) + len(found) == 0:
        return Matched([], "no calm window to compare with")
    note = f"only {len(found)} on the same core"
    if others:
        others = others[: WANTED - len(found)]
        note += f", {len(others)} on other cores at the same time"
    return Matched(found + others, note)


def _own(
    grid: Grid, taken: Bools, rows: Sequence[int], span_ns: tuple[int, int], period: Period | None
) -> list[Window]:
    start, end = span_ns
    found: list[Window] = []
    for shift in _shifts(end - start, period):
        window = window_of(grid, rows, start + shift, end + shift)
        if window is None or _touches(taken, grid, window):
            continue
        found.append(window)
        if len(found) == WANTED:
            break
    return found


def _shifts(length_ns: int, period: Period | None) -> Iterator[int]:
    step = math.ceil(length_ns / SECOND_NS) * SECOND_NS
    if period is not None:
        cycle = round(period.seconds * SECOND_NS)
        step = cycle * max(1, -(-length_ns // cycle))
    for times in range(1, _HOUR * SECOND_NS // step + 1):
        yield -times * step
        yield times * step


def _touches(taken: Bools, grid: Grid, window: Window) -> bool:
    first = window.start_ns // SECOND_NS - grid.first
    last = -(-window.end_ns // SECOND_NS) - grid.first
    return bool(taken[max(0, first) : last].any())
