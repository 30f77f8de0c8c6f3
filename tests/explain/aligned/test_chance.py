from __future__ import annotations

import numpy as np
import pytest

from sexton.explain.aligned.chance import Sizes, judge, scores, smallest_p


def drawn(seed: int, signals: int, sizes: Sizes) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.gamma(1.0, 1.0, (signals, sum(sizes.windows))).astype(np.float32)


def test_one_event_among_its_controls_has_as_many_ps_as_there_are_windows():
    sizes = Sizes((10,))
    values = drawn(1, 400, sizes)
    p = judge([values], sizes, 1999, 1).p
    assert set(np.round(p * 10).tolist()) <= set(range(1, 11))
    assert p.min() == pytest.approx(0.2)  # to either side
    assert smallest_p(sizes, 1999) == pytest.approx(0.2)


def test_equal_controls_make_no_p_that_one_event_does_not_allow():
    sizes = Sizes((10,))
    values = np.array(
        [[9, 1, 1, 1, 1, 1, 1, 2, 3, 4]], np.float32
    )  # nobody is as low as it is high
    tested = judge([values], sizes, 1999, 1)
    assert tested.p[0] == tested.q[0] == pytest.approx(smallest_p(sizes, 1999))


def test_few_arrangements_are_gone_through_and_many_are_drawn():
    assert smallest_p(Sizes((5, 5)), 1999) == pytest.approx(2 / 25)
    assert smallest_p(Sizes((25,) * 4), 1999) == pytest.approx(1 / 2000)
    sizes = Sizes((5, 5))
    values = np.tile(np.arange(10, dtype=np.float32), (1, 1))
    values[0, [0, 5]] = 100
    assert judge([values], sizes, 1999, 1).p[0] == pytest.approx(2 / 25)


def test_without_any_cause_ps_are_spread_evenly():
    sizes = Sizes((21,) * 8)
    p = judge([drawn(2, 2000, sizes)], sizes, 999, 2).p
    for level in (0.01, 0.05, 0.2, 0.5):
        assert (p <= level).mean() == pytest.approx(level, abs=3 * (level / 2000) ** 0.5)


def test_even_one_false_discovery_among_dependent_signals_is_as_rare_as_stated():
    sizes = Sizes((13,) * 6)
    found = 0
    for seed in range(200):
        rng = np.random.default_rng([seed, 9])
        shared = rng.normal(0, 1, (3, sum(sizes.windows)))
        own = rng.normal(0, 1, (40, sum(sizes.windows)))
        mixed = own + 1.5 * shared[rng.integers(0, 3, 40)] * rng.choice([-1, 1], (40, 1))
        found += judge([mixed.astype(np.float32)], sizes, 99, seed).q.min() <= 0.1
    assert found / 200 <= 0.1 + 2 * (0.1 * 0.9 / 200) ** 0.5


def test_q_is_never_below_p_and_in_the_order_of_the_statistic():
    sizes = Sizes((9, 13, 21, 9, 13, 21))
    values = drawn(3, 200, sizes)
    values[7, sizes.starts] += 50
    tested = judge([values], sizes, 999, 3)
    assert (tested.q >= tested.p - 1e-12).all()
    assert tested.q[7] <= 0.01
    order = np.argsort(-np.abs(tested.statistic))
    assert (np.diff(tested.q[order]) >= 0).all()
    assert np.count_nonzero(tested.q <= 0.05) == 1


def test_no_burst_however_large_counts_for_more_than_its_rank():
    sizes = Sizes((25,) * 6)
    values = drawn(4, 50, sizes)
    values[0, sizes.starts[0]] = 1e30
    values[1, sizes.starts[0]] = values[1].max() + 1
    tested = judge([values], sizes, 999, 4)
    assert tested.q[0] > 0.5
    assert tested.q[1] > 0.5


def test_equal_values_share_their_place():
    sizes = Sizes((5,))
    values = np.array([[1, 1, 1, 1, 1], [2, 0, 0, 0, 0], [5, 4, 3, 2, 1]], np.float32)
    made = scores(values, sizes, np.random.default_rng(1))
    assert (made[0] == 0).all()
    assert np.ptp(made[1, 1:]) == 0
    assert made[1, 0] == made[2, 0] == made.max()
    assert np.allclose(made.sum(axis=1), 0, atol=1e-5)


def test_no_ties_lift_a_signal_beyond_one_without():
    sizes = Sizes((25,))
    rng = np.random.default_rng(1)
    values = rng.poisson(0.7, (2000, 25)).astype(np.float32)
    most = np.abs(scores(values, sizes, rng)).max()
    assert most <= scores(np.arange(25, dtype=np.float32)[None], sizes, rng).max() + 1e-6


def test_a_control_that_is_not_known_stands_for_one_that_is():
    sizes = Sizes((7,))
    values = np.array([[7, 6, 5, 4, 3, np.nan, np.nan], [np.nan, 6, 5, 4, 3, 2, 1],
                       [7, 6, 5, np.nan, np.nan, np.nan, np.nan]], np.float32)  # fmt: skip
    made = scores(values, sizes, np.random.default_rng(1))
    assert set(made[0, 5:].tolist()) <= set(made[0, :5].tolist())
    assert (made[1] == 0).all()  # the event itself is not known
    assert (made[2] == 0).all()  # too few to compare with


def test_missing_controls_do_not_make_chance_look_narrower():
    sizes = Sizes((21,) * 8)
    values = drawn(5, 3000, sizes)
    rng = np.random.default_rng(6)
    lost = rng.random(values.shape) < 0.4
    lost[:, sizes.starts] = False
    values[lost] = np.nan
    p = judge([values], sizes, 999, 7).p
    assert (p <= 0.05).mean() <= 0.05 + 3 * (0.05 / 3000) ** 0.5
