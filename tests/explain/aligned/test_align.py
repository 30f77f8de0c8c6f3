from __future__ import annotations

import weakref

import numpy as np
import pytest

from sexton.explain.aligned import Plan
from sexton.model.aligned import Aligned, Signal
from tests.explain.aligned.made import START_S, align, apart, healthy, plant, seconds, signal

HOURS = 2.0


def compared(seed: int, lead_s: float, height: float, number: int = 8) -> Aligned:
    rng = np.random.default_rng([seed, 4])
    events = apart(rng, HOURS, number)
    signals = healthy(rng, HOURS)
    mono = seconds(HOURS)
    culprit = plant(rng.gamma(2.0, 1.0, len(mono)), mono, events, lead_s, height)
    signals.insert(40, Signal("task", "culprit[4711]", "CPU time", "% of a core", mono, culprit))
    return align(signals, events)


@pytest.mark.parametrize("lead_s", [3.0, 8.0, 20.0, 45.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_culprit_that_nobody_knows_is_first_with_its_lead_time(seed: int, lead_s: float):
    found = compared(seed, lead_s, 60.0)
    assert found.significant >= 1
    first = found.ranked[0]
    assert first.about == "culprit[4711]"
    assert first.before > 3 * first.control
    assert first.shown == 8
    assert first.lead_s == pytest.approx(lead_s, abs=1.5)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_falls_before_events_is_found_as_well(seed: int):
    rng = np.random.default_rng(seed)
    events = apart(rng, HOURS, 8)
    mono = seconds(HOURS)
    starved = plant(100 + rng.normal(0, 5, len(mono)), mono, events, 6.0, -95.0)
    found = align([*healthy(rng, HOURS), signal("eth0 packets", mono, starved)], events)
    assert found.ranked[0].about == "eth0 packets"
    assert found.ranked[0].effect < -3
    assert found.ranked[0].lead_s == pytest.approx(6.0, abs=1.5)


def test_a_culprit_that_missed_some_of_the_events_is_still_found():
    rng = np.random.default_rng(8)
    events = apart(rng, HOURS, 14)
    mono = seconds(HOURS)
    culprit = plant(rng.gamma(2.0, 1.0, len(mono)), mono, events[3:], 8.0, 60.0)
    found = align([*healthy(rng, HOURS), signal("culprit", mono, culprit)], events)
    assert found.ranked[0].about == "culprit"
    assert found.significant >= 1
    assert 10 <= found.ranked[0].shown <= 13


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_with_fewer_than_five_events_nothing_is_significant(number: int):
    found = compared(5, 8.0, 500.0, number)
    assert len(found.events) == number
    assert found.significant == 0
    assert found.ranked[0].p >= found.smallest_p
    assert found.smallest_p >= 1 / 1000
    assert any("fewer than 5 nothing can be significant" in note for note in found.notes)
    if number == 1:
        assert found.smallest_p == pytest.approx(2 / 21)
        assert f"{found.smallest_p:.2g}" in found.notes[-1]


def test_four_episodes_of_many_lines_each_are_four_events():
    rng = np.random.default_rng(9)
    episodes = apart(rng, HOURS, 4, 600.0)
    events = [episode + late for episode in episodes for late in (0.0, 0.4, 1.5, 20.0)]
    found = align(healthy(rng, HOURS), events)
    assert len(found.events) == 4
    assert found.significant == 0


def test_a_signal_that_was_not_read_before_the_events_is_not_tested():
    rng = np.random.default_rng(10)
    mono = seconds(HOURS)
    events = apart(rng, HOURS, 8)
    quiet = rng.gamma(2.0, 1.0, len(mono))
    for event in events:
        quiet[(mono > event - 120) & (mono < event + 10)] = np.nan
    still = np.full(len(mono), 3.0)
    nothing = np.full(len(mono), np.nan)
    named = {"unread": quiet, "still": still, "nothing": nothing, "noise": rng.random(len(mono))}
    found = align([signal(name, mono, value) for name, value in named.items()], events)
    assert found.tested == 1
    assert [item.about for item in found.ranked] == ["noise"]


def test_gaps_and_resets_before_events_are_no_effect():
    """A recorder that stalls just before each event: what is unknown must not look like nothing."""
    rng = np.random.default_rng(11)
    mono = seconds(HOURS)
    events = apart(rng, HOURS, 10)
    signals = []
    for index in range(30):
        value = rng.gamma(2.0, 1.0, len(mono))
        for event in events:
            value[(mono > event - 4) & (mono <= event)] = np.nan
        signals.append(signal(f"core {index}", mono, value))
    found = align(signals, events)
    assert found.tested == 30
    assert found.significant == 0


def test_nothing_to_compare_is_said_and_not_raised():
    mono = seconds(0.1)
    noise = [signal("core 0", mono, np.random.default_rng(1).random(len(mono)))]
    assert align([], [1.0, 2.0]).ranked == ()
    assert align(noise, []).notes == ("no event has a control window to compare with",)
    assert align(noise, [START_S - 500.0]).tested == 0
    plan = Plan(recorded=((START_S, START_S + 3600),))
    assert align([], [START_S + 900.0 * item for item in (1, 2, 3)], plan).tested == 0


def test_the_same_question_has_the_same_answer():
    assert compared(3, 8.0, 60.0) == compared(3, 8.0, 60.0)


def test_signals_are_taken_as_they_come_where_it_is_known_what_was_recorded():
    mono = seconds(HOURS)
    held: list[weakref.ref[np.ndarray]] = []
    most = 0

    def streamed():
        nonlocal most
        for index in range(400):
            value = np.random.default_rng(index).random(len(mono))
            held.append(weakref.ref(value))
            yield signal(f"core {index}", mono, value)
            del value
            most = max(most, sum(other() is not None for other in held))

    plan = Plan(recorded=((mono[0], mono[-1]),))
    found = align(streamed(), apart(np.random.default_rng(1), HOURS, 6), plan)
    assert found.tested == 400
    assert most <= 140
