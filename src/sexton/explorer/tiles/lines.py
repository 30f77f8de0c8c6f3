"""Lanes of lines: what their builders share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexton.explorer.tiles.build import Part
from sexton.explorer.tiles.pyramid import LINES, Array, Pyramid
from sexton.explorer.tiles.registry import Drawing
from sexton.explorer.tiles.words import clock, level_for, number, tiles_of
from sexton.model.lane import COLUMNS, Marked, Table


class Lines:
    """A pyramid with a row per line. Who inherits says how it is fed and what lines are shown."""

    comes_late = False

    def __init__(self, fill: float = np.nan) -> None:
        self.pyramid = Pyramid(LINES, fill=fill)

    def ahead(self, part: Part) -> None:
        """Nothing: most tables are small."""

    def settle(self) -> None:
        self.pyramid.settle()

    def forget(self, before: float) -> None:
        self.pyramid.forget(before)

    def shown(self) -> list[tuple[int, str]]:
        """Rows of the pyramid that are shown, and their names."""
        raise NotImplementedError

    def names(self, _lane: str) -> tuple[str, ...]:
        return tuple(name for _, name in self.shown())

    def draw(self, _lane: str, level: int, first: int, count: int) -> Drawing:
        shown = self.shown()
        rows = [row for row, _ in shown]
        self.pyramid.widen(max(rows, default=-1) + 1)
        planes = self.pyramid.planes(level, first, count)
        return Drawing(
            tuple(name for _, name in shown),
            ("value",),
            {name: np.ascontiguousarray(plane[:, rows]) for name, plane in planes.items()},
        )

    def marks(self) -> list[Marked]:
        return []

    def table(self, lane: str, start: float, end: float, most: int) -> Table:
        """A row per column of time: the mean, and the peak where it is another number."""
        level = level_for(start, end, most)
        first, columns, tile, count = tiles_of(start, end, level)
        drawn = self.draw(lane, level, tile, count)
        mean, peak = (drawn.planes[name][0] for name in ("mean", "peak"))
        skip = first - tile * COLUMNS
        rows: list[tuple[str, ...]] = []
        left = 0
        for at in range(skip, skip + columns):
            if np.isnan(mean[:, at]).all():
                continue
            if len(rows) >= most:
                left += 1
                continue
            moment = clock((tile * COLUMNS + at) << level)
            cells = zip(mean[:, at].tolist(), peak[:, at].tolist(), strict=True)
            rows.append((moment, *(_told(*each) for each in cells)))
        return Table(("time", *drawn.names), tuple(rows), left)

    @property
    def bytes(self) -> int:
        return self.pyramid.bytes


def _told(mean: float, peak: float) -> str:
    low, high = number(mean), number(peak)
    return low if low == high else f"{low} (peak {high})"


def stacked(values: Sequence[Array]) -> Array:
    """Lines as the pyramid takes them: (1, lines, readings)."""
    return np.stack(values)[None].astype(np.float32, copy=False)


def known_mean(values: Array) -> Array:
    """The mean over things of what is known; NaN where nothing is."""
    mean: Array = values.mean(axis=0)
    if not np.isnan(mean).any():
        return mean
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0).sum(axis=0) / np.maximum(count, 1)
    found: Array = np.where(count > 0, total, np.nan)
    return found


def known_sum(values: Array) -> Array:
    """The sum over things of what is known; NaN where nothing is."""
    known = ~np.isnan(values)
    found: Array = np.where(known.any(axis=0), np.where(known, values, 0).sum(axis=0), np.nan)
    return found
