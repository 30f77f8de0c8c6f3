"""Cores: where each core's time went.

A row per core. User time includes nice, softirq time includes hard interrupts; waiting for I/O
and time stolen by the hypervisor are one. The peak of a column is its second with most system and
softirq time, all of that second; its mean is the time spent divided by the time given. From
``/proc/stat``, once a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sexton.detect.detectors.cpu.saturated_core import HELD, KERNEL_SHARE
from sexton.explorer.tiles.build import Metrics, Part, Rows, Taken, places, put
from sexton.explorer.tiles.lines import Line, Lines, PyramidLane
from sexton.explorer.tiles.pyramid import HEAT, Array, Cells, Pyramid
from sexton.explorer.tiles.registry import Drawing, lane
from sexton.explorer.tiles.tables import TableSpan, clock
from sexton.model.lane import Marked, Table
from sexton.model.rows.cpu import CoreTimes
from sexton.model.text import count
from sexton.model.window import Window
from sexton.series.catalogue import CORE_SOFTIRQ, CORE_SYSTEM, CORE_USER, CORE_WAIT
from sexton.series.cores import (
    CoreSeries,
    HeldSoFar,
    Hold,
    Shares,
    all_cores,
    core_series,
    together,
)

CHANNELS = ("user", "system", "softirq", "iowait_steal")
_METRICS = (CORE_USER, CORE_SYSTEM, CORE_SOFTIRQ, CORE_WAIT)
SYSTEM, SOFTIRQ = 1, 2
#: All of a core's time.
WHOLE = 200
_AVERAGE = ("user", "system", "softirq")


#: Spikes closer together than this are one.
_NEAR_S = 3
#: More spikes than anyone steps through.
_MOST = 10_000


class _Average(Lines):
    """All cores together: the time spent divided by the time given."""

    def __init__(self) -> None:
        super().__init__(Metrics(*_METRICS[: len(_AVERAGE)]))
        self.rows.of([(name,) for name in _AVERAGE])

    def take(self, cores: CoreSeries) -> None:
        """Add the steps of a piece."""
        taken = _all_cores(cores)
        self.put(taken, self.lines(self.sources[0], taken))

    def over(self, _source: Metrics, window: Window) -> Taken | None:
        cores = core_series(window)
        return None if cores is None else _all_cores(cores)

    def lines(self, _source: Metrics, taken: Taken) -> dict[Line, Array]:
        return {(name,): taken.values[name][0] for name in _AVERAGE}

    def shown(self) -> list[tuple[Line, str]]:
        return [((name,), name) for name in _AVERAGE] if self.pyramid.tiles else []


def _all_cores(cores: CoreSeries) -> Taken:
    """The steps of all cores as those of one, with a core's share of the time they were given."""
    every = all_cores(cores)
    kinds = (every.percent(kind) for kind in (every.user, every.system, every.softirq))
    start = every.wall - (every.end - every.start)
    values = dict(zip(_AVERAGE, kinds, strict=True))
    weight = every.given / np.float32(max(len(cores.cores), 1))
    return Taken(start, every.wall, every.things, values, weight)


