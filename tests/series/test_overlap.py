"""A core's share over the steps of another table."""

from __future__ import annotations

import numpy as np

from sexton.series.cores import CoreSeries
from sexton.series.overlap import Overlap


def overlap(system: list[float], start: list[float], end: list[float]) -> Overlap:
    """Core 7, given a whole core in each second in which its system time is known."""
    times = np.arange(len(system) + 1.0)
    spent = np.array([system], np.float32)
    given = np.where(np.isnan(spent), np.nan, 1.0).astype(np.float32)
    series = CoreSeries(times[:-1], times[1:], times[1:], [7], *[spent] * 5, given)
    return Overlap(series, np.array(start), np.array(end))


def test_each_step_counts_by_its_overlap():
    shares = overlap([1.0, 0.0, 0.5], [0.0, 0.5, 2.0], [1.0, 1.5, 3.0]).system(7)
    np.testing.assert_allclose(shares, [100, 50, 50])


def test_where_no_reading_tells_the_share_is_unknown_and_not_zero():
    found = overlap([1.0, np.nan, 1.0], [1.0, 0.5], [2.0, 1.5])
    np.testing.assert_allclose(found.system(7), [np.nan, 100])
    assert np.isnan(found.system(8)).all(), "this core was never read"
