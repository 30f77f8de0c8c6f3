"""How full each local filesystem was, reading by reading."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sexton.model.rows.filesystem import Filesystem
from sexton.model.window import Window
from sexton.series.rates import F64, Bools

_COLUMNS = ("total_bytes", "free_bytes", "available_bytes", "inodes", "free_inodes")
#: Readings are a minute apart; what happened in a longer gap is unknown.
_NEXT_S = 150.0


class Levels(NamedTuple):
    """One filesystem: the time of each reading (monotonic), and its free space in bytes, inodes
    and per cent. NaN is unknown, or not counted by this type of filesystem."""

    mount_point: str
    mono: F64
    total: F64
    free: F64
    available: F64
    available_percent: F64
    free_inodes: F64
    inodes_percent: F64

    def since(self, low: Bools) -> float | None:
        """The earliest possible start of the last stretch of `low`: the reading before its first
        one; `None` if there is no stretch."""
        found = np.flatnonzero(low)
        if not len(found):
            return None
        first = int(found[-1])
        while first and low[first - 1]:
            first -= 1
        begun = self.mono[first]
        if first and begun - self.mono[first - 1] <= _NEXT_S:
            begun = self.mono[first - 1]
        return float(begun)


def levels(window: Window) -> list[Levels]:
    """Every filesystem whose size was read, by mount point."""
    return window.keep("filesystem levels", lambda: _levels(window))


def _levels(window: Window) -> list[Levels]:
    parts: dict[str, list[F64]] = {}
    for piece in window.columns(Filesystem, _COLUMNS):
        for at, (point, *_) in enumerate(piece.things):
            rows = np.array([piece.mono, *(piece.values[name][at] for name in _COLUMNS)])
            parts.setdefault(str(point), []).append(rows[:, ~np.isnan(rows[1])])
    found = []
    for point in sorted(parts):
        mono, total, free, available, inodes, free_inodes = np.concatenate(parts[point], axis=1)
        if len(mono):
            space, nodes = _percent(available, total), _percent(free_inodes, inodes)
            found.append(Levels(point, mono, total, free, available, space, free_inodes, nodes))
    return found


def _percent(left: F64, total: F64) -> F64:
    """NaN if there is no total: btrfs does not count inodes."""
    known = np.where(total > 0, total, np.nan)
    return np.asarray(100 * left / known, dtype=np.float64)
