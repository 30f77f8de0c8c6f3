"""Segments that TCP had to send again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sexton.detect.detectors.network.tcp_loss import detect
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.rows.net import TcpCounters
from sexton.model.window import Batch, Window
from tests.support.windows import EPOCH, make_window, providers

#: What one second adds: sent, sent again, of it to open a connection, given up, failed attempts.
Second = tuple[int, int, int, int, int]
CALM: Second = (1000, 0, 0, 0, 0)


def counters(sent: int, again: int, syn: int | None, given_up: int, fails: int) -> TcpCounters:
    return TcpCounters(10**6, sent, again, 5, fails, again, given_up, 0, 0, syn)


def readings(
    seconds: Sequence[Second], step_s: float = 1.0
) -> list[tuple[float, list[TcpCounters]]]:
    total = [10**6, 700, 90, 3, 50]
    made = [(0.0, [counters(*total)])]
    for number, moved in enumerate(seconds, 1):
        total = [one + more for one, more in zip(total, moved, strict=True)]
        made.append((number * step_s, [counters(*total)]))
    return made


def run(*seconds: Second, step_s: float = 1.0) -> Finding:
    return detect(make_window(readings(seconds, step_s)))


def lossy(sent: int, again: int, seconds: int = 10) -> Finding:
    return run(*[(sent, again, 0, 0, 0)] * seconds)


@pytest.mark.parametrize(
    ("sent", "again", "severity"),
    [
        (950, 50, Severity.WARNING),
        (955, 45, Severity.INFO),
        (47, 3, Severity.WARNING),
        (46, 3, Severity.INFO),
        (990, 10, Severity.INFO),
        (995, 5, None),
        (1, 0, None),
        (0, 0, None),
    ],
)
def test_a_share_counts_where_enough_was_sent(sent, again, severity):
    finding = lossy(sent, again)
    if severity is None:
        assert finding.verdict is Verdict.ABSENT
    else:
        assert (finding.verdict, finding.severity) == (Verdict.PRESENT, severity)


def test_a_retransmit_or_two_are_nothing():
    assert run(CALM, (20, 2, 0, 0, 0), CALM, (3, 1, 0, 0, 0)).verdict is Verdict.ABSENT


def test_three_seconds_cut_off_among_a_minute_are_told_as_three_seconds():
    away: Second = (5, 40, 0, 0, 0)
    finding = run(*[CALM] * 30, away, away, away, *[CALM] * 30)
    assert finding.severity is Severity.WARNING
    assert finding.summary == "120 TCP retransmits in 3.0 s, 89 % of what was sent"
    assert (finding.start, finding.end) == (EPOCH + 30, EPOCH + 33)


def test_one_second_of_loss_is_a_switch_that_overflowed():
    finding = run(CALM, CALM, (900, 100, 0, 0, 0), CALM, *[(9000, 0, 0, 0, 0)] * 3)
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)


def test_a_single_peer_that_vanished_is_no_alarm():
    """Its connection sends again after 0.2, 0.4, 0.8, 1.6, 3.2, 6.4 s; nothing else is going on."""
    finding = run((2, 3, 0, 0, 0), (1, 1, 0, 0, 0), (2, 0, 0, 0, 0), (1, 1, 0, 0, 0),
                  (1, 0, 0, 0, 0), (1, 0, 0, 0, 0), (1, 1, 0, 0, 0), (1, 0, 0, 1, 0))  # fmt: skip
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)
    assert "1 connection aborted" in finding.summary


def test_knocking_at_dead_addresses_is_no_loss():
    assert run(*[(40, 30, 30, 3, 3)] * 20).verdict is Verdict.ABSENT


def test_connections_given_up_at_once_are_an_alarm_without_a_share():
    finding = run(*[CALM] * 5, (10_000, 1, 0, 5, 0), CALM)
    assert finding.severity is Severity.WARNING
    assert "5 connections aborted" in finding.summary
    assert run(*[CALM] * 5, (10_000, 1, 0, 4, 0), CALM).severity is Severity.INFO


def test_connections_that_were_never_made_are_not_given_up():
    assert run(CALM, (10, 0, 0, 8, 8), CALM).verdict is Verdict.ABSENT


def test_a_kernel_that_does_not_count_knocks_apart_is_judged_by_all_of_them():
    def without(row: TcpCounters) -> TcpCounters:
        return TcpCounters(row.in_segments, row.out_segments, row.retransmitted_segments, 5, 50,
                           None, None, None, None)  # fmt: skip

    made = [(at, [without(row)]) for at, (row,) in readings([(950, 60, 60, 0, 0)] * 5)]
    finding = detect(make_window(made))
    assert finding.severity is Severity.WARNING
    assert not any("time-outs" in item.what for item in finding.evidence)


def test_a_counter_that_went_back_is_no_loss():
    rows = [counters(10**6, 5000, 0, 0, 0), counters(10, 400, 0, 0, 0)]
    finding = detect(make_window([(0.0, [rows[0]]), (5.0, [rows[1]]), (10.0, [rows[1]])]))
    assert finding.verdict is Verdict.ABSENT
    assert finding.evidence[0].number == 0


def test_what_was_left_out_of_a_long_window_is_not_averaged():
    rows = [counters(10**6, 0, 0, 0, 0), counters(10**6 + 5, 9000, 0, 0, 0)]
    batches = [
        Batch(0.0, EPOCH, (rows[0],)),
        Batch(1.0, EPOCH + 1, (rows[0],)),
        Batch(900.0, EPOCH + 900, (rows[1],), follows=False),
        Batch(901.0, EPOCH + 901, (rows[1],)),
    ]
    finding = detect(Window({TcpCounters: batches}, (), providers()))
    assert finding.verdict is Verdict.ABSENT
    assert "in 14 min 59 s without a reading" in finding.missing[0].what


def test_readings_far_apart_are_judged_as_they_are():
    finding = run((9000, 900, 0, 0, 0), step_s=30.0)
    assert finding.severity is Severity.WARNING
    assert "in 30.0 s" in finding.summary


def test_one_reading_cannot_tell():
    finding = run()
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.missing
