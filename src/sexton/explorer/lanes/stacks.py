"""Stacks: samples of what ran, in fiftieths of a second.

Each column is a second, each row 20 ms of it, starting at the bottom; the colour is the number of
busy samples on all cores together. Select a span for its flame graph.
"""

from __future__ import annotations

import numpy as np

from sexton.errors import StoreError
from sexton.explorer.tiles.build import Part
from sexton.explorer.tiles.lines import PyramidLane
from sexton.explorer.tiles.pyramid import STACKS, Array, Cells, Pyramid
from sexton.explorer.tiles.registry import Drawing, lane
from sexton.explorer.tiles.tables import TableSpan, clock, level_for, number, tiles_of
from sexton.model.lane import CELLS_A_SECOND, COLUMNS, FINEST, Table
from sexton.model.profile import Heat
from sexton.profile.recorded import read_heat
from sexton.series.catalogue import SAMPLES
from sexton.store.annex import Annex

_MOST = STACKS.absent - 1
_OFFSETS = tuple(f"{1000 // CELLS_A_SECOND * at} ms" for at in range(CELLS_A_SECOND))


@lane(kind="stacks", draws=SAMPLES, order=110, needs=())
class Builder(PyramidLane):
    """Builds a row per 20 ms of the second."""

    comes_late = True

    def __init__(self) -> None:
        self.pyramid = Pyramid(STACKS)
        self._done: set[str] = set()
        self.problems: list[str] = []

    def feed(self, part: Part) -> None:
        for annex in part.book.segment.annexes:
            if str(annex.path) in self._done:
                continue
            self._done.add(str(annex.path))
            try:
                self._add(annex, read_heat(annex))
            except StoreError as error:
                self.problems.append(str(error))

    def _add(self, annex: Annex, heat: Heat) -> None:
        if not len(heat):
            return
        second, first = np.unique(heat.second, return_index=True)
        cells = np.add.reduceat(heat.cells, first, axis=0, dtype=np.int64)
        offset = round((annex.start[1] - annex.start[0]) * CELLS_A_SECOND)
        # Seconds of the capture's clock do not begin with those of the wall clock.
        shift, into = divmod(offset, CELLS_A_SECOND)
        wall = second + shift
        self._put(wall, cells[:, : CELLS_A_SECOND - into], into)
        if into:
            self._put(wall + 1, cells[:, CELLS_A_SECOND - into :], 0)

    def _put(self, seconds: Array, cells: Array, row: int) -> None:
        """Add cells (seconds, rows) to the rows from `row` on."""
        fine = np.abs(seconds) < 1e11
        seconds, cells = seconds[fine], cells[fine]
        rows = np.arange(row, row + cells.shape[1])
        self.pyramid.widen(CELLS_A_SECOND)
        for index in np.unique(seconds // COLUMNS).tolist():
            mine = seconds // COLUMNS == index
            columns = seconds[mine]
            there = self.pyramid.second(index)
            new = cells[mine].T
            if there is not None:
                old = there[0][rows[:, None], columns - index * COLUMNS].astype(np.int64)
                new = new + np.where(old == STACKS.absent, 0, old)
            new = np.minimum(new, int(_MOST)).astype(np.uint16)
            self.pyramid.put(columns, Cells(new[None], np.ones((1, len(columns))), rows))

    def names(self, _lane: str) -> tuple[str, ...]:
        return _OFFSETS

    def draw(self, _lane: str, level: int, first: int, count: int) -> Drawing:
        self.pyramid.widen(CELLS_A_SECOND)
        if level != FINEST:
            return Drawing(_OFFSETS, ("samples",), self.pyramid.planes(level, first, count))
        cells = self._cells(first * COLUMNS, count * COLUMNS)[None, None]
        return Drawing(("all cores",), ("samples",), {"mean": cells, "peak": cells})

    def _cells(self, first: int, number: int) -> Array:
        """Columns of 20 ms; `first` counts from the epoch."""
        second = first // CELLS_A_SECOND
        until = (first + number - 1) // CELLS_A_SECOND
        tile = second // COLUMNS
        count = until // COLUMNS - tile + 1
        plane = self.pyramid.planes(0, tile, count)["peak"][0]
        flat = np.ascontiguousarray(plane.T).reshape(-1)
        start = first - tile * COLUMNS * CELLS_A_SECOND
        return flat[start : start + number]

    def table(self, _lane: str, span: TableSpan, most: int) -> Table:
        """A row per column of time: samples in a second, and the fullest 20 ms of it."""
        level = level_for(span.start, span.end, most)
        first, columns, tile, count = tiles_of(span.start, span.end, level)
        planes = self.pyramid.planes(level, tile, count)
        rows: list[tuple[str, ...]] = []
        left = 0
        for at in range(first - tile * COLUMNS, first - tile * COLUMNS + columns):
            mean, peak = planes["mean"][0, :, at], planes["peak"][0, :, at]
            known = mean != STACKS.absent
            if not known.any():
                continue
            if len(rows) >= most:
                left += 1
                continue
            moment = clock((tile * COLUMNS + at) << level)
            cells = number(float(mean[known].sum())), number(float(peak[known].max()))
            rows.append((moment, *cells))
        return Table(
            ("time", "busy samples in a second", "in its busiest 20 ms"), tuple(rows), left
        )
