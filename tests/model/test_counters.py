"""Steps of counters: what fell or is new is unknown, never negative and never zero."""

from __future__ import annotations

import pytest

from sexton.model.counters import delta, moved, wrapped


@pytest.mark.parametrize(
    ("before", "after", "step"),
    [(5, 9, 4), (5, 5, 0), (9, 5, None), (None, 5, None), (5, None, None), (0.5, 2.0, 1.5)],
)
def test_a_counter_that_fell_or_is_absent_has_no_step(
    before: float | None, after: float | None, step: float | None
):
    assert delta(before, after) == step


def test_of_many_those_that_fell_are_missing_and_new_ones_unless_they_began_at_zero():
    before, after = {"a": 1, "fell": 5, "gone": 2}, {"a": 3, "fell": 2, "new": 7}
    assert moved(before, after) == {"a": 2}
    assert moved(before, after, born=True) == {"a": 2, "new": 7}


def test_a_counter_of_32_bits_starts_over():
    assert wrapped(2**32 - 1, 4, 32) == 5
