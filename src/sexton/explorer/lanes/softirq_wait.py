"""NAPI wait: how long network work waited for its core.

The longest wait of each softirq from raise to entry, over all cores, including one that still waits
when it is read. Measured in the kernel by the recorder's probe; unknown if that did not run.
"""

from __future__ import annotations

import numpy as np

from sexton.explorer.tiles.build import Metrics, Taken
from sexton.explorer.tiles.lines import Line, Lines
from sexton.explorer.tiles.pyramid import Array
from sexton.explorer.tiles.registry import lane
from sexton.model.rows.cpu import SoftirqWait
from sexton.series.catalogue import PROBE_WATCHED, SOFTIRQ_LONGEST, SOFTIRQ_PENDING, SOFTIRQ_WAITS

_VECTORS = ("NET_RX", "NET_TX")
#: A row covers the second before it; none is written if nothing was raised.
_REACH_S = 1.2


@lane(kind="lines", draws=(SOFTIRQ_LONGEST,), order=30, needs=(SoftirqWait,))
class Builder(Lines):
    """Builds a line per vector: the longest wait, 0 if the probe ran and no row was written."""

    reach_s = _REACH_S

    def __init__(self) -> None:
        self._probe = Metrics(PROBE_WATCHED)
        pending = SOFTIRQ_PENDING._replace(absent=None)
        super().__init__(self._probe, Metrics(SOFTIRQ_LONGEST, pending, SOFTIRQ_WAITS))

    def lines(self, source: Metrics, taken: Taken) -> dict[Line, Array]:
        if source is self._probe:
            watched = taken.values[PROBE_WATCHED.name][0] > 0
            quiet = np.where(watched, np.float32(0), np.float32(np.nan))
            return {(name,): quiet for name in _VECTORS}
        longest, pending, waits = (
            taken.values[metric.name]
            for metric in (SOFTIRQ_LONGEST, SOFTIRQ_PENDING, SOFTIRQ_WAITS)
        )
        waited = np.fmax(longest, pending)
        waited[np.isnan(waited) & ~np.isnan(waits)] = 0  # a row, and nothing waited
        vectors = np.array([str(key[1]) for key in taken.things])
        none = np.full((1, len(taken.end)), np.nan, np.float32)
        return {
            (name,): np.fmax.reduce(np.concatenate([none, waited[vectors == name]]))
            for name in _VECTORS
        }

    def shown(self) -> list[tuple[Line, str]]:
        return [((name,), f"{name} longest") for name in _VECTORS if (name,) in self.rows]
