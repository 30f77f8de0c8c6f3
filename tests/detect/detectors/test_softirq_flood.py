"""Cores that spend their time in softirq."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from sexton.detect.detectors.network.softirq_flood import detect
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes, SoftnetCpu
from sexton.model.rows.net import NetDevice, Nic, NicQueue
from sexton.model.rows.task import Thread
from sexton.model.window import Batch, Window
from tests.support.windows import EPOCH, make_window, providers

ETH0 = Nic("eth0", True, "ena", None, None, "up")
QUEUE = NicQueue("eth0", 4, "rxtx", 64, "eth0-Tx-Rx-4", (5,))


class Load(NamedTuple):
    """What one second adds on core 5."""

    softirq_ms: int = 950
    system_ms: int = 20
    packets: int = 100_000
    dropped: int = 0
    received: int = 100_000
    daemon_ms: int = 0


FLOOD = Load()
CALM = Load(20, 30, 900, 0, 900)


def times(core: int, softirq_ms: int, system_ms: int, second: int) -> CoreTimes:
    """A core that is idle in what is left of each second."""
    idle_ms = 90_000 + 1000 * second - softirq_ms - system_ms
    return CoreTimes(core, 0, 0, system_ms, idle_ms, 0, 0, softirq_ms, 0)


def readings(seconds: Sequence[Load], more: Sequence[Row] = ()) -> list[tuple[float, list[Row]]]:
    total = Load(*([1000] * 6))
    made: list[tuple[float, list[Row]]] = []
    for number, load in enumerate([Load(0, 0, 0, 0, 0, 0), *seconds]):
        total = Load(*(one + two for one, two in zip(total, load, strict=True)))
        rows: list[Row] = [times(0, 100 + number, 100 + number, number)]
        rows.append(times(5, total.softirq_ms, total.system_ms, number))
        rows.append(SoftnetCpu(5, total.packets, total.dropped, 0, 0, 0, 0))
        rows.append(NetDevice("eth0", 0, total.received, 0, 0, 0, 0, 0, 0))
        rows.append(Thread(33, 33, "ksoftirqd/5", "R", 1, 0, total.daemon_ms, 5))
        made.append((float(number), [*rows, *more]))
    return made


def run(*seconds: Load, more: Sequence[Row] = (ETH0, QUEUE)) -> Finding:
    return detect(make_window(readings(seconds, more)))


@pytest.mark.parametrize(
    ("load", "seconds", "severity"),
    [
        (Load(800), 3, Severity.WARNING),
        (Load(790), 3, Severity.INFO),
        (Load(800), 2, None),
        (Load(500), 5, Severity.INFO),
        (Load(490), 5, None),
        (Load(200), 60, None),
        (Load(500, dropped=34), 3, Severity.WARNING),
        (Load(500, dropped=33), 3, Severity.INFO),
        (Load(950, packets=4999), 5, Severity.INFO),
        (Load(950, packets=5000), 5, Severity.WARNING),
        (Load(20, system_ms=970), 9, None),
    ],
)
def test_share_time_packets_and_drops_decide(load, seconds, severity):
    finding = run(CALM, *[load] * seconds, CALM, CALM)
    if severity is None:
        assert finding.verdict is Verdict.ABSENT, finding.summary
    else:
        assert (finding.verdict, finding.severity) == (Verdict.PRESENT, severity), finding.summary


def test_it_says_core_share_time_rate_and_interface():
    finding = run(CALM, *[FLOOD] * 5, CALM)
    assert finding.summary == (
        "core 5 spent 95 % of 5.0 s in softirq: 100,000 packets a second through eth0:4"
    )
    assert finding.entities == {
        "core": ("5",), "nic": ("eth0",), "queue": ("eth0:4",), "irq": ("64",),
    }  # fmt: skip
    assert (finding.start, finding.end) == (EPOCH + 1, EPOCH + 6)


def test_an_interface_that_did_not_bring_the_packets_is_not_named():
    finding = run(*[Load(received=49_000)] * 5)
    assert "nic" not in finding.entities
    assert run(*[Load(received=51_000)] * 5).entities["nic"] == ("eth0",)


def test_a_queue_that_only_sends_brings_nothing():
    row = NicQueue("eth0", 4, "tx", 64, "eth0-tx-4", (5,))
    assert "nic" not in run(*[FLOOD] * 5, more=(ETH0, row)).entities


def test_a_queue_that_fires_on_several_cores_is_not_taken_for_this_ones():
    row = NicQueue("eth0", 4, "rxtx", 64, "eth0-Tx-Rx-4", (4, 5))
    assert "nic" not in run(*[FLOOD] * 5, more=(ETH0, row)).entities


def test_ksoftirqd_is_named_where_it_ran():
    finding = run(*[Load(daemon_ms=700)] * 5)
    assert finding.entities["task"] == ("ksoftirqd/5[33]",)
    assert any(item.value == "70 %" for item in finding.evidence)


def test_a_flood_inside_a_longer_busy_time_is_not_averaged_away():
    finding = run(*[Load(550)] * 30, *[FLOOD] * 4, *[Load(550)] * 30)
    assert finding.severity is Severity.WARNING
    assert "95 % of 4.0 s" in finding.summary


def test_without_the_backlogs_counters_it_tells_less_and_says_so():
    made = [
        (at, [row for row in rows if not isinstance(row, SoftnetCpu)])
        for at, rows in readings([FLOOD] * 5)
    ]
    finding = detect(make_window(made))
    assert finding.summary == "core 5 spent 95 % of 5.0 s in softirq"
    assert any("softnet_stat" in item.what for item in finding.missing) or finding.missing


def test_two_flooded_cores_are_both_named():
    made = [
        (
            at,
            [
                *rows,
                times(6, 900 * int(at), 100, int(at)),
                SoftnetCpu(6, 90_000 * int(at), 0, 0, 0, 0, 0),
            ],
        )
        for at, rows in readings([FLOOD] * 5)
    ]
    finding = detect(make_window(made))
    assert finding.summary.startswith("core 5 (and 1 more core) spent 95 %")
    assert finding.entities["core"] == ("5", "6")


@pytest.mark.parametrize(
    ("softirq_ms", "verdict", "hidden"),
    [
        (90_000, Verdict.PRESENT, False),
        (30_000, Verdict.ABSENT, True),
        (1000, Verdict.ABSENT, False),
    ],
)
def test_two_bursts_are_joined_by_what_was_counted_between_them(
    softirq_ms: int, verdict: Verdict, hidden: bool
):
    def batch(at: float, busy_ms: int, follows: bool = True) -> Batch[CoreTimes]:
        return Batch(at, EPOCH + at, (times(5, busy_ms, 0, int(at)),), follows)

    after = 1900 + softirq_ms
    batches = [batch(0, 0), batch(2, 1900), batch(100, after, False), batch(102, after + 1900)]
    finding = detect(Window({CoreTimes: batches}, (), providers()))
    assert finding.verdict is verdict
    assert any("without a reading" in lack.what for lack in finding.missing) is hidden


def test_a_short_look_cannot_tell():
    assert run(FLOOD, FLOOD).verdict is Verdict.UNKNOWN


def test_counters_that_went_back_are_no_reading():
    made = [(0.0, [times(5, 9000, 9000, 0)]), (5.0, [times(5, 10, 10, 5)])]
    assert detect(make_window(made)).verdict is Verdict.UNKNOWN


def test_a_core_that_was_offline_breaks_the_run():
    made = readings([FLOOD] * 4)
    made[2] = (2.0, [row for row in made[2][1] if getattr(row, "cpu", 0) != 5])
    assert detect(make_window(made)).verdict is Verdict.ABSENT
