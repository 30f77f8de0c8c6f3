"""Rates: resets, gaps and entities that come and go."""

from hypothesis import given
from hypothesis import strategies as st

from sexton.model.counters import delta
from sexton.model.rows.memory import VmCounter
from sexton.model.window import Batch
from sexton.series.steps import last_rate, span, steps


def batch(mono, **values):
    return Batch(mono, mono, tuple(VmCounter(name, value) for name, value in values.items()))


def by_name(row):
    return row.name


@given(st.integers(0), st.integers(0))
def test_a_step_is_never_negative(before, after):
    assert delta(before, after) in (after - before if after >= before else None, None)
    assert (delta(before, after) is None) == (after < before)


def test_a_counter_that_went_backwards_has_no_step_and_not_everything_since_zero():
    found = dict(steps([batch(0, a=100), batch(1, a=5)], by_name))
    assert found["a"].delta("value") is None


def test_entities_that_came_or_went_give_no_step():
    found = list(steps([batch(0, gone=1, stays=1), batch(1, stays=2, new=9)], by_name))
    assert [(name, step.delta("value")) for name, step in found] == [("stays", 1)]


def test_a_doubled_reading_has_no_rate():
    assert not list(steps([batch(1, a=1), batch(1, a=2)], by_name))


def test_span_goes_from_the_first_to_the_last_sight_of_an_entity():
    found = span([batch(0, a=1), batch(1, a=2, b=5), batch(2, b=9)], by_name)
    assert (found["a"].delta("value"), found["a"].seconds) == (1, 1)
    assert (found["b"].delta("value"), found["b"].seconds) == (4, 1)


def test_a_gauge_has_no_pace_at_the_end_of_too_short_a_time():
    assert last_rate([(0.0, 5), (0.9, 9)], 1.0) is None
    assert last_rate([(0.0, 0), (2.0, 4)], 1.0) == 200.0
