"""What the probe costs which core, and when it pauses because of that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.model.rows.cpu import SoftirqCount
from sexton.sources.bpf.budget import (
    CALL_NS,
    MEASURE_EVERY_S,
    NETWORK_NS,
    OFF,
    ON,
    OTHER_NS,
    PART,
    Cost,
    Duty,
    Events,
    Orders,
    Price,
    events,
    price,
    settle,
)


def count(cpu: int, timer: int, net_rx: int = 0) -> SoftirqCount:
    return SoftirqCount(cpu, timer, 0, net_rx, 0, 0, 0, None, 0)


def test_the_core_with_the_packets_pays():
    by_core = {0: Events(10, 100), 1: Events(100_000, 100)}
    cost = settle(by_core, 1.0, price(by_core, 100_210, 20_000_000))
    assert (cost.method, cost.worst_core, cost.run_ns) == ("run_time_ns", 1, 20_000_000)
    assert cost.whole_ns == pytest.approx(20_000_000 + 100_210 * CALL_NS)
    assert cost.worst_percent == pytest.approx(cost.whole_ns / 1e7, rel=0.01)


def test_a_second_that_was_not_measured_costs_what_its_calls_cost_before():
    known = price({0: Events(100, 0)}, 100, 15_000)
    cost = settle({0: Events(1000, 0)}, 1.0, known)
    assert (cost.method, cost.runs, cost.run_ns) == ("run_time_ns", 1000, 150_000)
    assert cost.whole_ns == pytest.approx(1000 * (150 + CALL_NS))


def test_a_second_in_which_the_kernel_measured_nothing_gives_no_price():
    assert price({0: Events(0, 0)}, 0, 0) is None
    assert price({0: Events(5, 0)}, 0, 0) is None, "it was not asked to"


def test_softirqs_that_are_turned_away_are_calls_too_at_raise_and_entry():
    found = events({0: 6, 1: 0}, [count(0, 5), count(1, 5)], [count(0, 5, 999), count(1, 105)])
    assert found == {0: Events(6, 0), 1: Events(0, 200)}


def test_without_the_kernels_measure_it_is_an_estimate_and_says_so():
    cost = settle({0: Events(1000, 50)}, 2.0, None)
    assert (cost.method, cost.runs) == ("estimate", 1050)
    assert cost.run_ns == 1000 * NETWORK_NS + 50 * OTHER_NS
    assert cost.worst_percent == pytest.approx(cost.run_ns / 2e9 * 100)


def test_a_core_that_came_since_is_counted_by_its_packets_alone():
    assert events({4: 7}, [], [count(4, 900)]) == {4: Events(7, 0)}


def test_a_second_without_any_event_costs_nothing():
    cost = settle({0: Events(0, 0), 1: Events(0, 0)}, 1.0, Price(0.5, 0.7))
    assert (cost.run_ns, cost.worst_percent) == (0, 0)


@given(
    st.dictionaries(
        st.integers(0, 200),
        st.builds(Events, st.integers(0, 1 << 40), st.integers(0, 1 << 40)),
        min_size=1,
    )
)
def test_no_core_pays_more_than_all_and_the_worst_no_less_than_its_part(by_core):
    cost = settle(by_core, 1.0, Price(0.5, 0.7))
    assert 0 <= cost.worst_ns <= cost.whole_ns * (1 + 1e-9)
    assert cost.worst_ns >= cost.whole_ns / len(by_core) * (1 - 1e-9)


REST, WATCH, SAMPLE = Orders(False, False), Orders(True, False), Orders(True, True)
MEASURE = Orders(True, True, True)


def sampled(core: int, percent: float, seconds: float) -> Cost:
    """What a sample cost the core that paid most, in per cent of it."""
    whole_ns = percent * seconds * 1e7
    return Cost("run_time_ns", 0, 0, seconds, whole_ns, core, whole_ns)


class Run:
    """A reading a second; each sampled second costs `percent` of a core."""

    def __init__(self) -> None:
        self.duty, self.now = Duty(), 1000.0
        self.orders = self.duty.orders(self.now, alarm=False)

    def seconds(self, number: int, percent: float, alarm: bool = False, pending: float = 0.0):
        """What was ordered for each of them."""
        given = []
        for _ in range(number):
            given.append(self.orders)
            self.now += 1
            if self.orders.sample:
                self.duty.charge(sampled(3, percent, 1.0), self.now)
            self.orders = self.duty.orders(self.now, alarm, pending)
        return given


def test_a_cheap_probe_watches_all_the_time_and_is_judged_one_second_in_ten():
    run = Run()
    given = run.seconds(30, 0.1)
    assert given == [MEASURE, *[WATCH] * 9, *[SAMPLE, *[WATCH] * 9] * 2]
    assert (run.duty.mode, run.duty.why, run.duty.average_percent) == (ON, "", 0.1)


def test_the_kernel_measures_one_second_an_hour():
    """Each time it patches its code, and every core must answer an interrupt for that."""
    given = Run().seconds(2 * int(MEASURE_EVERY_S) + 30, 0.1)
    assert [at for at, orders in enumerate(given) if orders.measure] == [0, 3600, 7200]


def test_the_kernel_is_not_asked_to_measure_while_a_core_may_be_held():
    run = Run()
    run.seconds(3590, 0.1)
    given = run.seconds(60, 0.1, pending=0.5) + run.seconds(60, 0.1, alarm=True)
    assert not any(orders.measure for orders in given)
    assert any(orders.sample for orders in given)
    assert sum(orders.measure for orders in run.seconds(60, 0.1)) == 1


def test_over_half_a_per_cent_it_watches_one_second_in_ten_and_says_why():
    run = Run()
    given = run.seconds(31, 0.8)
    assert given == [MEASURE, *([*[REST] * 9, SAMPLE] * 3)]
    assert run.duty.mode == PART
    assert run.duty.why == "0.80 % of core 3, at most 0.5 % allowed, in a sampled second"
    assert run.duty.average_percent == pytest.approx(0.08)


def test_still_over_half_a_per_cent_on_average_it_stays_off():
    run = Run()
    run.seconds(11, 6.0)
    assert run.duty.mode == OFF
    assert run.duty.why == "0.60 % of core 3, at most 0.5 % allowed, even at 1 s in 10"
    assert run.seconds(100, 0.0) == [REST] * 100


def test_the_limit_itself_is_allowed():
    run = Run()
    run.seconds(1, 0.5)
    assert run.duty.mode == ON


def test_three_cheap_seconds_in_a_row_bring_it_back():
    run = Run()
    run.seconds(1, 0.8)
    run.seconds(20, 0.2)
    assert run.duty.mode == PART
    run.seconds(10, 0.3)  # no longer in a row
    run.seconds(20, 0.2)
    assert run.duty.mode == PART
    run.seconds(10, 0.2)
    assert (run.duty.mode, run.duty.why) == (ON, "")


def test_a_trigger_turns_it_on_whatever_it_costs_and_it_is_judged_when_the_alarm_is_over():
    run = Run()
    run.seconds(11, 6.0)
    run.seconds(1, 6.0, alarm=True)
    given = run.seconds(59, 6.0, alarm=True)
    assert all(second.watch for second in given)
    assert (run.duty.mode, run.duty.why) == (ON, "")
    run.seconds(2, 6.0)
    assert run.duty.mode == PART
    run.seconds(10, 6.0)
    assert run.duty.mode == OFF


def test_a_wait_under_way_keeps_it_watching_until_it_ends_but_not_forever():
    run = Run()
    run.seconds(10, 0.8)
    assert run.orders == SAMPLE
    assert run.seconds(5, 0.8, pending=0.9) == [SAMPLE] * 5
    assert run.seconds(2, 0.8) == [SAMPLE, REST]
    run.seconds(8, 0.8)
    given = run.seconds(50, 0.8, pending=9.0)
    assert given.index(REST) == 30


def test_a_reading_that_comes_late_is_spread_over_its_own_length():
    duty = Duty(mode=PART)
    duty.charge(sampled(0, 0.6, 20.0), 50.0)
    assert duty.mode == OFF
