"""A core's shares over the steps of another table, whose file is read a moment earlier or later."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sexton.series.cores import CoreSeries
from sexton.series.rates import F32, F64


class Overlap:
    """Each of a core's steps counts by its overlap with the other table's, from `start` to `end`.

    >>> one = np.array([[1.0, np.nan, 0.5]], np.float32)
    >>> times = np.arange(4.0)
    >>> series = CoreSeries(times[:3], times[1:], times[1:], [7], *[one] * 5, one / one)
    >>> Overlap(series, np.array([0.5, 1.0]), np.array([1.0, 2.0])).system(7)
    array([100.,  nan])
    """

    def __init__(self, series: CoreSeries, start: F64, end: F64) -> None:
        self._series, self._start, self._end = series, start, end
        edges = np.concatenate([series.start, series.end])
        self._order: npt.NDArray[np.intp] = np.argsort(edges, kind="stable")
        self._edges: F64 = edges[self._order]

    def system(self, core: int) -> F64:
        """System time in per cent of what the core was given in each step; NaN where no reading
        tells."""
        if core not in self._series.cores:
            return np.full(len(self._end), np.nan)
        row = self._series.cores.index(core)
        known = ~np.isnan(self._series.system[row]) & ~np.isnan(self._series.given[row])
        spent = self._seconds(np.where(known, self._series.system[row], 0))
        given = self._seconds(np.where(known, self._series.given[row], 0))
        made: F64 = np.full(len(given), np.nan)
        np.divide(100 * spent, given, out=made, where=given > 0)
        return made

    def _seconds(self, by_step: F32) -> F64:
        """Seconds of the core's steps that fall into each step of the other table."""
        total = np.cumsum(by_step, dtype=np.float64)
        sums = np.concatenate([total - by_step, total])[self._order]
        made: F64 = np.interp(self._end, self._edges, sums)
        made -= np.interp(self._start, self._edges, sums)
        return made
