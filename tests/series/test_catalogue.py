"""The catalogue of metrics: what is normal for each, said once and shown in the explorer."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.cgroups.zombie_memcgs import NORMAL
from sexton.detect.detectors.network.tcp_loss import NOTED
from sexton.explorer.tiles.registry import all_lanes
from sexton.series.catalogue import DYING, METRICS, metric


@pytest.mark.parametrize("item", METRICS, ids=lambda item: item.name)
def test_what_is_normal_is_known_of_every_metric(item):
    assert item.normal.strip()


def test_what_is_normal_is_below_the_limits_of_detectors():
    assert DYING.normal == f"< {NORMAL.value:g}"
    assert metric("tcp_retransmitted_segments").normal.startswith(f"< {NOTED.value:g} %")


@pytest.mark.parametrize(
    ("lane", "text"),
    [
        ("restarts", "Normal: 0."),
        ("softirq_wait", "Normal: < 10 ms."),
        ("memcgs", "Normal: live memory cgroups (depends on services and containers), "
                   "dying memory cgroups (< 50)."),
    ],
)  # fmt: skip
def test_a_lane_says_what_is_normal(lane, text):
    (found,) = (item for item in all_lanes() if item.id == lane)
    assert found.about.endswith(text)


def test_a_lane_calls_a_metric_what_why_calls_it():
    lanes = {item.id: item.about for item in all_lanes()}
    assert metric("tcp_established_resets").help in lanes["tcp"]
    assert not any("{" in about for about in lanes.values())
