"""Steps of the wall clock, compared with the monotonic clock.

Both are read with every row. Their difference changes slowly while a daemon slews the wall clock
(by at most 500 ppm), and suddenly when the clock is set or the machine was suspended.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sexton.model.row import Row, fields_of
from sexton.model.rows.cpu import ReadyTasks
from sexton.model.rows.net import TcpCounters
from sexton.model.window import Window

#: Small tables that are read every second; recordings of older versions lack the first.
TABLES: tuple[type[Row], ...] = (ReadyTasks, TcpCounters)
#: adjtimex(2): the kernel slews no faster.
_SLEW = 500e-6
#: After a longer gap between readings, slewing and stepping look the same.
_GAP_S = 600.0


class ClockStep(NamedTuple):
    """The wall clock was set by `seconds` (positive: forward) before the reading at `mono`."""

    mono: float
    wall: float
    seconds: float


class Clocks(NamedTuple):
    """Steps of the wall clock, oldest first, and the number of readings searched."""

    readings: int
    steps: list[ClockStep]


def clock_steps(window: Window, least_s: float) -> Clocks:
    """Every step of at least `least_s` that lasted for more than one reading.

    If the reader is preempted between the two clocks, a single reading is off: that is not a step.
    For the last reading the two cannot be distinguished, so it is not reported.
    """
    kind = next((kind for kind in TABLES if window.read(kind)), None)
    pieces = list(window.columns(kind, fields_of(kind)[:1])) if kind is not None else []
    if not pieces:
        return Clocks(0, [])
    mono = np.concatenate([piece.mono for piece in pieces])
    wall = np.concatenate([piece.wall for piece in pieces])
    if len(mono) < 4:
        return Clocks(len(mono), [])
    offset = wall - mono
    # The median of three removes a single reading that is off.
    near = np.sort(np.array([offset[:-2], offset[1:-1], offset[2:]]), axis=0)[1]
    at = mono[1:-1]
    gap, jump = np.diff(at), np.diff(near)
    found = np.flatnonzero((np.abs(jump) >= least_s + _SLEW * gap) & (gap <= _GAP_S))
    return Clocks(
        len(mono),
        [
            ClockStep(float(at[place + 1]), float(wall[1:-1][place + 1]), float(jump[place]))
            for place in found
        ],
    )
