"""When the probe watches, rests and stays away."""

from __future__ import annotations

import pytest

from sexton.sources.bpf.duty import OFF, ON, PART, Charge, Duty, Orders

REST, WATCH, SAMPLE = Orders(False, False), Orders(True, False), Orders(True, True)


class Run:
    """A reading a second; each sampled second costs what is asked for."""

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
                self.duty.charge(Charge(3, percent, 1.0), self.now)
            self.orders = self.duty.orders(self.now, alarm, pending)
        return given


def test_a_cheap_probe_watches_all_the_time_and_is_measured_one_second_in_ten():
    run = Run()
    given = run.seconds(30, 0.1)
    assert given == [SAMPLE, *[WATCH] * 9] * 3
    assert (run.duty.mode, run.duty.why, run.duty.average_percent) == (ON, "", 0.1)


def test_over_half_a_per_cent_it_watches_one_second_in_ten_and_says_why():
    run = Run()
    given = run.seconds(31, 0.8)
    assert given == [SAMPLE, *([*[REST] * 9, SAMPLE] * 3)]
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
    assert all(each.watch for each in given)
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
    duty.charge(Charge(0, 0.6, 20.0), 50.0)
    assert duty.mode == OFF