@lane(kind="heat", draws=_METRICS, order=20, needs=(CoreTimes,), limit=KERNEL_SHARE)
class Builder(PyramidLane):
    """Builds this lane and the average over all cores, which is another lane."""

    def __init__(self) -> None:
        self.pyramid = Pyramid(HEAT, len(CHANNELS), hot=(SYSTEM, SOFTIRQ))
        self.average = _Average()
        self._counters = Metrics(*_METRICS)
        self._rows = Rows()
        self._so_far = HeldSoFar()
        self._held: dict[tuple[int, float], Hold] = {}
        self._busiest: list[Array] = []

    def ahead(self, part: Part) -> None:
        self._counters.ahead(part)

    def feed(self, part: Part) -> None:
        taken = self._counters.take(part)
        if taken is None:
            return
        cores = [key[0] for key in taken.things]
        share = np.stack(list(taken.values.values()))  # per cent
        share *= np.float32(2)
        share += np.float32(0.5)
        np.nan_to_num(share, copy=False, nan=HEAT.absent)
        halves = share.astype(np.uint8)
        given = self._rows.spread(cores, taken.seconds[None], 0)[0]
        cells = Cells(self._rows.spread(cores, halves, HEAT.absent), given)
        put(self.pyramid, places(taken.start, taken.end), cells)
        if self._counters.cores is not None:
            self.average.take(self._counters.cores)
            self._look_for_spikes(self._counters.cores)

    def _look_for_spikes(self, cores: CoreSeries) -> None:
        for hold in self._so_far.add(cores, KERNEL_SHARE.value):
            if hold.lasts(HELD.value):
                self._held[hold.core, hold.wall_start] = hold
        kernel = np.nan_to_num(cores.percent(cores.kernel), nan=-1.0)
        if kernel.size:
            most = kernel.argmax(axis=0)
            share = kernel[most, np.arange(len(most))]
            seconds = cores.end - cores.start
            self._busiest.append(
                np.stack([cores.wall, seconds, share, np.array(cores.cores)[most]])
            )

    def settle(self) -> None:
        self.pyramid.settle()
        self.average.settle()

    def forget(self, before: float) -> None:
        self.pyramid.forget(before)
        self.average.forget(before)
        self._held = {key: hold for key, hold in self._held.items() if hold.wall > before}
        self._busiest = [part for part in self._busiest if part[0, -1] > before]

    @property
    def cores(self) -> list[int]:
        return list(self._rows)

    def names(self, lane: str) -> tuple[str, ...]:
        if lane == "average":
            return self.average.names(lane)
        return tuple(f"core {core}" for core in sorted(self.cores))

    def draw(self, lane: str, level: int, first: int, count: int) -> Drawing:
        if lane == "average":
            return self.average.draw(lane, level, first, count)
        planes = self.pyramid.planes(level, first, count)
        order = np.argsort(np.array(self.cores, np.int64), kind="stable")
        if (order != np.arange(len(order))).any():
            planes = {name: plane[:, order] for name, plane in planes.items()}
        return Drawing(self.names(lane), CHANNELS, planes)

    def preload(self, span: TableSpan) -> None:
        for window in span.windows:
            core_series(window)

    def table(self, lane: str, span: TableSpan, most: int) -> Table:
        """A row per core, those with the highest peak first."""
        if lane == "average":
            return self.average.table(lane, span, most)
        found: dict[int, list[tuple[Shares, float, float]]] = {}
        for window in span.windows:
            for core, shares, kernel, wall in _over(window, span):
                found.setdefault(core, []).append((shares, kernel, wall))
        rows = []
        for core, parts in found.items():
            shares = together([item for item, _, _ in parts])
            _, kernel, wall = max(parts, key=lambda part: part[1])
            rows.append((kernel, core, shares, wall))
        rows.sort(key=lambda row: (-row[0], row[1]))
        cells = tuple(
            (f"core {core}", *(f"{part:.1f} %" for part in shares[:4]), f"{kernel:.1f} %",
             clock(wall))
            for kernel, core, shares, wall in rows[:most]
        )  # fmt: skip
        headings = ("core", *CHANNELS[:3], "I/O wait and steal", "peak in the kernel", "at")
        return Table(headings, cells, max(len(rows) - most, 0))

    @property
    def bytes(self) -> int:
        busiest = sum(part.nbytes for part in self._busiest)
        return self.pyramid.bytes + self.average.bytes + busiest

    def spikes(self) -> list[Marked]:
        """When cores were held in the kernel, sorted: the targets of "next spike".

        By the detector of held cores, with its limits. If no core was held, steps above half of its
        share count: a key that never finds anything is useless.
        """
        found = [
            _Spike(hold.wall_start, hold.wall, hold.core, hold.seconds, f"for {hold.seconds:.1f} s")
            for hold in self._held.values()
        ]
        groups: list[list[_Spike]] = []
        reached = -np.inf
        for spike in sorted(found or self._busy_steps()):
            if spike.start > reached + _NEAR_S:
                groups.append([])
            groups[-1].append(spike)
            reached = max(reached, spike.end)
        return [_marked(group) for group in groups[:_MOST]]

    def _busy_steps(self) -> Iterator[_Spike]:
        for part in self._busiest:
            for end, lasted, share, core in part[:, part[2] >= KERNEL_SHARE.value / 2].T.tolist():
                words = f"{share:.0f} % of {lasted:.1f} s"
                yield _Spike(end - lasted, end, int(core), share, words)


class _Spike(NamedTuple):
    """Of a group the one with the largest `weight` is named."""

    start: float
    end: float
    core: int
    weight: float
    words: str


def _marked(group: list[_Spike]) -> Marked:
    worst = max(group, key=lambda spike: spike.weight)
    about = f"core {worst.core}"
    others = len({spike.core for spike in group}) - 1
    more = f" (and {count(others, 'more core')})" if others else ""
    text = f"{about}{more} in the kernel {worst.words}"
    return Marked(worst.start, worst.end, "spike", text, "warning", about, "cores")


def _over(window: Window, span: TableSpan) -> Iterator[tuple[int, Shares, float, float]]:
    """Per core: its shares of the span, its highest kernel share in a step, and when that was."""
    series = core_series(window)
    if series is None:
        return
    start, end = window.mono(span.start), window.mono(span.end)
    every = series.over(start, end)
    inside = series.part(series.times.inside(start, end))
    kernel = inside.percent(inside.kernel)
    for row, core in enumerate(inside.cores):
        if core in every:
            at = int(np.nanargmax(kernel[row]))
            began = float(inside.wall[at] - (inside.end[at] - inside.start[at]))
            yield core, every[core], float(kernel[row, at]), began
