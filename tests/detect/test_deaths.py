"""Deaths joined by id, never by path."""

from __future__ import annotations

from sexton.detect.deaths import deaths
from sexton.model.cgroup import CgroupCensus, CgroupEvent, CgroupEventGap
from sexton.model.window import Window
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
