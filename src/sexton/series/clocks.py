"""The wall clock against the monotonic one: steps, and how far they went.

Both are read together with every row. Their difference changes slowly while a daemon slews the wall
clock (by 500 ppm at most), and at once where the clock is set or a machine was suspended.
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
#: After longer without a reading, slewing and stepping look the same.
_GAP_S = 600.0


class ClockStep(NamedTuple):
    """The wall clock moved by `seconds` (forward is positive) before this monotonic second."""

    mono: float
    wall: float
    seconds: float


class Clocks(NamedTuple):
    """Steps of the wall clock, oldest first, and over how many readings they were looked for."""

    readings: int
    steps: list[ClockStep]


def clock_steps(window: Window, least_s: float) -> Clocks:
    """Every step of at least `least_s` that lasted for more than one reading.

    A thread that was put off between reading the two clocks sees one reading out of line: that is
    no step, and of a last reading nobody knows.
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
    # The median of three neighbours: one reading out of line disappears.
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
