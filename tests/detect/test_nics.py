"""Interfaces, their counters, and the core behind a queue."""

from __future__ import annotations

import pytest

from sexton.detect import nics
from sexton.detect.kernel_log import Line
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import Nic, NicCounter, NicQueue
from tests.support.windows import make_window

ETH0 = Nic("eth0", True, "ena", None, "0000:20:03.0", "up")
ETH1 = Nic("eth1", True, "ena", None, "0000:20:04.0", "up")
LO = Nic("lo", False, None, None, None, "up")


def line(**fields: int | str) -> Line:
    return Line(KernelEvent("p", "nic_reset", "m", None, None, fields), None, None)


def queue(number: int | None, direction: str, irq: int, *cpus: int) -> NicQueue:
    return NicQueue("eth0", number, direction, irq, "x", cpus)


def test_physical_is_none_where_nobody_looked_and_empty_where_there_is_none():
    assert nics.physical(make_window([])) is None
    assert nics.physical(make_window([(0, [LO])])) == ()
    assert nics.physical(make_window([(0, [LO, ETH0])])) == ("eth0",)


@pytest.mark.parametrize(
    ("rows", "logged", "name"),
    [
        ([ETH0, ETH1], line(nic="eth1"), "eth1"),
        ([ETH0, ETH1], line(bus="0000:20:04.0"), "eth1"),
        ([ETH0, ETH1], line(), None),
        ([ETH0, LO], line(), "eth0"),
        ([], line(), None),
        ([], line(bus="0000:20:09.0"), "eth9"),  # by an earlier line that named both
    ],
)
def test_a_line_is_about_the_interface_it_names_or_the_device_behind_it(rows, logged, name):
    earlier = line(bus="0000:20:09.0", nic="eth9")
    assert nics.namer(rows, [earlier, logged])(logged) == name


def test_a_counter_tells_its_value_and_its_moves_on_both_sides_of_a_reload():
    values = (5, 7, 0, 1)
    window = make_window([(t, [NicCounter("eth0", "tx_timeout", v)]) for t, v in enumerate(values)])
    assert nics.counters(window, ["tx_timeout"]) == [nics.Counter("eth0", "tx_timeout", 1, 3)]
    assert nics.counters(window, ["wd_expired"]) == []
    assert nics.counters(make_window([]), ["tx_timeout"]) == []


def test_missed_transmissions_name_their_queue():
    rows = [
        NicCounter("eth0", "queue_11_tx_missed_tx", 4),
        NicCounter("eth0", "queue_3_tx_missed_tx", 0),
        NicCounter("eth0", "queue_3_rx_cnt", 9),
    ]
    ((nic, number, counter),) = nics.missed_by_queue(make_window([(0, rows)]))
    assert (nic, number, counter.value) == ("eth0", 11, 4)


def test_the_transmit_side_is_preferred_and_a_loose_interrupt_names_no_core():
    rows = [queue(5, "rx", 60, 1), queue(5, "tx", 61, 2), queue(6, "rxtx", 62, 3, 4)]
    window = make_window([(0, rows)])
    assert nics.place(window, "eth0", 5) == nics.Place("eth0:5", ("2",), ("61",))
    assert nics.place(window, "eth0", 6) == nics.Place("eth0:6", (), ("62",))
    assert nics.place(window, "eth0", 6, cpu=9).cores == ("9",)
    assert nics.place(window, "eth0", 7) == nics.Place("eth0:7", (), ())


def test_serving_cores_are_those_a_real_interfaces_queue_is_bound_to():
    veth = NicQueue("veth0", 0, "rx", 70, "x", (8,))
    rows = [ETH0, queue(5, "rxtx", 61, 2), queue(None, "rxtx", 59, 1), queue(6, "rx", 62, 3, 4)]
    assert list(nics.serving_cores(make_window([(0, [*rows, veth])]))) == [2]
