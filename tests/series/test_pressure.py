"""Pressure over the known seconds of a window."""

from __future__ import annotations

import pytest

from sexton.model.rows.cgroup import CgroupCpu
from sexton.model.rows.memory import Pressure
from sexton.model.window import Batch, Window
from sexton.series.catalogue import CGROUP_CPU_WAIT, PRESSURE
from sexton.series.load import lapses
from sexton.series.meter import series
from sexton.series.pressure import levels, over, whole
from tests.support.windows import EPOCH, make_window


def read(resource: str, some: int, full: int | None) -> list[Pressure]:
    rows = [Pressure(resource, "some", 0.0, 0.0, 0.0, some)]
    return rows if full is None else [*rows, Pressure(resource, "full", 0.0, 0.0, 0.0, full)]


def test_the_share_is_of_the_whole_window():
    window = make_window(
        [(0.0, read("io", 0, 0)), (5.0, read("io", 1, 1)), (10.0, read("io", 5_000_000, 1_000_000))]
    )
    share = whole(window, "io")
    assert share is not None
    assert (share.some, share.full, share.seconds) == (50.0, 10.0, 10.0)


def test_a_share_is_of_seconds_that_were_read_and_totals_that_went_back_are_left_out():
    totals = [(0.0, 0), (1.0, 100_000), (2.0, 200_000), (92.0, 80_000_000), (93.0, 80_700_000)]
    totals += [(94.0, 5), (96.0, 600_005)]
    batches = [
        Batch(at, EPOCH + at, tuple(read("io", total, total // 2)), follows=at != 92.0)
        for at, total in totals
    ]
    window = Window({Pressure: batches})
    across = next(step for step in levels(window, "io").stalls if step.start == 2.0)
    assert across.some == pytest.approx(79.8 / 90 * 100), "the kernel counts on"
    share = whole(window, "io")
    assert share is not None
    assert (share.start, share.end, share.seconds) == (0.0, 96.0, 5.0)
    assert share.some == pytest.approx(100 * (0.1 + 0.1 + 0.7 + 0.6) / 5)
    assert share.full == pytest.approx(share.some / 2, abs=1e-3)


def test_values_read_once_or_that_went_back_are_unknown():
    assert whole(make_window([]), "io") is None
    assert whole(make_window([(0.0, read("io", 0, 0))]), "io") is None
    assert whole(make_window([(0.0, read("io", 9, 9)), (9.0, read("io", 1, 1))]), "io") is None
    assert whole(make_window([(0.0, read("cpu", 0, 0)), (9.0, read("cpu", 1, 1))]), "io") is None


def test_a_kernel_without_the_full_line_still_has_some():
    share = whole(make_window([(0.0, read("io", 0, None)), (1.0, read("io", 10_000, None))]), "io")
    assert share is not None
    assert (share.some, share.full) == (1.0, None)


@pytest.mark.parametrize("resource", ["cpu", "io", "memory"])
def test_no_share_is_above_all_of_the_time(resource: str):
    """Under load a reading's time is a moment after the kernel's count."""
    window = make_window(
        [
            (0.0, read(resource, 0, 0)),
            (1.0, read(resource, 1_030_000, 1_020_000)),
            (20.0, read(resource, 20_100_000, 20_090_000)),
        ]
    )
    found = levels(window, resource)
    assert [(stall.some, stall.full) for stall in found.stalls] == [(100.0, 100.0)] * 2
    for stall in (over(found, 0.0, 20.0), whole(window, resource)):
        assert stall is not None
        assert (stall.some, stall.full) == (100.0, 100.0)
    waited = ((0.0, 0), (1.0, 1_030_000), (20.0, 20_100_000))
    of_cgroup = make_window([(at, [CgroupCpu("/a", 0, total)]) for at, total in waited])
    for made, kind in ((window, PRESSURE), (of_cgroup, CGROUP_CPU_WAIT)):
        metric = series(made, kind)
        assert metric is not None
        assert (metric.values == 100).all()
    lost = [(lapse.start, lapse.end, lapse.mean) for lapse in lapses(window, 90, 10)]
    assert lost == ([(1.0, 20.0, 100.0)] if resource == "cpu" else [])
