"""Deaths joined by id, never by path."""

from __future__ import annotations

from collections import Counter

import pytest

from sexton.detect.deaths import Death, already_dying, deaths
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
    assert len(found.made) == 3


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


def counted(at_s: float, dying: int) -> Batch[CgroupCensus]:
    census = CgroupCensus("v1", 1, "/x", "node", dying + 9, 9, dying, "m", None)
    return Batch(at_s, at_s, (census,))


def burst(*, of: str = "/demo/job", freed: bool = True, lost: int = 1_120) -> Window:
    """One of `/slow` dies every five seconds and stays. At 30 s 504 die at once, while events are
    lost; the counts show whether they were freed."""
    slow = [event("rmdir", 10_000 + at, at, f"/slow/run-{at}") for at in range(2, 60, 5)]
    many = [event("rmdir", n, 30.0 + n / 1000, f"{of}-{n}") for n in range(504)]
    every = sorted([*slow, *many], key=lambda one: one.mono_ns)
    read = [float(at) for at in range(61)]
    batches = [
        Batch(at, at, tuple(one for one in every if at - 1 < one.mono_ns / 1e9 <= at))
        for at in read
    ]
    died = [one.mono_ns / 1e9 for one in (slow if freed else every)]
    rows = {
        CgroupEvent: batches,
        CgroupCensus: [counted(at, 7 + sum(when <= at for when in died)) for at in read],
        CgroupEventGap: [
            Batch(at, at, (CgroupEventGap(lost),) if at == 31 and lost else ()) for at in read
        ],
    }
    return Window(rows)


def by_owner(some: tuple[Death, ...]) -> Counter[str]:
    return Counter(death.path.split("/")[1] for death in some)


def test_a_burst_that_was_freed_while_events_were_lost_owns_none_of_the_zombies():
    found = deaths(burst())
    assert found is not None
    left = by_owner(found.unreleased)
    # At 27 s one died that may have been freed in the burst: nobody knows whose is left.
    assert left == {"slow": 10}
    assert by_owner(found.released)["demo"] >= 503
    assert by_owner(found.unsure) == {"demo": 1, "slow": 1}
    assert len(found.pending) == 1
    assert (found.missed, found.doubtful(None)) == (504, 5)


def test_a_burst_that_was_not_freed_owns_its_zombies_however_many_events_were_lost():
    found = deaths(burst(freed=False))
    assert found is not None
    assert by_owner(found.unreleased) == {"demo": 504, "slow": 11}
    assert (found.missed, found.unsure) == (0, ())


def test_of_one_owner_it_is_known_how_many_are_left():
    found = deaths(burst(of="/slow/run"))
    assert found is not None
    assert by_owner(found.unreleased) == {"slow": 11}
    assert (len(found.released), found.unsure) == (504, ())


def test_without_lost_events_the_trace_is_believed():
    found = deaths(burst(lost=0))
    assert found is not None
    assert by_owner(found.unreleased) == {"demo": 504, "slow": 11}


def test_old_zombies_that_were_freed_while_events_were_lost_leave_no_known_owner():
    """Of 40 old ones of two owners and 10 older than the trace, reclaim frees 25."""
    old = [event("rmdir", n, 1.0 + n / 100, f"/{'ab'[n % 2]}/x-{n}") for n in range(40)]
    gap = CgroupEventGap(60)
    counts = ((0, 10), (5, 50), (15, 50), (30, 25), (40, 25))
    rows = {
        CgroupEvent: [Batch(5, 5, tuple(old)), Batch(19, 19, ()), Batch(20, 20, ()),
                      Batch(40, 40, ())],
        CgroupCensus: [counted(at, dying) for at, dying in counts],
        CgroupEventGap: [Batch(20, 20, (gap,))],
    }  # fmt: skip
    found = deaths(Window(rows))
    assert found is not None
    assert (len(found.unreleased), len(found.released), len(found.unsure)) == (0, 0, 40)
    counts = ((0, 10), (5, 50), (15, 50), (30, 45), (40, 45))
    found = deaths(Window({**rows, CgroupCensus: [counted(at, dying) for at, dying in counts]}))
    assert found is not None
    assert by_owner(found.unreleased) == {"a": 15, "b": 15}


def test_one_whose_release_is_seen_later_was_not_missed():
    looked = burst()
    batches = list(looked.batches(CgroupEvent) or ())
    last = batches.pop()
    late = event("release", 10_027, 59.5, "/slow/run-27")
    batches.append(Batch(last.mono_s, last.wall_s, (*last.rows, late)))
    found = deaths(Window({**looked._batches, CgroupEvent: batches}))
    assert found is not None
    assert by_owner(found.released)["slow"] == 1
    assert by_owner(found.unsure) == {"demo": 1}


def test_lost_events_of_before_the_window_are_judged_by_the_counts_of_that_time():
    whole = burst()

    class Cut(Window):
        def earlier(self, kind):
            return tuple(b for b in whole.batches(kind) or () if b.mono_s < 45)

    kinds = (CgroupEvent, CgroupCensus, CgroupEventGap)
    cut = Cut({k: [b for b in whole.batches(k) or () if b.mono_s >= 45] for k in kinds})
    assert by_owner(already_dying(cut).deaths) == {"slow": 8}
    assert not already_dying(cut).sure
