"""NIC resets are the same number on every surface, whatever the log and the counters show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexton.cli.load import nic_loads
from sexton.cure import measures
from sexton.detect import resets
from sexton.detect.detectors.network import nic_resets
from sexton.explain import event_times
from sexton.explorer.tiles.view import View
from sexton.model.row import Row, fields_of
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import NetDevice, Nic, NicCounter
from sexton.model.window import Batch, Window
from sexton.record.triggers import Triggers
from tests.support.log import PAUSED, RESET, events, log
from tests.support.recordings import scratch, write_sealed
from tests.support.windows import EPOCH, make_window

ETH0 = Nic("eth0", True, "ena", "2.11.0g", "0000:20:03.0", "up")
ETH1 = Nic("eth1", True, "ena", "2.11.0g", "0000:20:04.0", "up")
SECOND = tuple(line.replace("eth0", "eth1").replace("20:03.0", "20:04.0") for line in RESET)
STARVED = ("ena 0000:20:03.0 eth0: TX hasn't completed, qid 5, index 801. 5296000 usecs from last"
           " napi execution, napi scheduled: 1",)  # fmt: skip
WATCHDOG = ("NETDEV WATCHDOG: eth0 (ena): transmit queue 0 timed out",)
Rows = Sequence[Row]


def counters(nic: str = "eth0", **named: int) -> list[Row]:
    return [NicCounter(nic, name, value) for name, value in named.items()]


def read(before: Rows, after: Rows) -> list[tuple[float, Rows]]:
    nics = [ETH0, ETH1]
    device = [NetDevice(name, *[0] * (len(fields_of(NetDevice)) - 1)) for name in ("eth0", "eth1")]
    return [(1000.0, [*nics, *device, *before]), (1020.0, [*nics, *device, *after])]


def logged(*messages: Sequence[str]) -> list[tuple[float, Rows]]:
    """A log with these resets, their lines mixed: each begins just after the one before it."""
    lines = sorted(
        (event for at, part in enumerate(messages) for event in events(part, 1010.0 + at / 20)),
        key=lambda event: event.mono_us or 0,
    )
    return read([log()], [log(), *lines])


def by_detector(window: Window) -> int:
    finding = nic_resets.detect(window)
    words = finding.summary.partition(" while watched")[0].split()
    return {"once": 1}.get(words[-1], int(words[-2]) if words[-1] == "times" else 0)


def recorded(directory: Path, readings: list[tuple[float, Rows]]) -> View:
    tables: dict[type[Row], list[Batch[Any]]] = defaultdict(list)
    for mono_s, rows in readings:
        for kind in dict.fromkeys(map(type, rows)):
            mine = tuple(row for row in rows if type(row) is kind)
            tables[kind].append(Batch(mono_s, EPOCH + mono_s, mine))
    write_sealed(directory, [tables])
    view = View.open(directory)
    view.warm()
    return view


def in_explorer(readings: list[tuple[float, Rows]]) -> int:
    number, after = 0, float("-inf")
    with scratch() as directory:
        view = recorded(directory, readings)
        while (mark := view.found("reset", after)) is not None:
            number, after = number + 1, mark.time
    return number


@pytest.mark.parametrize(
    ("lines", "number"),
    [
        pytest.param((RESET,), 1, id="several lines of one reset"),
        pytest.param((RESET, SECOND), 2, id="two NICs reset together"),
        pytest.param((WATCHDOG,), 1, id="the transmit watchdog alone"),
        pytest.param((STARVED,), 0, id="a queue that waited"),
    ],
)
def test_resets_in_the_log_are_one_number(lines: tuple[Sequence[str], ...], number: int):
    readings = logged(*lines)
    window = make_window(readings)
    assert resets.in_window(window) == number
    assert by_detector(window) == number
    assert measures.measure(window)[measures.RESETS] == number
    assert len(list(event_times.resets(window))) == number
    assert in_explorer(readings) == number
    assert sum(resets.by_nic(window).values()) == number
    finding = nic_resets.detect(window)
    assert len(nic_resets.reset_times(finding, window)) == number


@pytest.mark.parametrize(
    ("named", "number"),
    [
        pytest.param({"missing_tx_cmpl": 1, "suspected_poll_starvation": 1}, 2, id="two causes"),
        pytest.param({"tx_timeout": 2, "os_netdev_wd": 2}, 2, id="the watchdog's two counters"),
        pytest.param({"total_resets": 3, "tx_timeout": 1, "wd_expired": 2}, 3, id="a total"),
        pytest.param({"tx_timeout_count": 1}, 1, id="as ixgbe calls it"),
        pytest.param({"tx_queue_0_tx_timeouts": 4, "total_resets": 0}, 0, id="virtio's, by queue"),
    ],
)
def test_resets_by_counters_are_one_number(named: dict[str, int], number: int):
    zero = counters(**dict.fromkeys(named, 0))
    readings = read([log(), *zero], [log(), *counters(**named)])
    window = make_window(readings)
    assert by_detector(window) == number
    assert measures.measure(window)[measures.RESETS] == number
    (load,) = [load for load in nic_loads(window) if load.name == "eth0"]
    assert load.resets == number
    with scratch() as directory:
        view = recorded(directory, readings)
        table = view.table("nic_faults", EPOCH + 1000, EPOCH + 1021)
        names = [heading.partition(" (")[0] for heading in table.headings]
        assert "eth0 resets" in names
        rates = {row[names.index("eth0 resets")] for row in table.rows} - {"", "–"}
    assert np.max([float(rate) for rate in rates]) == pytest.approx(number / 20, abs=0.01)


def test_the_log_and_the_counters_are_merged_by_nic():
    """The log has eth0's reset, the counters have eth1's: that makes two."""
    before, after = counters("eth1", total_resets=7), counters("eth1", total_resets=8)
    window = make_window(read([log(), *before], [log(), *events(RESET, 1010.0), *after]))
    assert resets.in_window(window) == 2
    assert by_detector(window) == 2
    assert resets.by_nic(window) == {"eth0": 1, "eth1": 8}


def test_a_counter_that_shows_a_logged_reset_adds_nothing():
    before, after = counters(total_resets=0), counters(total_resets=1)
    window = make_window(read([log(), *before], [log(), *events(RESET, 1010.0), *after]))
    assert resets.in_window(window) == 1


def test_counters_that_were_read_once_or_fell_tell_nothing_of_the_window():
    once = make_window([(1000.0, [ETH0, *counters(total_resets=3)])])
    fell = make_window(read(counters(total_resets=3), counters(total_resets=0)))
    for window in (once, fell):
        assert resets.in_window(window) is None
        assert measures.RESETS not in measures.measure(window)
    assert resets.by_nic(once) == {"eth0": 3}


def test_a_driver_without_reset_counters_and_no_log_is_unknown():
    rows = counters(rx_packets=3)
    assert resets.in_window(make_window(read(rows, rows))) is None


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        (RESET[2:], {"nic_reset"}),
        (WATCHDOG, {"nic_reset"}),
        (STARVED, {"softirq_wait"}),
        ((PAUSED.format(scheduled=1),), {"nic_reset"}),
        ((STARVED[0].replace("scheduled: 1", "scheduled: 0"),), set()),
    ],
)
def test_alarms_go_by_the_same_rule(lines: Sequence[str], kinds: set[str]):
    batch = Batch(1001.0, EPOCH + 1001.0, tuple(events(lines, 1000.0)))
    assert {raised.kind for raised in Triggers().feed(KernelEvent, batch)} == kinds
