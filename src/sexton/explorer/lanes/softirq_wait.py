"""NAPI wait: how long network work waited for its core.

The longest wait of each softirq from raise to entry, over all cores, and what still waits at the
moment of reading. Measured in the kernel by the recorder's probe; where that did not run nothing
is known.
"""

from __future__ import annotations

import numpy as np

from sexton.explorer.tiles.build import Metrics, Part, Taken, places, put
from sexton.explorer.tiles.lines import Lines, stacked
from sexton.explorer.tiles.pyramid import Array
from sexton.explorer.tiles.registry import lane
from sexton.model.softirq import SoftirqWait
from sexton.series.catalogue import (
    PROBE_WATCHED,
    SOFTIRQ_LONGEST,
    SOFTIRQ_PENDING,
    SOFTIRQ_WAITS,
)

_VECTORS = ("NET_RX", "NET_TX")
#: A row is of the second before it; none is written where nothing was raised.
_REACH_S = 1.2


@lane(kind="lines", unit="ms", order=30, needs=(SoftirqWait,))
class Builder(Lines):
    """A line per vector."""

    def __init__(self) -> None:
        super().__init__()
        self._waits = Metrics(SOFTIRQ_LONGEST, SOFTIRQ_PENDING._replace(absent=None), SOFTIRQ_WAITS)
        self._probe = Metrics(PROBE_WATCHED)

    def feed(self, part: Part) -> None:
        probe = self._probe.take(part)
        if probe is not None:
            quiet = np.where(
                probe.values[PROBE_WATCHED.name][0] > 0, np.float32(0), np.float32(np.nan)
            )
            put(self.pyramid, probe.at_most(_REACH_S), stacked([quiet] * len(_VECTORS)))
        taken = self._waits.take(part)
        if taken is None:
            return
        longest, pending, waits = (
            taken.values[each.name] for each in (SOFTIRQ_LONGEST, SOFTIRQ_PENDING, SOFTIRQ_WAITS)
        )
        waited = np.fmax(longest, pending)
        waited[np.isnan(waited) & ~np.isnan(waits)] = 0  # a row, and nothing waited
        vectors = np.array([str(key[1]) for key in taken.things])
        none = np.full((1, len(taken.end)), np.nan, np.float32)
        lines = [
            np.fmax.reduce(np.concatenate([none, waited[vectors == name]])) for name in _VECTORS
        ]
        put_over(self, taken.at_most(_REACH_S), stacked(lines))

    def shown(self) -> list[tuple[int, str]]:
        return [(at, f"{name} longest") for at, name in enumerate(_VECTORS)]


def put_over(lines: Lines, taken: Taken, values: Array) -> None:
    """Over what is there already, which stays where it is higher or nothing new is known."""
    for place in places(taken.start, taken.end):
        lines.pyramid.put(place.columns, values[:, :, place.readings], hotter=True)
