"""Deaths joined by id, never by path."""

from __future__ import annotations

import pytest

from sexton.detect.deaths import already_dying, deaths
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, CgroupEventGap
from sexton.model.window import Batch, Window
from tests.support.windows import make_window


def event(kind: str, cgroup_id: int, at_s: float, path: str = "/a/b") -> CgroupEvent:
    return CgroupEvent(kind, cgroup_id, path, int(at_s * 1e9))


def traced(*events: CgroupEvent, until: float = 20.0) -> Window:
    return make_window([(0.0, []), (until, events)], empty=[CgroupEvent])


def test_no_tracefs_is_not_no_deaths():
    census = CgroupCensus("v1", 1, None, "node", 1, 1, 0, "m", None)
    assert deaths(make_window([(0.0, [census])])) is None
    assert deaths(make_window([(0.0, [])], empty=[CgroupEvent])) is not None


def test_a_removal_without_release_is_a_zombie_only_after_five_seconds():
    found = deaths(traced(event("rmdir", 1, 15.0), event("rmdir", 2, 15.1)))
    assert found is not None
    assert [death.cgroup_id for death in found.unreleased] == [1]
    assert [death.cgroup_id for death in found.pending] == [2]


def test_a_released_one_is_over_even_if_its_events_came_in_another_order():
    found = deaths(traced(event("release", 1, 2.0), event("rmdir", 1, 1.0)))
    assert found is not None
    assert len(found.released) == 1
    assert not found.unreleased


def test_paths_repeat_and_ids_do_not():
    lives = [
        event(kind, n, n + 0.1 * k) for n in (1, 2, 3) for k, kind in enumerate(("mkdir", "rmdir"))
    ]
    found = deaths(traced(*lives, event("release", 2, 4.0)))
    assert found is not None
    assert [death.cgroup_id for death in found.unreleased] == [1, 3]
    assert found.births == 3


def test_an_id_given_again_was_released_though_the_event_got_lost():
    found = deaths(traced(event("rmdir", 1, 1.0), event("mkdir", 1, 2.0), event("rmdir", 1, 3.0)))
    assert found is not None
    assert [death.died_s for death in found.unreleased] == [3.0]


def test_an_event_that_two_readings_tell_happened_once():
    once = event("rmdir", 1, 1.0)
    found = deaths(make_window([(5.0, [once]), (20.0, [once])]))
    assert found is not None
    assert len(found.all) == 1


def test_a_release_of_one_that_died_before_the_trace_is_nobodys():
    found = deaths(traced(event("release", 9, 1.0)))
    assert found is not None
    assert found.all == ()


def test_lost_events_are_counted():
    window = make_window(
        [(0.0, [event("rmdir", 1, 0.0), CgroupEventGap(3)]), (9.0, [CgroupEventGap(4)])]
    )
    found = deaths(window)
    assert found is not None
    assert found.lost == 7


@pytest.mark.parametrize(
    ("lost", "follows", "left", "doubtful"),
    [(3, True, [2, 3, 9], 1), (0, False, [2, 3, 9], 0), (0, True, [0, 1, 2, 3, 9], 0)],
)
def test_if_releases_may_be_missed_no_more_are_left_than_the_census_counts(
    lost: int, follows: bool, left: list[int], doubtful: int
):
    census = CgroupCensus("v2", 2, "/x", "node", 11, 9, 2, "m", None)
    early = tuple(event("rmdir", n, 1.0 + n) for n in range(4))
    after = (event("rmdir", 9, 12.0),)  # the census was before it
    rows = {
        CgroupEvent: [Batch(5.0, 5.0, early), Batch(20.0, 20.0, after, follows=follows)],
        CgroupCensus: [Batch(10.0, 10.0, (census,))],
        CgroupEventGap: [Batch(5.0, 5.0, (CgroupEventGap(lost),) if lost else ())],
    }
    found = deaths(Window(rows))
    assert found is not None
    assert [death.cgroup_id for death in found.unreleased] == left
    assert len(found.all) == 5
    assert [death.released_s for death in found.released] == [10.0] * (5 - len(left))
    assert (found.sure(None), found.doubtful(None)) == (len(left) == 5, doubtful)


class Later(Window):
    """A span of a recording: what was read before it is known too."""

    before: tuple[Batch[CgroupEvent], ...] = ()

    def earlier(self, kind):
        return self.before if kind is CgroupEvent else ()


def later(
    before: list[Batch[CgroupEvent]], dying: int, *events: CgroupEvent, lost: int = 0
) -> Window:
    census = CgroupCensus("v2", 2, "/x", "node", dying + 9, 9, dying, "m", None)
    rows = {
        CgroupEvent: [Batch(100.0, 100.0, ()), Batch(120.0, 120.0, events)],
        CgroupCensus: [Batch(120.0, 120.0, (census,))],
        CgroupEventGap: [Batch(120.0, 120.0, (CgroupEventGap(lost),) if lost else ())],
    }
    window = Later(rows)
    window.before = tuple(before)
    return window


def test_the_dead_of_before_stand_until_they_are_released():
    before = [Batch(30.0, 30.0, tuple(event("rmdir", n, 20 + n) for n in range(4)))]
    found = already_dying(later(before, 50, event("release", 2, 110.0), event("rmdir", 9, 111.0)))
    assert [death.cgroup_id for death in found.deaths] == [0, 1, 3]
    assert found.sure
    assert already_dying(make_window([(0.0, [])], empty=[CgroupEvent])) == ((), True)


def test_there_are_no_more_of_them_than_are_dying_and_after_a_gap_it_is_not_sure():
    before = [Batch(30.0, 30.0, tuple(event("rmdir", n, 20 + n) for n in range(4)))]
    found = already_dying(later(before, 2))
    assert [death.cgroup_id for death in found.deaths] == [2, 3]
    assert not found.sure
    gap = [*before, Batch(90.0, 90.0, (event("rmdir", 8, 80.0),), follows=False)]
    assert not already_dying(later(gap, 50)).sure
    assert not already_dying(later(before, 50, lost=3)).sure
    assert already_dying(later(before, 0)).deaths == ()
