"""Captures with only their usual load: how often is a spike reported?

Each family is simulated 200 times (two or four cores, two to five minutes, 97 samples a second).
At a false-discovery rate of 1 % at most 5 % of the captures may have any spike at all; most
families have none. Seeds are fixed: a change of the method changes the numbers, chance does not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sexton.model.profile import Heat
from sexton.profile.spikes import SpikeOptions, find
from sexton.profile.spikes.grid import grid_of
from sexton.profile.spikes.runs import find_outliers

from .simulated import FIRST, HERTZ, Wander, bursty, periodic, simulate, steady

RUNS = 200
Load = Callable[[np.random.Generator], np.ndarray]


def ramp(cores: int, seconds: int) -> np.ndarray:
    return np.tile(0.05 + 0.6 * np.linspace(0, 1, seconds) ** 2, (cores, 1))


def heat_of_load(random: np.random.Generator, busy: np.ndarray) -> Heat:
    """Only heat, drawn at once: what the search looks at."""
    cores, seconds = busy.shape
    hits = random.binomial(HERTZ, busy).T.ravel()
    return Heat(
        np.repeat(np.arange(seconds) + FIRST, cores),
        np.tile(np.arange(cores), seconds).astype(np.int32),
        np.full(cores * seconds, HERTZ, np.int32),
        hits.astype(np.int32),
        random.binomial(hits, 0.2).astype(np.int32),
        np.zeros((cores * seconds, 1), np.uint16),
    )


@pytest.mark.whole
@pytest.mark.parametrize(
    ("load", "allowed"),
    [
        (lambda random: steady(2, 120, 0.02), 0),
        (lambda random: steady(4, 120, 0.3), 2),
        (lambda random: steady(4, 120, 0.97), 0),
        (lambda random: bursty(random, 4, 120, Wander(0.5, -1, 1)), 10),
        (lambda random: bursty(random, 4, 120, Wander(0.8, -1, 1)), 10),
        (lambda random: bursty(random, 4, 120, Wander(0.95, -2, 1)), 10),
        (lambda random: bursty(random, 4, 120, Wander(0.8, -3, 0.5)), 10),
        (lambda random: bursty(random, 4, 120, Wander(0.5, -3, 1)), 10),
        (lambda random: bursty(random, 4, 120, Wander(0.5, -4, 1.2)), 10),
        (lambda random: bursty(random, 2, 20, Wander(0.5, -3, 1)), 10),
        (lambda random: ramp(4, 120), 2),
        (lambda random: ramp(2, 600), 2),
    ],
    ids=[
        *("idle", "third", "full", "ar5", "ar8", "ar95", "calm", "skewed", "wild", "short"),
        *("ramp", "slow-ramp"),
    ],
)
def test_a_usual_load_has_no_spikes(load: Load, allowed: int) -> None:
    false = 0
    for seed in range(RUNS):
        random = np.random.default_rng(seed)
        grid = grid_of([heat_of_load(random, load(random))], None, HERTZ)
        false += bool(find_outliers(grid, 0.01).rare)
    assert false <= allowed


@pytest.mark.whole
@pytest.mark.parametrize(
    ("seconds", "every", "length"), [(300, 30.0, 3.0), (300, 20.0, 1.5), (120, 10.0, 0.5)]
)
def test_a_regular_load_is_reported_as_recurring_and_not_as_a_spike(
    seconds: int, every: float, length: float
) -> None:
    false, told = 0, 0
    runs = RUNS // 5
    for seed in range(runs):
        random = np.random.default_rng(seed)
        capture = simulate(random, periodic(random, 2, seconds, every, length))
        found = find(capture, SpikeOptions())
        false += bool(found.spikes)
        told += any(
            burst.regular and abs(burst.interval_ns / 1e9 - every) <= 0.5
            for burst in found.recurring
        )
    assert false <= 1
    assert told >= 0.95 * runs


def test_a_day_rising_and_falling_on_many_cores_has_no_spikes_and_a_long_burn_has_one() -> None:
    random = np.random.default_rng(1)
    seconds = 4 * 3600
    base = 0.3 + 0.25 * np.sin(2 * np.pi * np.arange(seconds) / (2 * seconds))
    busy = 1 / (
        1
        + np.exp(
            -(
                np.log(base / (1 - base))
                + np.log(bursty(random, 8, seconds, Wander(0.9, 0, 0.3)) * 2)
            )
        )
    )
    quiet = grid_of([heat_of_load(random, busy)], None, HERTZ)
    assert find_outliers(quiet, 0.01).rare == []
    busy[3, 7000:7500] = 0.98
    burnt = find_outliers(grid_of([heat_of_load(random, busy)], None, HERTZ), 0.01)
    assert [run.core for run in burnt.rare] == [3]
    assert (burnt.rare[0].start, burnt.rare[0].end) == pytest.approx((7000, 7500), abs=2)
