"""Heat: the share of time, old kernels without it, and lines."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.hardware.thermal_throttling import detect
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.hardware import CoreThrottle
from sexton.model.window import Batch, Window
from tests.support.log import events, log
from tests.support.windows import EPOCH, make_window

NOW = 100_000.0
LINE = "CPU{}: Core temperature is above threshold, cpu clock is throttled (total events = 1)"


def counted(events_moved: int, total_ms: int | None):
    def core(events: int, spent: int | None) -> CoreThrottle:
        return CoreThrottle(3, events, 0, spent, spent)

    before = core(5, None if total_ms is None else 100)
    after = core(5 + events_moved, None if total_ms is None else 100 + total_ms)
    return detect(make_window([(0.0, [before, log()]), (100.0, [after, log()])]))


@pytest.mark.parametrize(
    ("moved", "spent", "severity"),
    [
        (0, 0, None),
        (9, 9_900, Severity.INFO),
        (9, 10_000, Severity.WARNING),
        (99, None, Severity.INFO),
        (100, None, Severity.WARNING),
    ],
)
def test_how_much_is_hot(moved, spent, severity):
    finding = counted(moved, spent)
    assert (finding.severity if finding.verdict is Verdict.PRESENT else None) is severity
    if severity is not None:
        assert finding.entities["core"] == ("3",)


def test_its_share_is_of_the_seconds_that_are_known():
    """Its time is unknown for a minute and a half; in the ten seconds after that it was hot."""
    read = [(0.0, 0), (10.0, None), (90.0, 0), (100.0, 2_000)]
    rows = [
        (at, [CoreThrottle(3, 5 + at, 0, spent, None), log()])
        for at, spent in ((int(mono), spent) for mono, spent in read)
    ]
    finding = detect(make_window(rows))
    assert finding.severity is Severity.WARNING
    assert finding.summary == "heat slowed core 3 down for 20 % of 10.0 s"
    assert finding.evidence[0].number == pytest.approx(20)


def across_a_gap(gap_events: int, events_s: int, ms_s: int):
    """Ten seconds, a gap of a hundred, and ten seconds again."""
    batches = []
    for at in (*range(11), *range(110, 121)):
        known = at if at <= 10 else at - 100
        moved = events_s * known + (gap_events if at >= 110 else 0)
        core = CoreThrottle(3, moved, 0, ms_s * known + 10 * moved, 0)
        batches.append(Batch(float(at), EPOCH + at, (core,), follows=at != 110))
    return detect(Window({CoreThrottle: batches}))


def test_events_beside_a_share_are_those_of_its_seconds():
    finding = across_a_gap(100, 1, 490)
    assert finding.summary == "heat slowed core 3 down for 50 % of 20.0 s"
    (evidence,) = finding.evidence
    assert evidence.unit == "% of 20.0 s (20 events)"


@pytest.mark.parametrize(("events", "severity"), [(7, "info"), (100, "warning")])
def test_events_in_a_gap_alone_have_no_share(events, severity):
    finding = across_a_gap(events, 0, 0)
    assert finding.severity == severity
    assert finding.summary == f"heat slowed core 3 down {events} times in 2 min 0 s"


def test_events_are_those_of_the_counter_that_gave_the_share():
    rows = [(at, [CoreThrottle(3, 90 * at, at, 0, 500 * at)]) for at in range(11)]
    finding = detect(make_window([(float(at), row) for at, row in rows]))
    assert finding.evidence[0].unit == "% of 10.0 s (10 events)"


def logged(*messages: str, age: float = 60.0):
    rows = events(messages, NOW - age)
    return detect(make_window([(NOW - 10, [log()]), (NOW, [log(), *rows])]))


def test_lines_count_for_an_hour():
    assert logged(LINE.format(1)).severity is Severity.WARNING
    assert logged(LINE.format(1), age=3601).severity is Severity.INFO
    assert logged(LINE.format(1), LINE.format(2)).summary.startswith("heat slowed 2 cores down")


def test_cool_again_is_no_line_about_heat():
    assert logged("CPU1: Core temperature/speed normal").verdict is Verdict.ABSENT


def test_a_critical_temperature_switches_the_machine_off():
    finding = logged("thermal thermal_zone0: acpitz: critical temperature reached, shutting down")
    assert finding.severity is Severity.CRITICAL
    assert "thermal_zone0 reached its critical temperature" in finding.summary


def test_counters_alone_can_say_no():
    rows = [(at, [CoreThrottle(0, 1, 1, 5, 5)]) for at in (0.0, 60.0)]
    finding = detect(make_window(rows))
    assert finding.verdict is Verdict.ABSENT
    assert finding.missing
