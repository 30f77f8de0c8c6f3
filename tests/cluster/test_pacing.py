"""Pauses grow, are spread over their whole length, and are never shorter than the server asks."""

from __future__ import annotations

import random

from sexton.cluster.pacing import FIRST_S, MOST_ASKED_S, MOST_S, BackOff


def test_pauses_double_up_to_a_limit_and_begin_anew():
    for failures in range(40):
        waits = []
        for seed in range(50):
            back_off = BackOff(random.Random(seed))
            back_off.failures = failures
            waits.append(back_off.failed())
        most = min(MOST_S, FIRST_S * 2**failures)
        assert max(waits) <= most
        assert max(waits) - min(waits) >= most / 2, "full jitter"
    back_off.succeeded()
    assert back_off.failed() <= FIRST_S


def test_the_servers_wish_is_the_least_and_is_bounded():
    assert all(30 <= BackOff(random.Random(n)).failed(30.0) <= 31 for n in range(50))
    assert BackOff().failed(1e12) <= MOST_ASKED_S + FIRST_S
    assert BackOff().failed(-5.0) > 0


def test_what_needs_somebody_to_change_something_is_slow_at_once():
    assert all(MOST_S / 2 <= BackOff().failed(slow=True) <= MOST_S for _ in range(50))
