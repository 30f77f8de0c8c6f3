"""How often an interface was reset, when, why, and on whose core."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.detect.detectors.network.nic_resets import detect
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import Nic, NicCounter, NicQueue
from sexton.model.rows.node import Node
from sexton.model.window import SourceState, Window
from tests.support.log import DONE, RESET, TRIGGER, events, log
from tests.support.windows import EPOCH, make_window, providers

DAY = 86400.0
NOW = 10 * DAY
ETH0 = Nic("eth0", True, "ena", "2.11.0g", "0000:20:03.0", "up")
Q5 = NicQueue("eth0", 5, "rxtx", 61, "eth0-Tx-Rx-5", (5,))
WATCHDOG = "NETDEV WATCHDOG: eth0 (ena): transmit queue 0 timed out"


def node(uptime_s: float) -> Node:
    return Node("n", "5.4", 96, "b", uptime_s, *[None] * 8)


def counter(name: str, value: int, nic: str = "eth0") -> NicCounter:
    return NicCounter(nic, name, value)


def window(*rows: Row, later: Sequence[Row] = ()) -> Window:
    return make_window([(NOW, [ETH0, Q5, *rows]), (NOW + 10, [ETH0, Q5, *later])])


def run(*rows: Row, later: Sequence[Row] = ()) -> Finding:
    return detect(window(*rows, later=later))


def test_the_lines_of_one_reset_count_once_and_name_queue_core_and_irq():
    finding = run(log(), *events(RESET, NOW - 3600))
    assert "reset once in 24 h" in finding.summary
    assert "queue 5 on core 5: its poll was starved" in finding.summary
    assert finding.severity is Severity.WARNING
    assert finding.entities == {
        "nic": ("eth0",),
        "queue": ("eth0:5",),
        "core": ("5",),
        "irq": ("61",),
    }
    assert finding.start == pytest.approx(EPOCH + NOW - 3600, abs=1)


@pytest.mark.parametrize(
    ("ages", "severity", "words"),
    [
        ([2 * DAY, 3 * DAY], Severity.INFO, "2 times, all more than 24 h ago"),
        ([2 * DAY, 3600], Severity.WARNING, "once in 24 h, last 1 h 0 min ago"),
        ([7200, 3600], Severity.WARNING, "2 times in 24 h"),
        ([7200, 3600, 60], Severity.CRITICAL, "3 times in 24 h"),
        ([-5], Severity.CRITICAL, "once while watched"),
    ],
)
def test_the_age_and_the_number_make_the_severity(ages, severity, words):
    told = [event for age in ages for event in events(RESET, NOW - age)]
    finding = run(log(), later=[log(), *told])
    assert finding.severity is severity
    assert words in finding.summary


def test_two_resets_within_ten_seconds_are_two():
    finding = run(log(), *events(RESET, NOW - 100), *events(RESET, NOW - 94))
    assert "2 times in 24 h" in finding.summary


def test_a_line_without_a_time_is_a_warning():
    finding = run(log(), *events([*RESET, *RESET], None))
    assert finding.severity is Severity.WARNING
    assert "2 times since boot, time unknown" in finding.summary


def test_a_counter_that_moved_is_critical_without_any_log():
    finding = run(counter("total_resets", 3), later=[counter("total_resets", 4)])
    assert finding.severity is Severity.CRITICAL
    assert "once while watched" in finding.summary
    assert any("kmsg" in item.what for item in finding.missing)


def test_a_counter_that_went_backwards_is_no_reset_of_now():
    finding = run(counter("total_resets", 3), log(), node(NOW), later=[counter("total_resets", 0)])
    assert finding.verdict is Verdict.ABSENT


@pytest.mark.parametrize(
    ("rows", "severity"),
    [
        ((), Severity.WARNING),
        ((node(3600.0),), Severity.WARNING),
        ((log(oldest_s=NOW - 600),), Severity.WARNING),
        ((log(),), Severity.INFO),
        ((log(oldest_s=NOW - 2 * DAY),), Severity.INFO),
        ((log(oldest_s=NOW - 2 * DAY, lost=5),), Severity.WARNING),
    ],
)
def test_a_counter_without_a_date_is_dated_by_what_the_log_would_have_shown(rows, severity):
    resets = counter("total_resets", 1)
    assert run(resets, *rows, later=[resets]).severity is severity


def test_three_counted_resets_of_a_node_up_for_an_hour_are_critical():
    resets = counter("total_resets", 3)
    assert run(resets, node(3600.0), later=[resets]).severity is Severity.CRITICAL


def test_logged_resets_are_not_counted_again_by_the_counter():
    resets = counter("total_resets", 1)
    finding = run(log(), resets, *events(RESET, NOW - 3600), later=[resets])
    assert "once in 24 h" in finding.summary
    assert finding.severity is Severity.WARNING


def test_a_watchdog_counted_under_two_names_is_one_reset():
    rows = [counter("tx_timeout", 1), counter("os_netdev_wd", 1)]
    finding = run(*rows, node(3600.0), later=rows)
    assert "once in 24 h" in finding.summary


@pytest.mark.parametrize("name", ["wd_expired", "missing_intr"])
def test_a_silent_device_points_elsewhere_than_starvation(name):
    rows = [counter("total_resets", 1), counter(name, 1)]
    finding = run(*rows, later=rows)
    assert "not at a starved core" in finding.summary
    assert any("points at the device" in item.what for item in finding.evidence)


def test_starvation_beside_a_lost_interrupt_is_still_called_starvation():
    rows = [counter("suspected_poll_starvation", 1), counter("missing_intr", 1)]
    assert "its poll was starved" in run(*rows, later=rows).summary


def test_a_failed_reset_today_is_critical():
    failed = "ena 0000:20:03.0: Reset attempt failed. Can not reset the device"
    finding = run(log(), *events([TRIGGER, failed], NOW - 3600))
    assert finding.severity is Severity.CRITICAL
    assert "the last reset failed" in finding.summary


def test_a_watchdog_that_only_told_is_not_called_a_reset():
    line = (
        "virtio_net virtio2 eth0: TX timeout on queue: 0, sq: output.0, vq: 0x1, "
        "name: output.0, 5516000 usecs ago"
    )
    finding = run(log(), *events([line], NOW - 3600))
    assert "hit its transmit watchdog" in finding.summary


def test_the_core_of_the_watchdogs_timer_is_never_blamed():
    line = "ena 0000:20:03.0 eth0: NETDEV WATCHDOG: CPU: 56: transmit queue 11 timed out 5340 ms"
    finding = run(log(), *events([line], NOW - 3600))
    assert "core" not in finding.entities
    assert finding.entities["queue"] == ("eth0:11",)


def test_an_interrupt_that_may_fire_anywhere_names_no_core():
    anywhere = NicQueue("eth0", 7, "rxtx", 70, "eth0-Tx-Rx-7", tuple(range(96)))
    line = RESET[0].replace("q 5", "q 7")
    finding = detect(
        make_window([(NOW, [ETH0, anywhere, log(), *events([line, TRIGGER], NOW - 60)])])
    )
    assert finding.entities["queue"] == ("eth0:7",)
    assert "core" not in finding.entities


def test_the_core_the_driver_names_wins_over_todays_affinity():
    line = (
        "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). usecs since "
        "napi 6596000. napi scheduled: 1. napi CPU: 17. msecs since interrupt: 6604"
    )
    finding = run(log(), *events([line, TRIGGER], NOW - 60))
    assert finding.entities["core"] == ("17",)


def test_a_line_with_the_bus_alone_belongs_to_the_interface_behind_it():
    finding = run(log(), *events([DONE], NOW - 60))
    assert finding.entities["nic"] == ("eth0",)


def test_no_physical_interface_is_not_applicable():
    veth = Nic("veth0", False, "veth", None, None, "up")
    finding = detect(make_window([(NOW, [veth])]))
    assert finding.verdict is Verdict.NOT_APPLICABLE


def test_a_quiet_log_is_absent_and_says_since_when():
    finding = run(log(oldest_s=NOW - 7200))
    assert finding.verdict is Verdict.ABSENT
    assert "0 resets of eth0 in the last 2 h" in finding.summary


def test_zero_counters_without_a_log_are_absent_and_say_what_is_missing():
    finding = run(counter("total_resets", 0), later=[counter("total_resets", 0)])
    assert finding.verdict is Verdict.ABSENT
    assert any("kmsg" in item.what for item in finding.missing)


def test_virtio_without_counters_and_without_a_log_is_unknown():
    name = next(key for kind, key in providers().items() if kind is KernelEvent)
    denied = SourceState(name, "/dev/kmsg", "denied", "Operation not permitted", "sudo sexton")
    virtio = Nic("eth0", True, "virtio_net", None, "virtio2", "up")
    rows: list[Row] = [virtio, counter("rx_queue_0_packets", 5)]
    finding = detect(make_window([(NOW, rows)], states=[denied]))
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.missing[0].grant == "sudo sexton"


def test_nothing_read_at_all_is_unknown():
    assert detect(make_window([])).verdict is Verdict.UNKNOWN


def test_other_interfaces_counters_do_not_count():
    rows = [counter("total_resets", 9, nic="veth1")]
    assert run(log(), *rows, later=rows).verdict is Verdict.ABSENT


@given(
    st.lists(
        st.tuples(st.sampled_from([*RESET, WATCHDOG]), st.floats(0, 2 * NOW) | st.none()),
        max_size=12,
    ),
    st.integers(0, 5),
)
def test_any_order_of_lines_gives_one_readable_finding(said, resets):
    told = [event for message, at in said for event in events([message], at)]
    rows: list[Row] = [log(), counter("total_resets", resets), *told]
    finding = run(*rows, later=[counter("total_resets", resets)])
    assert (finding.verdict is Verdict.PRESENT) == (bool(said) or resets > 0)
    assert finding.evidence


@pytest.mark.parametrize(
    ("container", "verdict"), [(None, Verdict.NOT_APPLICABLE), ("docker", Verdict.UNKNOWN)]
)
def test_no_interface_in_a_container_says_nothing_of_the_nodes(
    container: str | None, verdict: Verdict
) -> None:
    inside = Node("n", "5.4", 96, "b", DAY, *[None] * 7, container)
    finding = detect(make_window([(NOW, [inside, Nic("lo", False, None, None, None, "up")])]))
    assert finding.verdict is verdict
    grants = [lack.grant for lack in finding.missing]
    assert any("on the node" in grant for grant in grants) is (verdict is Verdict.UNKNOWN)
