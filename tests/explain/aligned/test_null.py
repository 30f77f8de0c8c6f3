"""Where nothing is wrong, nothing is found: event sets drawn at random, counted."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from lab.synthetic import write
from sexton.explain.aligned import Plan
from sexton.model.aligned import Signal
from sexton.replay.signals import signals_of
from sexton.replay.span import everything
from sexton.store.recording import Recording
from tests.explain.aligned.made import (
    PERIODS,
    START_S,
    align,
    event_sets,
    healthy,
    job,
    seconds,
    signal,
)
from tests.support.synthetic import small

#: Enough draws for the tested level, and fast.
PLAN = Plan(permutations=499)
#: The constants were chosen on other seeds than these.
FRESH = 40_000


def discoveries(signals: list[Signal], sets: list[list[float]]) -> int:
    found = [align(signals, events, PLAN) for events in sets]
    assert all(aligned.tested for aligned in found)
    return sum(aligned.significant > 0 for aligned in found)


@pytest.mark.whole
def test_of_200_random_event_sets_at_most_one_in_twenty_gives_a_discovery():
    """Loads that wander, jobs by the clock, bursts, batches and drifts."""
    found = 0
    for seed in range(4):
        rng = np.random.default_rng([FRESH, seed])
        sets = list(islice(event_sets(rng, 2.0, (5, 8, 12, 20)), 50))
        found += discoveries(healthy(rng, 2.0), sets)
    assert found <= 10


@pytest.mark.whole
def test_of_200_random_event_sets_on_healthy_recordings_at_most_one_in_twenty(tmp_path: Path):
    found = 0
    for seed in (1, 2):
        node = small(hours=0.5, seed=FRESH + seed, stack_hertz=19, stack_nodes=2000)
        recording = Recording(write(tmp_path / str(seed), node).directory)
        span = everything(recording)
        signals = list(signals_of(recording, span))
        kinds = {item.kind for item in signals}
        assert {"core", "task", "memory", "pressure", "nic", "tcp", "function"} <= kinds
        rng = np.random.default_rng([FRESH, seed])
        start, end = span.start[0] + 60, span.end[0]
        sizes = (5, 8, 12) * 34
        sets = [sorted(rng.uniform(start, end, size).tolist()) for size in sizes[:100]]
        found += discoveries(signals, sets)
    assert found <= 10


@pytest.mark.parametrize("every_s", [60.0, 300.0, 600.0])
def test_jobs_of_each_minute_are_no_cause_of_events_at_one_place_in_the_minute(every_s: float):
    """A check that looks once a minute marks deaths at :05, and cron runs a job at :00."""
    rng = np.random.default_rng([FRESH, int(every_s)])
    mono = seconds(3.0)
    jobs = [signal(f"job {index}", mono, job(rng, mono, 60.0)) for index in range(20)]
    noise = [signal(f"core {index}", mono, rng.gamma(2, 1, len(mono))) for index in range(20)]
    found = 0
    for _ in range(25):
        turns = rng.choice(int(10_000 / every_s), min(10, int(10_000 / every_s)), replace=False)
        first = START_S + 100 + rng.uniform(0, 60)
        found += align([*jobs, *noise], (first + every_s * turns).tolist(), PLAN).significant > 0
    assert found <= 1


def test_jobs_that_fit_into_no_minute_are_no_cause_of_random_events():
    rng = np.random.default_rng([FRESH, 3])
    mono = seconds(3.0)
    periods = (*PERIODS, 13.7, 61.0, 100.0, 240.0)
    jobs = [signal(f"job {p} {index}", mono, job(rng, mono, p)) for p in periods
            for index in range(8)]  # fmt: skip
    sets = list(islice(event_sets(rng, 3.0, (5, 10, 20)), 40))
    assert discoveries(jobs, sets) <= 2
