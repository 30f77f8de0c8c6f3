"""Which core pays for the probe, and how much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.model.cpu import SoftirqCount
from sexton.sources.bpf.cost import (
    CALL_NS,
    MEASURING_NS,
    NETWORK_NS,
    OTHER_NS,
    Events,
    Measured,
    events,
    settle,
)


def count(cpu: int, timer: int, net_rx: int = 0) -> SoftirqCount:
    return SoftirqCount(cpu, timer, 0, net_rx, 0, 0, 0, None, 0)


def test_the_core_with_the_packets_pays():
    by_core = {0: Events(10, 100), 1: Events(100_000, 100)}
    cost = settle(by_core, 1.0, Measured(20_000_000, 100_210, 0.1))
    assert (cost.method, cost.worst_core, cost.run_ns) == ("run_time_ns", 1, 20_000_000)
    left_out = 100_210 * (CALL_NS + MEASURING_NS / 10)
    assert cost.worst_percent == pytest.approx((20_000_000 + left_out) / 1e7, rel=0.01)


def test_a_second_that_is_always_measured_pays_for_the_measuring():
    now_and_then = settle({0: Events(9, 0)}, 1.0, Measured(1000, 10, 0.1))
    always = settle({0: Events(9, 0)}, 1.0, Measured(1000, 10, 1.0))
    assert always.whole_ns - now_and_then.whole_ns == pytest.approx(10 * MEASURING_NS * 0.9)


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
    cost = settle({0: Events(0, 0), 1: Events(0, 0)}, 1.0, Measured(0, 0, 1.0))
    assert (cost.run_ns, cost.worst_percent) == (0, 0)


@given(
    st.dictionaries(
        st.integers(0, 200),
        st.builds(Events, st.integers(0, 1 << 40), st.integers(0, 1 << 40)),
        min_size=1,
    )
)
def test_no_core_pays_more_than_all_and_the_worst_no_less_than_its_part(by_core):
    cost = settle(by_core, 1.0, Measured(1_000_000, 0, 1.0))
    assert 0 <= cost.worst_ns <= 1_000_000 * (1 + 1e-9)
    if any(each.weight_ns for each in by_core.values()):
        assert cost.worst_ns >= 1_000_000 / len(by_core) * (1 - 1e-9)
