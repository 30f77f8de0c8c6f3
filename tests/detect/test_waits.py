"""One wait out of many readings of it, and where the probe watched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.detect.waits import longest_wait, measured_waits, of_no_wait, watch
from sexton.model.row import Row
from sexton.model.rows.cpu import ProbeCost, SoftirqWait
from sexton.model.window import Batch, Window
from tests.support.windows import make_window

AT = 1000.0


def row(longest: int | None, pending: int | None, cpu: int = 5, vector: str = "NET_RX") -> Row:
    return SoftirqWait(cpu, vector, 9, 9, 9, longest, pending, (9,))


def probe(watched: bool = True, why: str = "") -> Row:
    mode = "1 s in 10" if why else "on"
    return ProbeCost(mode, watched, why, "run_time_ns", 1000, 10, 1.0, 5, 0.1, 1.0)


def readings(*seconds: list[Row]) -> Window:
    return make_window(
        [(AT + second, [probe(), *rows]) for second, rows in enumerate(seconds)],
        empty=(SoftirqWait,),
    )


def test_a_wait_seen_under_way_again_and_again_is_one_wait():
    window = readings(
        [row(3, None)],
        [row(20, 700_000)],
        [row(None, 1_700_000)],
        [row(None, 2_700_000)],
        [row(3_100_000, None)],
        [row(4, None)],
    )
    (wait,) = measured_waits(window, 1.0)
    assert (wait.core, wait.vector, wait.is_over) == (5, "NET_RX", True)
    assert wait.seconds == pytest.approx(3.1)
    assert wait.start == pytest.approx(AT + 0.3), "as it was when first seen"
    assert wait.end == pytest.approx(AT + 3.4), "not the reading after it"


def test_a_wait_that_has_not_ended_is_told_as_long_as_it_is():
    (wait,) = measured_waits(readings([row(None, 200_000)], [row(None, 1_200_000)]), 1.0)
    assert (wait.seconds, wait.is_over, wait.start) == (1.2, False, pytest.approx(AT - 0.2))


def test_a_wait_that_the_probe_lost_sight_of_took_at_least_so_long():
    (wait,) = measured_waits(readings([row(None, 1_500_000)], [], [row(3, None)]), 1.0)
    assert (wait.seconds, wait.is_over, wait.end) == (1.5, False, AT)


def test_a_wait_that_follows_another_at_once_is_its_own():
    waits = measured_waits(
        readings([row(None, 2_000_000)], [row(2_400_000, 300_000)], [row(None, 1_300_000)]), 1.0
    )
    assert [wait.seconds for wait in waits] == [2.4, 1.3]


def test_a_wait_ended_before_the_one_that_is_in_progress_began():
    first, second = measured_waits(readings([], [row(2_000_000, 1_200_000)]), 1.0)
    assert (first.seconds, first.end) == (2.0, pytest.approx(second.start))


def test_a_long_wait_between_two_short_ones_under_way_is_not_lost():
    window = readings([row(3, 1)], [row(2_000_000, 4)], [row(3, None)])
    assert [wait.seconds for wait in measured_waits(window, 1.0)] == [2.0]


def test_cores_and_vectors_are_kept_apart_and_the_longest_comes_first():
    window = readings(
        [row(1_500_000, None, 1), row(None, 2_500_000, 2), row(1_200_000, 5, 1, "NET_TX")]
    )
    found = [(wait.core, wait.vector) for wait in measured_waits(window, 1.0)]
    assert found == [(2, "NET_RX"), (1, "NET_RX"), (1, "NET_TX")]


def test_a_window_without_a_probe_has_no_waits_and_nothing_was_watched():
    window = make_window([(AT, [])])
    assert measured_waits(window, 1.0) == []
    assert longest_wait(window) is None
    assert watch(window).spans == ()


def test_where_it_watched_and_why_no_more():
    seconds = [probe(False), probe(), probe(), probe(False, "0.7 % of core 3"), probe()]
    watched = watch(make_window([(AT + at, [second]) for at, second in enumerate(seconds)]))
    assert watched.spans == ((AT, AT + 2), (AT + 3, AT + 4))
    assert (watched.seconds, watched.why_not) == (3, "0.7 % of core 3")
    assert watched.saw(AT + 0.5, AT + 2)
    assert not watched.saw(AT, AT + 1), "what was under way when it began it may not have seen"
    assert not watched.saw(AT + 1, AT + 3.5)


def test_the_longest_wait_is_told_where_none_was_too_long():
    window = readings([row(30, None)], [row(412, None)], [row(7, None)])
    told = of_no_wait(window, watch(window))
    assert (told.what, told.value) == ("the longest wait of NET_RX, core 5", "0.4 ms")
    assert told.unit == "in 2.0 s watched of 2.0 s"
    assert of_no_wait(readings([], []), watch(readings([], []))).value == "none at all"


def test_nothing_is_carried_over_time_that_nobody_saw():
    waiting = [
        Batch(AT + at, AT + at, (row(*item),))
        for at, item in enumerate([(None, 1_500_000), (3_000_000, None)])
    ]
    costs = [Batch(AT + at, AT + at, (probe(),)) for at in range(3)]
    waiting[1] = replace(waiting[1], follows=False)
    costs[1] = replace(costs[1], follows=False)
    window = Window({SoftirqWait: waiting, ProbeCost: costs})
    found = measured_waits(window, 1.0)
    assert [(wait.seconds, wait.is_over) for wait in found] == [(3.0, True), (1.5, False)]
    assert watch(window).spans == ((AT + 1, AT + 2),)


def apart(*cells: tuple[float, int | None, int | None]) -> Window:
    """Readings of an overloaded recorder: so far apart that each is a gap."""
    made = [Batch(AT + at, AT + at, (row(*cell),), follows=not at) for at, *cell in cells]
    return Window({SoftirqWait: made})


def test_a_wait_longer_than_the_gap_is_the_one_that_was_in_progress_before_it():
    """As in starved_nic-6.1-v2, where the core that waited starved the recorder, too."""
    window = apart((0, 6_300_000, 10_400_000), (20.4, None, 30_600_000), (46, 49_500_000, 600_000))
    found = measured_waits(window, 1.0)
    assert [(wait.seconds, wait.is_over) for wait in found] == [(49.5, True), (6.3, True)]
    assert found[0].start == pytest.approx(AT - 10.4), "when first seen, not 49.5 s before the end"
    assert found[1].end == pytest.approx(found[0].start)


@pytest.mark.parametrize(("longest", "pending"), [(24_000_000, None), (3_000_000, 24_000_000)])
def test_a_wait_that_may_have_begun_in_the_gap_is_its_own(longest: int, pending: int | None):
    found = measured_waits(apart((0, None, 10_400_000), (25, longest, pending)), 1.0)
    assert (10.4, False) in [(wait.seconds, wait.is_over) for wait in found]
    assert {wait.seconds for wait in found} >= {24.0, 10.4}
