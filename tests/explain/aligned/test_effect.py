from __future__ import annotations

import numpy as np
import pytest

from sexton.explain.aligned.chance import Sizes, effects_of, lead_of

SIZES = Sizes((5, 5, 5))


def test_effects_are_medians_in_spreads_of_the_controls():
    values = np.array([[10, 1, 2, 3, 4, 20, 11, 12, 13, 14, 30, 21, 22, 23, 24.0]])
    found = effects_of(values, ["B"], SIZES)
    assert found.before[0] == 20
    assert found.control[0] == 12.5
    assert found.size[0] == pytest.approx(7.5 / 1.4826)  # away from their own middles
    assert found.shown[0] == 3
    assert found.usual[0].tolist() == [2.5, 12.5, 22.5]


def test_what_stood_still_in_every_control_has_an_end_to_its_effect():
    values = np.zeros((2, 15))
    values[:, SIZES.starts] = [[50.0], [-3.0]]
    found = effects_of(values, ["B", "B"], SIZES)
    assert found.size.tolist() == [100.0, -100.0]


def test_one_tick_of_a_clock_is_little_whatever_the_controls_did():
    values = np.zeros((2, 15))
    values[0, SIZES.starts] = 0.2
    values[1, SIZES.starts] = 60.0
    found = effects_of(values, ["% of a core"] * 2, SIZES)
    assert found.size.tolist() == pytest.approx([0.2, 60.0])


def test_what_is_not_known_is_left_out_of_medians():
    values = np.array([[9, 1, np.nan, 2, 3, np.nan, 1, 2, 3, 4, 11, 2, 2, np.nan, 2]])
    found = effects_of(values, ["B"], SIZES)
    assert found.before[0] == 10
    assert np.isnan(found.usual[0, 1])
    assert found.shown[0] == 2
    nothing = effects_of(np.full((1, 15), np.nan), ["B"], SIZES)
    assert nothing.size[0] == 0
    assert np.isnan(nothing.before[0])


@pytest.mark.parametrize("lead", [1, 7, 30, 60])
def test_the_lead_is_where_most_of_the_difference_begins(lead: int):
    rng = np.random.default_rng(lead)
    onset = rng.normal(5, 1, (9, 60))
    onset[:, 60 - lead :] -= 8
    usual = np.full(9, 5.0)
    assert lead_of(onset, usual, -4.0, 60.0) == lead
    assert lead_of(onset, usual, -4.0, 20.0) == pytest.approx(lead / 3, abs=0.01)
    assert lead_of(np.full((9, 60), np.nan), usual, -4.0, 60.0) is None
    assert lead_of(np.full((9, 60), 5.0), usual, 4.0, 60.0) is None


def test_a_lead_before_anything_was_read_is_not_claimed():
    onset = np.full((4, 60), np.nan)
    onset[:, 50:] = 9.0
    assert lead_of(onset, np.zeros(4), 5.0, 60.0) == 10.0
