"""What builders of lanes share: a pyramid, and lines made of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np

from sexton.explorer.tiles.build import Metrics, Part, Rows, Taken, places, put
from sexton.explorer.tiles.pyramid import LINES, Array, Cells, Meeting, Pyramid
from sexton.explorer.tiles.registry import Drawing
from sexton.explorer.tiles.tables import TableColumns, TableSpan, clock, level_for, number, tiles_of
from sexton.model.lane import COLUMNS, Marked, Table
from sexton.model.window import Window

#: What identifies a line.
Line = tuple[str, ...]


class PyramidLane:
    """A lane with one pyramid and without marks."""

    comes_late = False
    pyramid: Pyramid

    def ahead(self, part: Part) -> None:
        """Nothing: most tables are small."""

    def preload(self, span: TableSpan) -> None:
        """Nothing: some tables are made from memory."""

    def settle(self) -> None:
        self.pyramid.settle()

    def forget(self, before: float) -> None:
        self.pyramid.forget(before)

    def marks(self) -> list[Marked]:
        return []

    @property
    def bytes(self) -> int:
        return self.pyramid.bytes


class Lines(PyramidLane):
    """A pyramid with a row per line.

    A lane names the metrics it is made of (`sources`), makes `lines` of their values and says which
    are `shown`. A reading covers at most `reach_s` seconds.
    """

    reach_s = inf

    def __init__(self, *sources: Metrics, fill: float = np.nan) -> None:
        self.sources = sources
        self.pyramid = Pyramid(LINES, fill=fill)
        self.rows = Rows()

    def lines(self, source: Metrics, taken: Taken) -> Mapping[Line, Array]:
        """A value per reading for each line."""
        raise NotImplementedError

    def shown(self) -> list[tuple[Line, str]]:
        """Lines that are shown, and their names."""
        raise NotImplementedError

    def feed(self, part: Part) -> None:
        for source in self.sources:
            taken = source.take(part)
            if taken is not None:
                self.put(taken.at_most(self.reach_s), self.lines(source, taken))

    def put(self, taken: Taken, lines: Mapping[Line, Array]) -> None:
        """Write lines; if several sources have a value for a second, the higher one stays."""
        if not lines:
            return
        values = np.stack(list(lines.values()))[None].astype(np.float32, copy=False)
        where = places(taken.start, taken.end)
        if len(self.sources) > 1:
            cells = Cells(values, taken.seconds, self.rows.of(list(lines)))
            put(self.pyramid, where, cells, Meeting.HOTTER)
        else:
            cells = Cells(self.rows.spread(list(lines), values, np.nan), taken.seconds)
            put(self.pyramid, where, cells)

    def names(self, _lane: str) -> tuple[str, ...]:
        return tuple(name for _, name in self.shown())

    def draw(self, lane: str, level: int, first: int, count: int) -> Drawing:
        places = {line: row for row, line in enumerate(self.rows)}
        rows = [places[line] for line, _ in self.shown()]
        self.pyramid.widen(max(rows, default=-1) + 1)
        planes = self.pyramid.planes(level, first, count)
        return Drawing(
            self.names(lane),
            ("value",),
            {name: np.ascontiguousarray(plane[:, rows]) for name, plane in planes.items()},
        )

    def preload(self, span: TableSpan) -> None:
        for window in span.windows:
            for source in self.sources:
                self.over(source, window)

    def over(self, source: Metrics, window: Window) -> Taken | None:
        """What a table needs of a window."""
        return source.over(window)

    def table(self, lane: str, span: TableSpan, most: int) -> Table:
        """A row per column of time: the mean, and the peak if it differs."""
        level = level_for(span.start, span.end, most)
        first, columns, _, _ = tiles_of(span.start, span.end, level)
        mean, peak = self.values(span, TableColumns(first, columns, level))
        rows: list[tuple[str, ...]] = []
        left = 0
        for at in range(columns):
            if np.isnan(mean[:, at]).all():
                continue
            if len(rows) >= most:
                left += 1
                continue
            cells = zip(mean[:, at].tolist(), peak[:, at].tolist(), strict=True)
            rows.append((clock((first + at) << level), *(_cell(*cell) for cell in cells)))
        return Table(("time", *self.names(lane)), tuple(rows), left)

    def values(self, span: TableSpan, columns: TableColumns) -> tuple[Array, Array]:
        """Mean and peak of every shown line by column, from the series of the span."""
        parts: dict[Line, list[tuple[Taken, Array]]] = {line: [] for line, _ in self.shown()}
        for window in span.windows:
            for source in self.sources:
                taken = self.over(source, window)
                if taken is None or not taken.things:
                    continue
                covered = taken.at_most(self.reach_s)
                for line, value in self.lines(source, taken).items():
                    if line in parts:
                        parts[line].append((covered, value))
        if not parts:
            return np.empty((0, columns.number)), np.empty((0, columns.number))
        made = [columns.mean_and_peak(part) for part in parts.values()]
        return np.stack([mean for mean, _ in made]), np.stack([peak for _, peak in made])


def drawn_values(drawn: Drawing, columns: TableColumns) -> tuple[Array, Array]:
    """Mean and peak of the columns in a drawing that begins with their first tile."""
    skip = columns.first % COLUMNS
    part = slice(skip, skip + columns.number)
    return drawn.planes["mean"][0][:, part], drawn.planes["peak"][0][:, part]


def _cell(mean: float, peak: float) -> str:
    low, high = number(mean), number(peak)
    return low if low == high else f"{low} (peak {high})"


def known_mean(values: Array) -> Array:
    """The mean over things without NaN; NaN if all are."""
    mean: Array = values.mean(axis=0)
    if not np.isnan(mean).any():
        return mean
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0).sum(axis=0) / np.maximum(count, 1)
    found: Array = np.where(count > 0, total, np.nan)
    return found
