"""Which queue's poll waited, how long, and what cannot be seen of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sexton.detect.detectors.network.starved_napi import PROBE, detect
from sexton.model.finding import Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cpu import (
    CoreTimes,
    Interrupt,
    ProbeCost,
    SoftirqCount,
    SoftirqWait,
    SoftnetCpu,
)
from sexton.model.rows.net import NetDevice, Nic, NicCounter, NicQueue
from sexton.model.window import Window
from tests.support.log import NOT_CALLED, PAUSED, RESET, events, log
from tests.support.windows import EPOCH, make_window

NOW = 864_000.0
ETH0 = Nic("eth0", True, "ena", "2.11.0g", "0000:20:03.0", "up")
Q5 = NicQueue("eth0", 5, "rxtx", 61, "eth0-Tx-Rx-5", (5,))
STARVED = PAUSED.format(scheduled=1)
LOST = PAUSED.format(scheduled=0)
MISSED = (
    "ena 0000:20:03.0 eth0: TX hasn't completed, qid 5, index 801. {us} usecs from last napi "
    "execution, napi scheduled: 1"
)


def logged(messages: Sequence[str], age: float = 3600.0) -> Window:
    return make_window([(NOW, [ETH0, Q5, log(), *events(messages, NOW - age)])])


class Live:
    """Core 5, second by second: NET_RX runs, share of system time, interrupts of its queue, and
    packets of its interface."""

    def __init__(self, at: float = NOW) -> None:
        self.at, self.polls, self.system_ms, self.fired, self.packets = at, 5_000_000, 1000, 100, 0
        self.readings: list[tuple[float, Sequence[Row]]] = []
        self._read(self.at)

    def second(self, polls: int, system: float, fired: int = 0, packets: int = 0) -> Live:
        self.polls += polls
        self.system_ms += int(1000 * system)
        self.fired += fired
        self.packets += packets
        self.at += 1
        self._read(self.at)
        return self

    def seconds(self, number: int, *shares: float, **more: int) -> Live:
        for _ in range(number):
            self.second(int(shares[0]), shares[1], **more)
        return self

    def _read(self, at: float) -> None:
        device = NetDevice("eth0", 0, self.packets, 0, 0, 0, 0, 0, 0)
        interrupt = Interrupt("61", "eth0-Tx-Rx-5", (0, 5), (7, self.fired))
        idle_ms = int(1000 * at) - self.system_ms + 10**9
        core = CoreTimes(5, 0, 0, self.system_ms, idle_ms, 0, 0, 0, 0)
        softirq = SoftirqCount(5, 0, 0, self.polls, 0, 0, 0, 0, 0)
        # Sources are read one after the other, never at the same instant.
        self.readings.append((at, [ETH0, Q5, interrupt, log()]))
        self.readings.append((at + 0.01, [device]))
        self.readings.append((at + 0.02, [softirq]))
        self.readings.append((at + 0.03, [core]))

    @property
    def window(self) -> Window:
        return make_window(self.readings)


def test_the_drivers_own_measure_names_queue_core_and_wait():
    finding = detect(logged(RESET))
    assert finding.severity is Severity.CRITICAL
    assert "NAPI of queue eth0:5 waited 6.6 s for core 5" in finding.summary
    assert finding.entities == {
        "nic": ("eth0",),
        "queue": ("eth0:5",),
        "core": ("5",),
        "irq": ("61",),
    }
    assert finding.end == pytest.approx(EPOCH + NOW - 3600)
    assert finding.start == pytest.approx(EPOCH + NOW - 3600 - 6.596)
    assert finding.evidence[0].number == pytest.approx(6.596)
    assert finding.evidence[1].value == "5.0 s"


def test_a_poll_that_was_not_scheduled_is_a_lost_interrupt_and_not_starving():
    finding = detect(logged([LOST]))
    assert finding.verdict is Verdict.ABSENT
    assert "an interrupt that did not come" in finding.summary
    assert any(item.number == pytest.approx(6.596) for item in finding.evidence)


@pytest.mark.parametrize(
    ("us", "verdict", "severity"),
    [
        (999_999, Verdict.ABSENT, Severity.INFO),
        (1_000_000, Verdict.PRESENT, Severity.WARNING),
        (4_999_999, Verdict.PRESENT, Severity.WARNING),
        (5_000_000, Verdict.PRESENT, Severity.CRITICAL),
    ],
)
def test_the_limits(us, verdict, severity):
    finding = detect(logged([MISSED.format(us=us)]))
    assert (finding.verdict, finding.severity) == (verdict, severity)


def test_a_wait_of_the_day_before_yesterday_is_only_noted():
    finding = detect(logged([STARVED], age=2 * 86400))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)


def test_a_driver_that_does_not_say_whether_it_was_scheduled_is_believed_less():
    line = (
        "ena 0000:20:03.0 eth0: Found a Tx that wasn't completed on time, qid 5, index 118. "
        "6412000 usecs have passed since last napi execution. Missing Tx timeout value 5000 msecs"
    )
    finding = detect(logged([line]))
    assert finding.severity is Severity.WARNING
    assert "the driver does not say" in finding.summary


def test_the_drivers_verdict_alone_counts_as_its_limit():
    finding = detect(logged([NOT_CALLED]))
    assert finding.severity is Severity.CRITICAL
    assert finding.evidence[0].number == pytest.approx(5.0)


def test_the_core_told_in_the_second_half_is_joined():
    halves = [
        "ena 0000:20:03.0 eth0: [1/2] 12 new missed TX completions, qid: 5, 5304 msecs since "
        "interrupt, 5300 msecs since napi, napi scheduled: 1",
        "ena 0000:20:03.0 eth0: [2/2] qid: 5, highest TX completion pending time (msec): 10208, "
        "napi sched changes: 0, napi CPU: 17",
    ]
    assert detect(logged(halves)).entities["core"] == ("17",)


@pytest.mark.parametrize(
    ("before", "after", "severity"), [(2, 3, Severity.CRITICAL), (2, 2, Severity.INFO)]
)
def test_the_suspicion_counter_counts_when_it_moves(before, after, severity):
    rows = [
        (at, [ETH0, log(), NicCounter("eth0", "suspected_poll_starvation", value)])
        for at, value in ((NOW, before), (NOW + 10, after))
    ]
    finding = detect(make_window(rows))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, severity)


def test_an_undated_suspicion_without_a_log_is_a_warning_with_the_probe():
    counter = NicCounter("eth0", "suspected_poll_starvation", 2)
    finding = detect(make_window([(NOW, [ETH0, counter])]))
    assert finding.severity is Severity.WARNING
    assert PROBE in [item.grant for item in finding.missing]


def test_a_held_core_whose_interrupt_fires_and_whose_poll_does_not_run_is_starved():
    live = Live().second(9, 0.1, fired=9).second(0, 1.0).second(0, 1.0, fired=1).second(0, 1.0)
    finding = detect(live.second(9, 0.1, fired=9).window)
    assert finding.severity is Severity.WARNING
    assert "was not polled for 3.0 s while core 5 was held" in finding.summary
    assert "1 interrupt meanwhile" in finding.evidence[0].value
    assert finding.entities["queue"] == ("eth0:5",)
    assert finding.start == pytest.approx(EPOCH + NOW + 1.02)


def test_an_interrupt_of_the_silences_first_step_may_have_been_answered_before_it():
    live = Live().second(9, 0.1, fired=9).second(0, 1.0, fired=5).seconds(2, 0, 1.0)
    finding = detect(live.second(9, 0.1, fired=9).window)
    assert finding.verdict is Verdict.UNKNOWN


def test_a_core_that_polls_all_the_time_and_stops_while_others_receive_is_starved():
    live = Live().seconds(2, 60, 0.1, packets=900).seconds(5, 0, 1.0, packets=800)
    finding = detect(live.seconds(2, 60, 0.1, packets=900).window)
    assert finding.severity is Severity.CRITICAL
    assert "was not polled for 5.0 s" in finding.summary


def test_where_the_whole_interface_is_silent_nobody_can_tell_without_a_probe():
    live = Live().seconds(2, 60, 0.1, packets=900).seconds(5, 0, 1.0)
    finding = detect(live.seconds(2, 60, 0.1, packets=900).window)
    assert finding.verdict is Verdict.UNKNOWN
    assert "whether a packet waited is unknown" in finding.summary
    assert finding.missing[-1].grant == PROBE


def test_a_queue_that_is_seldom_used_is_not_starved_by_a_busy_core():
    live = Live().second(20, 0.1).seconds(6, 0, 1.0, packets=5)
    assert detect(live.window).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("polls", "system"),
    [
        (0, 0.5),  # silent, but the core was free
        (3, 1.0),  # held, and polled all the same
        (40, 0.1),
    ],
)
def test_held_or_silent_alone_is_not_starved(polls, system):
    finding = detect(Live().seconds(4, polls, system, fired=3, packets=9).window)
    assert finding.verdict is Verdict.ABSENT
    assert PROBE in [item.grant for item in finding.missing]


def test_a_core_that_never_polls_is_not_even_a_question():
    assert detect(Live(at=50_000_000.0).seconds(3, 0, 1.0).window).verdict is Verdict.ABSENT


def test_a_core_that_serves_no_queue_cannot_starve_one():
    readings = []
    for second in range(5):
        core = CoreTimes(3, 0, 0, 1000 * second, 0, 0, 0, 0, 0)
        softirq = SoftirqCount(3, 0, 0, 9_000_000, 0, 0, 0, 0, 0)
        readings.append((NOW + second, [ETH0, Q5, core, softirq, log()]))
    assert detect(make_window(readings)).verdict is Verdict.ABSENT


def test_squeezes_and_drops_are_shown_and_turn_nothing():
    first, last = SoftnetCpu(5, 9, 0, 0, 0, 0, 0), SoftnetCpu(5, 99, 7, 1200, 0, 0, 0)
    finding = detect(make_window([(NOW, [ETH0, Q5, log(), first]), (NOW + 9, [last])]))
    assert finding.verdict is Verdict.ABSENT
    assert [item.number for item in finding.evidence[-2:]] == [7, 1200]


def test_no_physical_interface_is_not_applicable():
    lo = Nic("lo", False, None, None, None, "up")
    assert detect(make_window([(NOW, [lo, log()])])).verdict is Verdict.NOT_APPLICABLE


def test_without_log_counter_and_live_view_it_is_unknown_and_names_every_source():
    finding = detect(make_window([(NOW, [ETH0])]))
    assert finding.verdict is Verdict.UNKNOWN
    assert len(finding.missing) == 3


def test_a_kernel_without_a_net_rx_row_is_not_silent():
    readings = []
    for second in range(5):
        core = CoreTimes(5, 0, 0, 1000 * second, 0, 0, 0, 0, 0)
        softirq = SoftirqCount(5, 0, 0, None, 0, 0, 0, 0, 0)
        readings.append((NOW + second, [ETH0, Q5, core, softirq, log()]))
    assert detect(make_window(readings)).verdict is Verdict.ABSENT


def probed(*seconds: tuple[int | None, int | None], before: Sequence[Row] = (), core: int = 5):
    """NET_RX of a core, second by second: the longest wait that ended, and one under way, in us."""
    readings = [(NOW, [ETH0, Q5, log(), *before, ProbeCost("on", False, "", "", *[None] * 6)])]
    for second, (longest, pending) in enumerate(seconds, 1):
        wait = SoftirqWait(core, "NET_RX", 9, 9, 9, longest, pending, (9,))
        cost = ProbeCost("on", True, "", "run_time_ns", 9, 9, 1.0, 5, 0.1, 1.0)
        readings.append((NOW + second, [wait, cost]))
    return readings


@pytest.mark.parametrize(
    ("longest", "pending", "verdict", "severity"),
    [
        (999_999, None, Verdict.ABSENT, Severity.INFO),
        (1_000_000, None, Verdict.PRESENT, Severity.WARNING),
        (None, 1_000_000, Verdict.PRESENT, Severity.WARNING),
        (4_999_999, None, Verdict.PRESENT, Severity.WARNING),
        (5_000_000, None, Verdict.PRESENT, Severity.CRITICAL),
        (None, 5_000_000, Verdict.PRESENT, Severity.CRITICAL),
    ],
)
def test_the_limits_of_a_measured_wait(longest, pending, verdict, severity):
    finding = detect(make_window(probed((3, None), (longest, pending))))
    assert (finding.verdict, finding.severity) == (verdict, severity)


def test_a_wait_under_way_warns_before_the_driver_resets_anything():
    finding = detect(make_window(probed((3, 600_000), (None, 1_600_000))))
    assert finding.summary == (
        "NET_RX waited 1.6 s and had not run yet for core 5, which polls eth0:5"
    )
    assert finding.entities == {
        "nic": ("eth0",),
        "queue": ("eth0:5",),
        "core": ("5",),
        "irq": ("61",),
    }
    assert finding.start == pytest.approx(EPOCH + NOW + 2 - 1.6)
    assert finding.evidence[0].value == "1.6 s, and had not ended"
    assert PROBE not in [item.grant for item in finding.missing]


def test_a_wait_on_a_core_without_a_queue_names_the_core():
    finding = detect(make_window(probed((2_000_000, None), core=3)))
    assert finding.summary == "NET_RX waited 2.0 s for core 3"
    assert finding.entities == {"core": ("3",)}


def test_a_probe_that_saw_nothing_says_how_long_the_longest_wait_was_and_is_not_asked_for():
    finding = detect(make_window(probed((80, None), (30, 2))))
    assert finding.verdict is Verdict.ABSENT
    assert (finding.evidence[0].value, finding.evidence[0].number) == ("80 µs", pytest.approx(8e-5))
    assert PROBE not in [item.grant for item in finding.missing]


def test_a_probe_that_rested_is_not_believed_for_the_time_it_did():
    rested = ProbeCost("1 s in 10", False, "0.7 % of core 3", "run_time_ns", 9, 9, 1.0, 3, 0.07, 1)
    finding = detect(make_window([*probed((80, None)), (NOW + 2, [rested])]))
    assert finding.verdict is Verdict.ABSENT
    assert "waits while the probe was paused: it used 0.7 % of core 3" in finding.missing[-1].what


def test_the_probe_alone_is_enough_to_tell():
    readings = [
        (at, [row for row in rows if isinstance(row, Nic | SoftirqWait | ProbeCost)])
        for at, rows in probed((80, None))
    ]
    assert detect(make_window(readings)).verdict is Verdict.ABSENT


def test_where_the_probe_watched_a_silence_starves_nobody():
    live = Live().seconds(2, 60, 0.1, packets=900).seconds(5, 0, 1.0, packets=800)
    live.seconds(2, 60, 0.1, packets=900)
    assert detect(live.window).verdict is Verdict.PRESENT
    quiet = probed(*[(80, None)] * 9)
    assert detect(make_window([*live.readings, *quiet])).verdict is Verdict.ABSENT
    late = [item for item in quiet if item[0] > NOW + 3]  # it may have begun before the probe
    finding = detect(make_window([*live.readings, *late]))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.CRITICAL)


def test_a_longer_wait_that_the_driver_told_of_lately_comes_first():
    told_lately = events([STARVED], NOW - 60)
    finding = detect(make_window(probed((2_000_000, None), before=told_lately)))
    assert "NAPI of queue eth0:5 waited 6.6 s" in finding.summary
    assert finding.severity is Severity.CRITICAL
    assert [round(item.number, 1) for item in finding.evidence[:2]] == [2.0, 6.6]
    long_ago = events([STARVED], NOW - 3 * 86400)
    finding = detect(make_window(probed((2_000_000, None), before=long_ago)))
    assert "NET_RX waited 2.0 s" in finding.summary
    assert finding.severity is Severity.WARNING
