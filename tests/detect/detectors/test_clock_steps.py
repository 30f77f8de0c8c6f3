"""Steps of the wall clock: how far, when after boot, and what is no step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sexton.detect.detectors.hardware.clock_steps import detect
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.cpu import ReadyTasks
from sexton.model.window import Batch, Window
from tests.support.windows import EPOCH

HOUR = 3600.0


def watched(offsets: Sequence[float], first: float = 10_000.0, every: float = 1.0) -> Window:
    """Readings whose wall clock is so far ahead."""
    row = ReadyTasks(*(1 for _ in ReadyTasks.__slots__))
    batches = [
        Batch(first + every * at, EPOCH + first + every * at + offset, (row,))
        for at, offset in enumerate(offsets)
    ]
    return Window({ReadyTasks: batches})


@pytest.mark.parametrize(
    ("by", "severity"),
    [
        (0.4, None),
        (0.6, Severity.WARNING),
        (-0.6, Severity.WARNING),
        (59.9, Severity.WARNING),
        (60.1, Severity.CRITICAL),
        (-HOUR, Severity.CRITICAL),
    ],
)
def test_how_far_is_a_step(by, severity):
    finding = detect(watched([0.0] * 5 + [by] * 5))
    assert (finding.severity if finding.verdict is Verdict.PRESENT else None) is severity


@pytest.mark.parametrize(("first", "severity"), [(500.0, Severity.INFO), (601.0, Severity.WARNING)])
def test_the_first_minutes_after_boot_are_a_note(first, severity):
    assert detect(watched([0.0] * 5 + [2.0] * 5, first)).severity is severity


def test_one_reading_out_of_line_is_no_step():
    """The thread was put off between the two clocks."""
    assert detect(watched([0.0] * 5 + [3.0] + [0.0] * 5)).verdict is Verdict.ABSENT
    assert detect(watched([0.0] * 9 + [3.0])).verdict is Verdict.ABSENT


def test_a_clock_that_is_slewed_does_not_step():
    slewed = [60 * 500e-6 * at for at in range(60)]
    assert detect(watched(slewed, every=60.0)).verdict is Verdict.ABSENT


def test_after_a_long_gap_nobody_knows():
    assert detect(watched([0.0] * 5 + [2.0] * 5, every=700.0)).verdict is Verdict.ABSENT


def test_two_steps_are_two_and_the_larger_is_named():
    finding = detect(watched([0.0] * 5 + [2.0] * 5 + [-8.0] * 5))
    assert "set back by 10.0 s (and 1 more step)" in finding.summary
    assert len(finding.evidence) == 2
