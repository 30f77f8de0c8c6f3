"""Cores: where each core's time went.

A row per core. User time includes nice, softirq time includes hard interrupts; waiting for I/O
and time stolen by the hypervisor are one. The peak of a column is its second with most system and
softirq time, all of that second. From ``/proc/stat``, once a second.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sexton.detect.detectors.cpu.saturated_core import KERNEL_SHARE
from sexton.explorer.tiles.build import Metrics, Part, Rows, Taken, places, put_at
from sexton.explorer.tiles.lines import Line, Lines, known_mean
from sexton.explorer.tiles.pyramid import HEAT, Array, Pyramid
from sexton.explorer.tiles.registry import Drawing, lane
from sexton.explorer.tiles.tables import TableSpan, clock
from sexton.model.lane import COLUMNS, Marked, Table
from sexton.model.rows.cpu import CoreTimes
from sexton.model.window import Window
from sexton.series.catalogue import CORE_SOFTIRQ, CORE_SYSTEM, CORE_USER, CORE_WAIT
from sexton.series.cores import Shares, core_series, together

CHANNELS = ("user", "system", "softirq", "iowait_steal")
_METRICS = (CORE_USER, CORE_SYSTEM, CORE_SOFTIRQ, CORE_WAIT)
SYSTEM, SOFTIRQ = 1, 2
#: All of a core's time.
WHOLE = 200
_AVERAGE = ("user", "system", "softirq")


#: Nearer to each other than this they are one.
_NEAR_S = 3
#: As many are kept as anyone steps through.
_MOST = 10_000


class _Average(Lines):
    """The mean over all cores."""

    def __init__(self) -> None:
        super().__init__(Metrics(*_METRICS[: len(_AVERAGE)]))
        self.rows.of([(name,) for name in _AVERAGE])

    def lines(self, _source: Metrics, taken: Taken) -> dict[Line, Array]:
        shares = (taken.values[metric.name] for metric in _METRICS)
        return {(name,): known_mean(share) for name, share in zip(_AVERAGE, shares, strict=False)}

    def shown(self) -> list[tuple[Line, str]]:
        return [((name,), name) for name in _AVERAGE] if self.pyramid.tiles else []


@lane(kind="heat", unit=CORE_SYSTEM.unit, order=20, needs=(CoreTimes,))
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
        average = np.stack(list(self._average.lines(self._counters, taken).values()))
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
        return tuple(f"core {core}" for core in sorted(self.cores))

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

    def preload(self, span: TableSpan) -> None:
        for window in span.windows:
            core_series(window)

    def table(self, lane: str, span: TableSpan, most: int) -> Table:
        """A row per core, those with the highest peak first."""
        if lane == "average":
            return self._average.table(lane, span, most)
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


def _over(window: Window, span: TableSpan) -> Iterator[tuple[int, Shares, float, float]]:
    """Every core with its shares of the span, its highest kernel share in a step, and when."""
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


def spikes(cores: Builder) -> list[Marked]:
    """Stretches in which some core did nothing but kernel work, in order: where "next spike" goes.

    By the detector's own limit, second by second. Where no core reached it, half
    of it counts: a key that never finds anything is of no use.
    """
    seconds, held, which = [], [], []
    for tile in cores.pyramid.tiles:
        found = cores.kernel_time(tile)
        if found is not None:
            seconds.append(np.arange(COLUMNS) + tile * COLUMNS)
            held.append(found[0])
            which.append(found[1])
    if not seconds:
        return []
    second, half, core = (np.concatenate(group) for group in (seconds, held, which))
    limit = 2 * KERNEL_SHARE.value
    if not (half >= limit).any():
        limit /= 2
    hot = np.flatnonzero(half >= limit)
    if not len(hot):
        return []
    breaks = np.flatnonzero(np.diff(second[hot]) > _NEAR_S) + 1
    made = []
    for run in np.split(hot, breaks)[:_MOST]:
        most = run[int(half[run].argmax())]
        share = min(float(half[most]) / 2, 100.0)
        start, end = float(second[run[0]]), float(second[run[-1]] + 1)
        about = f"core {int(core[most])}"
        text = f"{about} in the kernel {share:.0f} % of a second, for {end - start:.0f} s"
        made.append(Marked(start, end, "spike", text, "warning", about, "cores"))
    return made
