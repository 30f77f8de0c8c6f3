"""Pressure stall information over the window: time in which tasks were stalled, step by step.

The kernel counts on while nothing reads, so there is a step across missing readings, too: its
share is a mean, like that of any other step. Shares of a whole window are of the seconds that were
read, on every surface.

The node's numbers are weighted by how busy each core is: one stalled task among 96 busy cores is
about 1 %, the same task alone on its node 100 %. So a high share hurts on any node, and a low one
may still be all the time of one task.
"""

from __future__ import annotations

from functools import cached_property
from math import fsum, isnan
from typing import NamedTuple

import numpy as np

from sexton.model.counters import delta
from sexton.model.rows.memory import Pressure
from sexton.model.window import Window
from sexton.series.paging import NEAR_S
from sexton.series.rates import F64, Bools, Lazy, counts_on, nearest

#: All of the time, in per cent: under load a reading is dated tens of milliseconds after the
#: kernel counted.
MOST = 100.0


class Level(NamedTuple):
    """One reading of a file in `/proc/pressure`, microseconds since boot; `None` is unknown."""

    mono_s: float
    follows: bool
    some_us: int | None
    full_us: int | None


class Stall(NamedTuple):
    """Stalled time, in per cent of the known `seconds` between two readings."""

    start: float
    end: float
    seconds: float
    some: float
    full: float | None


class Stalls(Lazy[Stall]):
    """Shares between consecutive readings, oldest first; NaN is unknown. `read` is false for steps
    across missing readings."""

    def __init__(self, times: tuple[F64, F64], some: F64, full: F64, read: Bools) -> None:
        self.start, self.end = times
        super().__init__(len(self.start))
        self.some, self.full, self.read = some, full, read

    def make(self, at: int) -> Stall:
        start, end, full = float(self.start[at]), float(self.end[at]), float(self.full[at])
        return Stall(start, end, end - start, float(self.some[at]), None if isnan(full) else full)

    def together(self) -> Stall | None:
        """All steps that were read and in which every share is known that ever is; `None` if there
        is none."""
        has_full = ~np.isnan(self.full)
        known = self.read & has_full if has_full.any() else self.read
        start, end = self.start[known], self.end[known]
        if not len(start):
            return None
        spent = end - start
        seconds = fsum(spent)
        # In whole microseconds, as counted: the sums are the same however the time is cut.
        some, full = (
            float(percent(np.rint(each[known] * spent * 10_000).sum(), seconds))
            for each in (self.some, self.full)
        )
        edges = float(start[0]), float(end[-1])
        return Stall(*edges, seconds, some, None if isnan(full) else full)


class Levels(Lazy[Level]):
    """Readings, oldest first, and the shares between them."""

    def __init__(self, mono: F64, follows: Bools, totals: tuple[F64, F64], over_gaps: bool) -> None:
        super().__init__(len(mono))
        self.mono, self._follows, self._over_gaps = mono, follows, over_gaps
        self._some, self._full = totals

    def make(self, at: int) -> Level:
        mono, follows = float(self.mono[at]), bool(self._follows[at])
        return Level(mono, follows, _known(self._some[at]), _known(self._full[at]))

    @cached_property
    def stalls(self) -> Stalls:
        seconds = np.diff(self.mono)
        some, full = np.diff(self._some), np.diff(self._full)
        full[full < 0] = np.nan
        steps = self._follows[1:] | self._over_gaps
        kept = np.flatnonzero(steps & (seconds > 0) & (some >= 0))
        start, end, spent = self.mono[:-1][kept], self.mono[1:][kept], seconds[kept]
        shares = percent(some[kept], spent), percent(full[kept], spent)
        return Stalls((start, end), *shares, self._follows[1:][kept])


def percent(stalled_us: F64 | float, seconds: F64 | float) -> F64:
    """Stalled time in per cent of so many seconds."""
    made: F64 = np.minimum(stalled_us / 10_000 / seconds, MOST)
    return made


def levels(window: Window, resource: str) -> Levels:
    """Every reading of a resource's pressure, oldest first; empty if the kernel has no PSI."""
    return window.keep(("pressure", resource), lambda: _levels(window, resource))


def whole(window: Window, resource: str) -> Stall | None:
    """All known steps together: gaps are left out. `None` if there is no step."""
    return window.keep(
        ("pressure of the window", resource), lambda: levels(window, resource).stalls.together()
    )


def _levels(window: Window, resource: str) -> Levels:
    none = np.empty(0)
    parts: list[tuple[F64, Bools, F64, F64]] = [(none, np.empty(0, np.bool_), none, none)]
    for piece in window.columns(Pressure, ("total_us",), lambda key: key[0] == resource):
        rows = {kind: piece.values["total_us"][at] for at, (_, kind) in enumerate(piece.things)}
        nothing = np.full(len(piece.mono), np.nan)
        some, full = rows.get("some", nothing), rows.get("full", nothing)
        kept = np.flatnonzero(~(np.isnan(some) & np.isnan(full)))
        parts.append((piece.mono[kept], piece.follows[kept], some[kept], full[kept]))
    mono, follows, some, full = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Levels(mono, follows, (some, full), counts_on(window))


def _known(value: float) -> int | None:
    return None if isnan(value) else int(value)


def between(before: Level, after: Level) -> Stall | None:
    """The shares between any two readings, also across a gap."""
    seconds = after.mono_s - before.mono_s
    some = delta(before.some_us, after.some_us)
    full = delta(before.full_us, after.full_us)
    if some is None:
        return None
    return Stall(
        before.mono_s,
        after.mono_s,
        seconds,
        float(percent(some, seconds)),
        None if full is None else float(percent(full, seconds)),
    )


def over(found: Levels, start: float, end: float) -> Stall | None:
    """The shares between the readings nearest to two moments; `None` if none is near."""
    first, last = nearest(found.mono, start, NEAR_S), nearest(found.mono, end, NEAR_S)
    if first is None or last is None or first >= last:
        return None
    return between(found[first], found[last])
