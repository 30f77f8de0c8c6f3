"""Ports of the fabric: what one event means, what needs many, and counters that began anew."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.network.fabric_errors import detect
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.hardware import FabricCounter, FabricPort
from sexton.model.window import SourceState
from tests.support.windows import EPOCH, make_window

PORT = FabricPort("mlx5_0", 1, "ACTIVE")


def counted(name: str, *values: int):
    readings = [
        (10.0 * at, [PORT, FabricCounter("mlx5_0", 1, name, value)])
        for at, value in enumerate(values)
    ]
    return detect(make_window(readings))


@pytest.mark.parametrize(
    ("name", "moved", "severity"),
    [
        ("link_downed", 1, Severity.CRITICAL),
        ("link_error_recovery", 1, Severity.CRITICAL),
        ("req_transport_retries_exceeded", 1, Severity.CRITICAL),
        ("symbol_error", 99, Severity.INFO),
        ("symbol_error", 100, Severity.WARNING),
        ("rx_drops", 12, Severity.INFO),
        ("rx_drops", 0, None),
    ],
)
def test_how_grave_a_counter_is(name, moved, severity):
    finding = counted(name, 1000, 1000 + moved)
    assert (finding.severity if finding.verdict is Verdict.PRESENT else None) is severity


def test_it_lasts_from_the_reading_before_to_the_last_that_moved():
    finding = counted("link_downed", 1, 1, 2, 2, 3, 3)
    assert (finding.start, finding.end) == (EPOCH + 10, EPOCH + 40)
    assert "2 × link_downed" in finding.summary


def test_a_driver_that_was_loaded_again_counts_from_zero():
    assert counted("link_downed", 9, 0).verdict is Verdict.ABSENT


def test_a_port_that_never_had_a_link_is_fine():
    down = FabricPort("mlx5_1", 1, "DOWN")
    counter = FabricCounter("mlx5_0", 1, "rx_drops", 0)
    readings = [(at, [PORT, down, counter]) for at in (0.0, 10.0)]
    assert detect(make_window(readings)).verdict is Verdict.ABSENT


@pytest.mark.parametrize(
    ("state", "path", "verdict"),
    [
        ("absent", "/sys/class/infiniband", Verdict.NOT_APPLICABLE),
        ("timeout", "/sys/class/infiniband", Verdict.UNKNOWN),
        ("absent", "", Verdict.UNKNOWN),
    ],
)
def test_no_fabric_is_not_the_same_as_one_that_was_not_read(state, path, verdict):
    states = [SourceState("sysfs.infiniband", path, state, "why")]
    assert detect(make_window([(0.0, [])], states=states)).verdict is verdict


def test_a_hostile_device_is_escaped():
    rows = [
        (at, [FabricPort("\x1b", 1, "ACTIVE"), FabricCounter("\x1b", 1, "link_downed", int(at))])
        for at in (0.0, 10.0)
    ]
    assert detect(make_window(rows)).entities["port"] == ("\\x1b:1",)
