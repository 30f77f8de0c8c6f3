"""Time that the hypervisor took: of which core, how much, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.detect.detectors.cpu.cpu_steal import LASTING, detect
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.cpu import CoreTimes
from sexton.series.cores import core_series
from sexton.series.load import highest
from tests.support.windows import make_window


def seen(seconds: int, *shares: float):
    """A reading a second of cores of which so much is stolen."""
    return make_window(
        [
            (
                float(at),
                [
                    CoreTimes(cpu, 0, 0, 0, round(1000 * at * (1 - share)), 0, 0, 0,
                              round(1000 * at * share))
                    for cpu, share in enumerate(shares)
                ],
            )
            for at in range(seconds + 1)
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("share", "seconds", "verdict", "severity"),
    [
        (0.19, 30, Verdict.ABSENT, Severity.INFO),
        (0.20, 30, Verdict.PRESENT, Severity.WARNING),
        (0.49, 30, Verdict.PRESENT, Severity.WARNING),
        (0.50, 30, Verdict.PRESENT, Severity.CRITICAL),
        (0.90, 8, Verdict.ABSENT, Severity.INFO),
        (0.90, 9, Verdict.PRESENT, Severity.CRITICAL),
    ],
)
def test_the_limits(share, seconds, verdict, severity):
    finding = detect(seen(seconds, share))
    assert (finding.verdict, finding.severity) == (verdict, severity), finding.summary


def test_every_core_above_the_limit_is_named_the_worst_first():
    finding = detect(seen(30, 0.3, 0.05, 0.4))
    assert finding.entities["core"] == ("2", "0")
    assert finding.summary == "the hypervisor took 40 % of core 2 (and 1 more core) for 30.0 s"


def test_a_counter_that_went_backwards_is_unknown():
    rows = [CoreTimes(0, 0, 0, 0, 0, 0, 0, 0, steal) for steal in (9000, 10)]
    window = make_window([(0.0, rows[:1]), (10.0, rows[1:])])
    assert detect(window).verdict is Verdict.UNKNOWN


@given(
    st.lists(
        st.lists(st.integers(0, 150) | st.none(), min_size=25, max_size=25), min_size=1, max_size=4
    )
)
def test_the_most_stolen_is_the_largest_mean_of_any_core(stolen):
    readings = []
    for at in range(25):
        rows = []
        for cpu, steps in enumerate(stolen):
            if steps[at] is not None:  # else the core was offline
                total = sum(step or 0 for step in steps[: at + 1])
                rows.append(CoreTimes(cpu, 0, 0, 0, 1000 * at - total, 0, 0, 0, total))
        readings.append((float(at), rows))
    window = make_window(readings)
    series = core_series(window)
    if series is None:
        return
    finding = detect(window)
    if finding.verdict is Verdict.ABSENT:
        share = series.percent(series.stolen)
        means = [highest(series.start, series.end, each, LASTING.value) or 0.0 for each in share]
        assert finding.evidence[0].number == max(means)
