"""Cores: where each core's time went.

A row per core. User time includes nice, softirq time includes hard interrupts; waiting for I/O
and time stolen by the hypervisor are one. The peak of a column is its second with most system and
softirq time, all of that second. From ``/proc/stat``, once a second.
"""

from __future__ import annotations

import numpy as np

from sexton.explorer.tiles.build import Metrics, Part, Rows, places, put_at
from sexton.explorer.tiles.lines import Lines, known_mean
from sexton.explorer.tiles.pyramid import HEAT, Array, Pyramid
from sexton.explorer.tiles.registry import Drawing, lane
from sexton.explorer.tiles.words import clock, level_for, tiles_of
from sexton.model.cpu import CoreTimes
from sexton.model.lane import COLUMNS, Marked, Table
from sexton.series.catalogue import CORE_SOFTIRQ, CORE_SYSTEM, CORE_USER, CORE_WAIT

CHANNELS = ("user", "system", "softirq", "iowait_steal")
_METRICS = (CORE_USER, CORE_SYSTEM, CORE_SOFTIRQ, CORE_WAIT)
SYSTEM, SOFTIRQ = 1, 2
#: All of a core's time.
WHOLE = 200
_AVERAGE = ("user", "system", "softirq")


class _Average(Lines):
    def shown(self) -> list[tuple[int, str]]:
        return list(enumerate(_AVERAGE)) if self.pyramid.tiles else []


@lane(kind="heat", unit="% of a core", order=20, needs=(CoreTimes,))
class Builder:
    """Of all cores, and of their average, which is a lane of its own."""

    comes_late = False

    def __init__(self) -> None:
        self.pyramid = Pyramid(HEAT, len(CHANNELS), hot=(SYSTEM, SOFTIRQ))
        self._average = _Average()
        self._counters = Metrics(*_METRICS)
        self._rows = Rows()

    def ahead(self, part: Part) -> None:
        self._counters.ahead(part)

    def feed(self, part: Part) -> None:
        taken = self._counters.take(part)
        if taken is None:
            return
        cores = [key[0] for key in taken.things]
        share = np.stack(list(taken.values.values()))  # per cent
        average = np.stack([known_mean(each) for each in share[: len(_AVERAGE)]])
        share *= np.float32(2)
        share += np.float32(0.5)
        np.nan_to_num(share, copy=False, nan=HEAT.absent)
        halves = share.astype(np.uint8)
        where = list(places(taken.start, taken.end))
        put_at(self.pyramid, where, self._rows.spread(cores, halves, HEAT.absent))
        put_at(self._average.pyramid, where, average[None].astype(np.float32))

    def settle(self) -> None:
        self.pyramid.settle()
        self._average.settle()

    def forget(self, before: float) -> None:
        self.pyramid.forget(before)
        self._average.forget(before)

    @property
    def cores(self) -> list[int]:
        return list(self._rows)

    def names(self, lane: str) -> tuple[str, ...]:
        if lane == "average":
            return self._average.names(lane)
        return tuple(f"core {each}" for each in sorted(self.cores))

    def draw(self, lane: str, level: int, first: int, count: int) -> Drawing:
        if lane == "average":
            return self._average.draw(lane, level, first, count)
        planes = self.pyramid.planes(level, first, count)
        order = np.argsort(np.array(self.cores, np.int64), kind="stable")
        if (order != np.arange(len(order))).any():
            planes = {name: plane[:, order] for name, plane in planes.items()}
        return Drawing(self.names(lane), CHANNELS, planes)

    def marks(self) -> list[Marked]:
        return []

    def table(self, lane: str, start: float, end: float, most: int) -> Table:
        """A row per core, those with the highest peak first."""
        if lane == "average":
            return self._average.table(lane, start, end, most)
        level = level_for(start, end, 1024)
        first, columns, tile, count = tiles_of(start, end, level)
        drawn = self.draw(lane, level, tile, count)
        part = slice(first - tile * COLUMNS, first - tile * COLUMNS + columns)
        mean, peak = (_percent(drawn.planes[name][:, :, part]) for name in ("mean", "peak"))
        kernel = np.minimum(peak[SYSTEM] + peak[SOFTIRQ], 100.0)  # each is rounded by itself
        there = [at for at in range(len(drawn.names)) if not np.isnan(kernel[at]).all()]
        there.sort(key=lambda at: -float(np.nanmax(kernel[at])))
        rows = []
        for at in there[:most]:
            hottest = int(np.nanargmax(kernel[at]))
            moment = clock((first + hottest) << level)
            means = (_words(_mean(mean[channel, at])) for channel in range(len(CHANNELS)))
            high = _words(float(kernel[at, hottest]))
            rows.append((drawn.names[at], *means, high, moment))
        headings = ("core", *CHANNELS[:3], "I/O wait and steal", "peak in the kernel", "at")
        return Table(headings, tuple(rows), max(len(there) - most, 0))

    @property
    def bytes(self) -> int:
        return self.pyramid.bytes + self._average.bytes

    def kernel_time(self, tile: int) -> Array | None:
        """Per second of a tile the core with most system and softirq time: half percents and which
        core; -1 where nothing is known."""
        found = self.pyramid.second(tile)
        if found is None or not len(self._rows):
            return None
        known = found[SYSTEM] != HEAT.absent
        held = found[SYSTEM].astype(np.int64) + np.where(
            found[SOFTIRQ] == HEAT.absent, 0, found[SOFTIRQ]
        )
        held[~known] = -1
        held = held[: len(self._rows)]
        at = held.argmax(axis=0)
        cores = np.array(self.cores, np.int64)
        return np.stack([held[at, np.arange(COLUMNS)], cores[at]])


def _percent(plane: Array) -> Array:
    return np.where(plane == HEAT.absent, np.nan, plane / 2)


def _mean(values: Array) -> float:
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def _words(value: float) -> str:
    return "not known" if np.isnan(value) else f"{value:.1f} %"
