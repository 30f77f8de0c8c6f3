"""Tail probabilities against exact enumeration, quadrature and published tables."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.profile.significance import (
    Blocks,
    benjamini_hochberg,
    binomial_tail,
    difference_q,
    hypergeometric_tail,
    log_gamma,
    simes,
    t_tail,
)


def exactly_binomial(k: int, n: int, p: Fraction) -> Fraction:
    return sum(
        (comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(max(k, 0), n + 1)), Fraction(0)
    )


@given(n=st.integers(1, 60), k=st.integers(-1, 62), p=st.integers(0, 100))
def test_binomial_tails_are_those_of_enumeration(n: int, k: int, p: int) -> None:
    exact = exactly_binomial(k, n, Fraction(p, 100))
    assert float(binomial_tail(k, n, p / 100)) == pytest.approx(float(exact), rel=1e-11, abs=1e-300)


def test_a_binomial_tail_far_out_keeps_its_digits() -> None:
    exact = exactly_binomial(90, 97, Fraction(3, 100))
    assert exact < Fraction(1, 10**120)
    assert float(binomial_tail(90, 97, 0.03)) == pytest.approx(float(exact), rel=1e-10)


@given(total=st.integers(1, 60), data=st.data())
def test_hypergeometric_tails_are_those_of_enumeration(total: int, data: st.DataObject) -> None:
    marked = data.draw(st.integers(0, total))
    drawn = data.draw(st.integers(0, total))
    k = data.draw(st.integers(-1, total + 1))
    hits = range(max(k, 0), min(drawn, marked) + 1)
    ways = sum(comb(marked, i) * comb(total - marked, drawn - i) for i in hits)
    exact = Fraction(ways, comb(total, drawn))
    found = hypergeometric_tail(k, drawn, marked, total)
    assert found == pytest.approx(float(exact), rel=1e-10, abs=1e-300)


@pytest.mark.parametrize(
    ("df", "t", "tail"),
    [
        # The usual printed table of Student's t.
        (1, 6.313752, 0.05),
        (1, 318.308839, 0.001),
        (2, 9.924843, 0.005),
        (5, 4.032143, 0.005),
        (10, 1.812461, 0.05),
        (20, 2.845340, 0.005),
        (30, 3.385185, 0.001),
        (120, 1.980, 0.025),
    ],
)
def test_students_t_is_that_of_the_table(df: int, t: float, tail: float) -> None:
    assert float(t_tail(t, df)) == pytest.approx(tail, rel=1e-3)
    assert float(t_tail(-t, df)) == pytest.approx(1 - tail, rel=1e-3)


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 5.0, 40.0, 1e6])
def test_students_t_has_closed_forms_at_one_two_and_four_degrees(t: float) -> None:
    assert float(t_tail(t, 1)) == pytest.approx(
        0.5 if t == 0 else math.atan(1 / t) / math.pi, rel=1e-10
    )
    # 1/2 - t / (2 √(t²+2)), written without the difference of two near numbers.
    root = math.sqrt(t * t + 2)
    assert float(t_tail(t, 2)) == pytest.approx(1 / (root * (root + t)), rel=1e-10)


@pytest.mark.parametrize(("df", "t"), [(3.5, 2.0), (7, 6.0), (19, 8.0), (30, 10.0), (500, 5.0)])
def test_students_t_is_the_integral_of_its_density(df: float, t: float) -> None:
    # t = tan-like substitution: x = t + u / (1 - u), Simpson over u in [0, 1).
    u = np.linspace(0, 1, 200_001)[:-1]
    x = t + u / (1 - u)
    front = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    values = np.append(front * (1 + x * x / df) ** (-(df + 1) / 2) / (1 - u) ** 2, 0.0)
    weights = np.ones(len(values))
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    area = float(values @ weights) / (3 * 200_000)
    assert float(t_tail(t, df)) == pytest.approx(area, rel=1e-6)


def test_log_gamma_is_that_of_factorials() -> None:
    assert np.allclose(np.exp(log_gamma(np.arange(1, 15))), [math.factorial(n) for n in range(14)])


def test_benjamini_and_hochbergs_own_example() -> None:
    # Benjamini & Hochberg 1995, section 3.3: fifteen p, four called at 5 %.
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459]
    p += [0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert int(np.count_nonzero(benjamini_hochberg(p) <= 0.05)) == 4


@given(st.lists(st.floats(0, 1), max_size=40), st.integers(1, 5))
def test_tests_left_out_count_as_if_their_p_was_one(p: list[float], more: int) -> None:
    padded = benjamini_hochberg([*p, *[1.0] * more])[: len(p)]
    assert np.allclose(benjamini_hochberg(p, len(p) + more), padded)


def test_a_q_is_missing_where_the_p_is() -> None:
    q = benjamini_hochberg([0.01, math.nan, 0.5])
    assert math.isnan(q[1])
    assert q[0] == pytest.approx(0.02)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_simes_lies_between_the_least_p_and_bonferronis(p: list[float]) -> None:
    assert min(p) <= simes(p) + 1e-12
    assert simes(p) <= min(1.0, len(p) * min(p)) + 1e-12


def blocks(random: np.random.Generator, shares: list[float], number: int) -> Blocks:
    samples = np.full(number, 97)
    return Blocks(random.multinomial(97, shares, size=number), samples)


def test_a_function_that_doubled_is_significant_and_the_others_are_not() -> None:
    random = np.random.default_rng(1)
    before = blocks(random, [0.1, 0.2, 0.3, 0.4], 60)
    after = blocks(random, [0.2, 0.2, 0.3, 0.3], 60)
    q = difference_q(before, after)
    assert q[0] < 1e-6
    assert q[3] < 0.01
    assert min(q[1], q[2]) > 0.01


def test_one_burst_is_one_event_however_many_samples_it_has() -> None:
    random = np.random.default_rng(2)
    before = blocks(random, [0.02, 0.98], 60)
    after = blocks(random, [0.02, 0.98], 60)
    # One second of 97 samples in one function: as independent samples that would be 1e-15.
    after.counts[30] = [97, 0]
    q = difference_q(before, after)
    assert q[0] > 0.05


def test_bursts_are_rarely_called_a_change() -> None:
    random = np.random.default_rng(3)
    called = 0
    for _ in range(300):
        sides = []
        for _ in range(2):
            level = np.zeros(120)
            for at in range(1, 120):
                level[at] = 0.8 * level[at - 1] + random.normal(0, 0.6)
            share = 1 / (1 + np.exp(2 - level))
            hits = random.binomial(97, share)
            sides.append(Blocks(np.stack([hits, 97 - hits], axis=1), np.full(120, 97)))
        called += bool(np.nanmin(difference_q(*sides)) <= 0.05)
    # 5 % are allowed; 15 of 300 and three standard deviations.
    assert called <= 26


def test_items_with_few_samples_are_not_tested() -> None:
    random = np.random.default_rng(4)
    before, after = (blocks(random, [0.0, 1.0], 10) for _ in range(2))
    after.counts[0, 0] = 2
    q = difference_q(before, after)
    assert math.isnan(q[0])
    assert q[1] == 1
    short = Blocks(before.counts[:3], before.samples[:3])
    assert np.isnan(difference_q(short, after)).all()


@given(
    st.lists(st.integers(0, 3), min_size=24, max_size=24),
    st.lists(st.integers(0, 3), min_size=24, max_size=24),
)
def test_no_q_is_smaller_than_the_counts_alone_allow(one: list[int], two: list[int]) -> None:
    samples = np.full(24, 1000)
    sides = [Blocks(np.array(group)[:, None], samples) for group in (one, two)]
    q = float(difference_q(*sides)[0])
    low, all_of = min(sum(one), sum(two)), sum(one) + sum(two)
    if all_of < 5:
        assert math.isnan(q)
    else:
        exact = min(1, 2 * (1 - exactly_binomial(low + 1, all_of, Fraction(1, 2))))
        assert q >= float(exact) * (1 - 1e-9)
