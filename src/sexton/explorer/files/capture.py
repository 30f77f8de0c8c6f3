"""The lanes of a profile capture: busy share per core, and busy samples per 20 ms.

They have the shape of a recording's lanes (`sexton.model.lane`), so the explorer's page draws both
alike. Columns are seconds of the capture's clock, or powers of two of them in a very long capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.explorer.files.page import Part, top_of
from sexton.model.lane import COLUMNS, TOP, Strip
from sexton.model.profile import CELLS, I64, Heat
from sexton.profile.heat import disjoint
from sexton.series.catalogue import CORE_SAMPLES, SAMPLES

_MOST_ROWS = 120
#: Columns of the finest level.
_LANE_COLUMNS = 65_536
#: Cells of the cores lane; beyond this, cores are left out.
_MOST_CELLS = 40_000_000
_FULL, _NO_HEAT, _NO_SAMPLES = 200, 255, 65_535


class _Cells(NamedTuple):
    """Counts per row and column: seconds seen, sums, and the largest second."""

    seen: npt.NDArray[np.int32]
    sums: npt.NDArray[np.float32]
    peak: npt.NDArray[np.int32]


class CaptureLanes:
    """The lanes of a capture: busy share per core, and samples per 20 ms."""

    def __init__(self, heats: Iterable[Heat], span: Part, hertz: int | None) -> None:
        self.span = span
        self.base = max(int(np.ceil(np.log2(max(span.end - span.start, 1) / _LANE_COLUMNS))), 0)
        self.first = int(span.start) >> self.base
        self.columns = (int(np.ceil(span.end)) - 1 >> self.base) - self.first + 1
        parts = list(disjoint(heats)) if self.base <= TOP else []
        self.left_out = 0
        self.cores = self._cores(parts)
        self._heat = self._core_cells(parts, hertz)
        self._stacks = self._stack_cells(parts)

    @property
    def lanes(self) -> list[dict[str, Any]]:
        """As `recording.lanes` lists them."""
        if not len(self.cores):
            return []
        top = max(top_of(self.span), self.base)
        return [
            {
                "id": "cores",
                "title": "Cores: samples per core",
                "kind": "heat",
                "unit": CORE_SAMPLES,
                "about": "Share of a core's samples in user space and in the kernel, per second. "
                "Hatched: not sampled.",
                "series": self._names,
                "channels": ["user", "system"],
                "levels": [self.base, top],
            },
            {
                "id": "stacks",
                "title": "Samples: busy samples per 20 ms",
                "kind": "stacks",
                "unit": SAMPLES,
                "about": "Each column is a second, each row 20 ms of it, all cores together.",
                "series": [],
                "levels": [-1 if self.base == 0 else self.base, top],
            },
        ]

    @property
    def _names(self) -> list[str]:
        return ["?" if core < 0 else str(core) for core in self.cores.tolist()]

    def strip(self, lane: str, level: int, first: int, count: int) -> Strip:
        """Some tiles, like those `sexton.explorer.tiles` makes of a recording."""
        if lane == "cores":
            seen, sums, peaks = self._level(self._heat, level, first, count)
            mean = np.full((2, *seen.shape), _NO_HEAT, np.uint8)
            peak = mean.copy()
            there = seen > 0
            busy, kernel = (np.rint(total[there] / seen[there]) for total in sums)
            mean[:, there] = busy - kernel, kernel
            high, low = np.divmod(peaks[there], 256)
            peak[:, there] = high - low, low
            channels: tuple[str, ...] = ("user", "system")
            names = tuple(self._names)
            planes: dict[str, np.ndarray[Any, Any]] = {"mean": mean, "peak": peak}
        else:
            seen, sums, peaks = self._level(self._stacks, level, first, count)
            names = tuple(f"{1000 // CELLS * at} ms" for at in range(CELLS))
            channels = ("samples",)
            known = np.broadcast_to(seen > 0, sums[0].shape)
            average = np.where(known, np.ceil(sums[0] / np.maximum(seen, 1)), _NO_SAMPLES)
            planes = {
                "mean": np.minimum(average, _NO_SAMPLES)[None].astype(np.uint16),
                "peak": np.where(known, peaks, _NO_SAMPLES)[None].astype(np.uint16),
            }
        return Strip(lane, level, first, count, names, channels, planes)

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The lanes as text, for the whole span."""
        if not len(self.cores):
            return {}
        seen, (busy, kernel) = self._heat.seen.sum(axis=1), self._heat.sums.sum(axis=2)
        rows = []
        for at, name in enumerate(self._names[:_MOST_ROWS]):
            shares = [f"{counts[at] / seen[at] / 2:.1f} %" for counts in (busy, kernel)]
            peak = int(self._heat.peak[at].max()) // 256 / 2
            rows.append([f"core {name}", *shares, f"{peak:.0f} %"])
        headings = ["core", "busy", "in the kernel", "busiest second"]
        cores = _table(headings, rows, len(self.cores) - len(rows))
        total = self._stacks.sums[0].sum(axis=0)
        order = np.argsort(total)[::-1][:_MOST_ROWS]
        fullest = self._stacks.peak.max(axis=0)
        stacks = [
            [
                f"+{max((self.first + at << self.base) - self.span.start, 0):.0f} s",
                f"{total[at] / max(self._stacks.seen[0, at], 1):,.0f}",
                f"{fullest[at]:,}",
            ]
            for at in order.tolist()
            if self._stacks.seen[0, at]
        ]
        headings = ["busiest seconds, from the start", "busy samples", "fullest 20 ms"]
        span = {"from": self.span.start, "to": self.span.end}
        return {
            "cores": [{**span, "document": cores}],
            "stacks": [{**span, "document": _table(headings, stacks, 0)}],
        }

    def _cores(self, parts: Sequence[Heat]) -> I64:
        found = np.unique(np.concatenate([[], *(part.cpu for part in parts)])).astype(np.int64)
        most = max(_MOST_CELLS // max(self.columns, 1), 1)
        self.left_out = max(len(found) - most, 0)
        return found[:most]

    def _core_cells(self, parts: Sequence[Heat], hertz: int | None) -> _Cells:
        shape = (len(self.cores), self.columns if len(self.cores) else 0)
        cells = _Cells(
            np.zeros(shape, np.int32), np.zeros((2, *shape), np.float32), np.zeros(shape, np.int32)
        )
        for part in parts:
            row = np.searchsorted(self.cores, part.cpu)
            column = (part.second >> self.base) - self.first
            here = (column >= 0) & (column < self.columns) & (row < len(self.cores))
            row, column = row[here], column[here]
            taken = np.maximum(part.samples[here], 1)
            if hertz is not None and len(self.cores) and self.cores[0] >= 0:
                taken = np.maximum(taken, hertz)  # an idle core may not be sampled at all
            busy = np.rint(_FULL * np.minimum(part.busy[here] / taken, 1)).astype(np.int32)
            kernel = np.rint(_FULL * np.minimum(part.kernel[here] / taken, 1)).astype(np.int32)
            kernel = np.minimum(kernel, busy)
            np.add.at(cells.seen, (row, column), 1)
            np.add.at(cells.sums[0], (row, column), busy)
            np.add.at(cells.sums[1], (row, column), kernel)
            np.maximum.at(cells.peak, (row, column), busy * 256 + kernel)
        return cells

    def _stack_cells(self, parts: Sequence[Heat]) -> _Cells:
        columns = self.columns if len(self.cores) else 0
        cells = _Cells(
            np.zeros((1, columns), np.int32),
            np.zeros((1, CELLS, columns), np.float32),
            np.zeros((CELLS, columns), np.int32),
        )
        for part in parts:
            second, start = np.unique(part.second, return_index=True)
            column = (second >> self.base) - self.first
            if not len(start):
                continue
            sums = np.add.reduceat(part.cells, start, axis=0, dtype=np.int64)
            for at, total in zip(column.tolist(), sums, strict=True):
                if 0 <= at < columns:
                    cells.seen[0, at] += 1
                    cells.sums[0, :, at] += total
                    np.maximum(cells.peak[:, at], total, out=cells.peak[:, at])
        np.minimum(cells.peak, _NO_SAMPLES - 1, out=cells.peak)
        return cells

    def _level(self, cells: _Cells, level: int, first: int, number: int) -> _Cells:
        """The cells of some tiles of a level."""
        step = level - self.base
        start, end = first * COLUMNS, (first + number) * COLUMNS
        low = max(start << step, self.first) - self.first
        high = min(end << step, self.first + self.columns) - self.first
        made = _Cells(*(np.zeros((*array.shape[:-1], end - start), array.dtype) for array in cells))
        if high <= low:
            return made
        column = ((np.arange(low, high) + self.first) >> step) - start
        edges = np.flatnonzero(np.diff(column, prepend=-1))
        for into, array, reduce in zip(made, cells, (np.add, np.add, np.maximum), strict=True):
            into[..., column[edges]] = reduce.reduceat(array[..., low:high], edges, axis=-1)
        return made


def _table(headings: list[str], rows: list[list[str]], left_out: int) -> dict[str, Any]:
    return {"schema": "sexton.table/1", "headings": headings, "rows": rows, "left_out": left_out}
