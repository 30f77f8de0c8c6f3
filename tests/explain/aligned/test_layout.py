from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.explain.aligned.layout import Layout, Plan, lay_out
from tests.support.examples import examples

HOURS = ((0.0, 4 * 3600.0),)
EVENTS = [2000.0, 4500.0, 7000.0, 9500.0, 12_000.0]


def windows(layout: Layout) -> list[tuple[float, float]]:
    length = layout.spans[-1]
    return [(end - length, end) for stratum in layout.strata for end in stratum.controls]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.floats(-100, 9000), max_size=30),
    st.lists(st.floats(30, 3000), min_size=1, max_size=6),
    st.sampled_from([10.0, 20.0, 30.0]),
)
def test_a_control_window_touches_no_event_and_no_other_window(
    events: list[float], lengths: list[float], before_s: float
):
    recorded, start = [], 0.0
    for length in lengths:
        recorded.append((start, start + length))
        start += length + 100
    layout = lay_out(events, recorded, Plan(before_s=before_s))
    found = sorted(windows(layout))
    assert all(a[1] <= b[0] + 1e-5 for a, b in pairwise(found))
    for start, end in found:
        assert any(a - 2 <= start and end <= b + 2 for a, b in recorded)
        for event in events:
            apart = event - layout.spans[-1] >= end - 1e-6 or event <= start + 1e-6
            assert apart, (event, start, end)


def test_controls_lie_whole_minutes_away_on_both_sides():
    layout = lay_out(EVENTS, HOURS, Plan())
    for item in layout.strata:
        away = [(end - item.event) / 60 for end in item.controls]
        assert len(away) == 20
        assert all(step == round(step) for step in away)
        assert sum(step < 0 for step in away) == 10
        assert max(map(abs, away)) == 10


def test_what_has_to_be_read_names_the_events_first_and_then_the_nearest_controls():
    layout = lay_out(EVENTS, HOURS, Plan())
    assert layout.windows[:5] == tuple((event - 60, event) for event in EVENTS)
    assert layout.windows[5] == (EVENTS[0] - 90, EVENTS[0] - 60)
    assert len(layout.windows) == 5 + 5 * 20


def test_events_that_follow_one_another_closely_are_one_episode():
    layout = lay_out([*EVENTS, 2001.5, 2010.0, 2050.0], HOURS, Plan())
    assert [item.event for item in layout.strata] == EVENTS
    assert "8 events in 5 episodes" in layout.notes[0]


def test_controls_keep_away_from_every_event_even_those_left_out():
    many = [2000.0 + 7 * index for index in range(60)]
    layout = lay_out(many, HOURS, Plan())
    assert len(layout.strata) == 1
    assert all(end <= 2000 - 60 or end - 30 >= many[-1] + 30 for end in layout.strata[0].controls)


def test_an_event_before_which_nothing_was_recorded_is_left_out_with_a_note():
    recorded = ((0.0, 6000.0), (7000.0, 14_400.0))
    layout = lay_out([*EVENTS[:2], 6500.0, 7002.0, *EVENTS[3:]], recorded, Plan())
    assert [item.event for item in layout.strata] == [2000.0, 4500.0, 9500.0, 12_000.0]
    assert layout.notes == ("2 events left out: the 30.0 s before were not recorded",)


def test_a_short_recording_is_compared_by_closer_and_shorter_windows():
    events = [100.0, 190.0, 280.0, 370.0, 460.0, 550.0]
    layout = lay_out(events, ((0.0, 600.0),), Plan())
    assert [item.event for item in layout.strata] == events
    assert layout.spans == (5.0, 10.0)
    assert all(len(item.controls) >= 4 for item in layout.strata)


def test_periodic_events_get_a_note():
    layout = lay_out([1000.0 + 600 * index for index in range(8)], HOURS, Plan())
    assert layout.notes == (
        "the events come every 10 min 0 s: anything else with that period looks like a cause",
    )
    assert not lay_out([*EVENTS[:4], 13_000.0], HOURS, Plan()).notes


def test_of_many_events_some_are_chosen_evenly():
    many = [300.0 + 200 * index for index in range(200)]
    layout = lay_out(many, ((0.0, 12 * 3600.0),), Plan())
    chosen = [item.event for item in layout.strata]
    assert len(chosen) <= 24
    assert "24 of 200 events were compared, evenly chosen" in layout.notes[0]
    assert chosen[0] < 2000
    assert chosen[-1] > 39_000


def test_nothing_recorded_and_no_events_give_an_empty_layout():
    assert lay_out([], HOURS, Plan()).strata == ()
    assert lay_out(EVENTS, (), Plan()).strata == ()
    assert lay_out([float("nan"), float("inf")], HOURS, Plan()).strata == ()


def test_a_plan_that_compares_nothing_is_refused():
    with pytest.raises(ValueError, match="room for a window"):
        Plan(before_s=90.0)
    with pytest.raises(ValueError, match="the shorter one"):
        Plan(short_s=40.0)
    with pytest.raises(ValueError, match="no control windows"):
        Plan(controls=0)
