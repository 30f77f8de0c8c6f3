"""Loops are compared with the middle of their own gaps, one event for each time round."""

from __future__ import annotations

import numpy as np
import pytest

from sexton.explain.aligned import Plan, align
from sexton.explain.loops import loop_of
from sexton.model.aligned import Signal

RESTARTS = [15.0 + 10.1 * n for n in range(60)]


@pytest.mark.parametrize(
    "moments",
    [
        RESTARTS[:4],  # too few
        [46.0 * n for n in range(20)],  # far enough apart to be episodes
        [1.0 * n for n in range(90)],  # no two readings before each
        [n * n / 3 for n in range(9, 30)],  # no clock
        [],
        [5.0],
    ],
)
def test_what_is_no_loop_is_compared_like_anything_else(moments: list[float]):
    assert loop_of(moments) is None


@pytest.mark.parametrize("period", [8.0, 10.1, 30.0, 45.0])
def test_a_loop_is_known_though_it_misses_a_beat(period: float):
    moments = [period * n for n in range(20) if n != 7]
    loop = loop_of(moments)
    assert loop is not None
    assert loop.plan.before_s == pytest.approx(period / 4)
    assert "compared with the middle of the gaps" in loop.note


def signals() -> list[Signal]:
    """A culprit that works in the two seconds before each restart, and others that do not care."""
    mono = np.arange(0.0, 640.0)
    rng = np.random.default_rng(7)
    busy = rng.normal(5, 1, len(mono))
    for each in RESTARTS:
        busy[(mono > each - 2.2) & (mono <= each)] += 40
    made = [Signal("task", "culprit", "CPU", "% of a core", mono, busy)]
    return made + [
        Signal("task", f"other {n}", "CPU", "% of a core", mono, rng.normal(5, 1, len(mono)))
        for n in range(60)
    ]


@pytest.mark.parametrize("number", [6, 12, 60])
def test_windows_of_a_loop_are_not_made_shorter_for_want_of_more_of_them(number: int):
    loop = loop_of(RESTARTS[:number])
    assert loop is not None
    found = align(signals(), RESTARTS[:number], loop.plan)
    assert found.before_s == pytest.approx(10.1 / 4)
    assert found.controls >= number - 1 if number < 24 else found.controls >= 24


def test_every_restart_of_a_loop_is_an_event_and_the_culprit_is_found():
    loop = loop_of(RESTARTS)
    assert loop is not None
    found = align(signals(), RESTARTS, loop.plan)
    assert len(found.events) == Plan().most_events  # of sixty, evenly chosen
    assert [each.about for each in found.ranked[: found.significant]] == ["culprit"]
    merged = align(signals(), RESTARTS)
    assert len(merged.events) < 2, "what it was before: one episode, and nothing to compare it with"
