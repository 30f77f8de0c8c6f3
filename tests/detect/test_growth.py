"""Growth, draining, when a rate may be extrapolated, and the two limits."""

from __future__ import annotations

import pytest

from sexton.detect.deaths import Death, Deaths
from sexton.detect.growth import dying_below, growth, is_bound, limits, rate
from sexton.model.rows.cgroup import CgroupCensus, CgroupStat, WalkCost
from sexton.model.window import Window
from tests.support.windows import make_window


def census(dying: int | None, method: str = "m", live: int = 100) -> CgroupCensus:
    total = None if dying is None else dying + live
    return CgroupCensus("v1", 1, "/m", "node", total, live, dying, method, None)


def counted(*numbers: int | None, step_s: float = 5.0) -> Window:
    return make_window([(step_s * n, [census(number)]) for n, number in enumerate(numbers)])


def walk(**changes: object) -> WalkCost:
    values = {"file": "memory.numa_stat", "path": "/a", "memcgs": 41, "measured_s": 0.003}
    values |= {"estimate_s": 4.8, "root_s": None, "note": ""}
    return WalkCost(**(values | changes))  # type: ignore[arg-type]


def stat(path: str, dying: int, memory: int | None = None) -> CgroupStat:
    return CgroupStat(path, 1, dying, memory)


def test_one_count_has_no_growth():
    assert growth(counted(5)) is None
    assert growth(counted(5, None)) is None


def test_counts_that_could_not_be_made_are_stepped_over():
    found = growth(counted(5, None, 9))
    assert found is not None
    assert (found.by, found.seconds) == (4, 10.0)


def test_counts_by_two_rules_are_not_compared():
    window = make_window([(0.0, [census(5)]), (5.0, [census(900, method="other")])])
    assert growth(window) is None


@pytest.mark.parametrize(
    ("numbers", "drains"),
    [
        ((40_000, 31_000, 21_000), True),
        ((40_000, 39_990, 39_980), False),  # freed a few
        ((68_000, 40_000, 40_000), False),  # freed at once, and the rest stays
        ((40_000, 20_000, 45_000), False),  # and they come back
        ((100, 40_000, 30_000), False),  # grew, whatever the last step did
        ((60_000, 68_000, 68_400, 65_600), False),
        ((100, 100, 100), False),
        ((0, 0), False),
    ],
)
def test_a_backlog_drains_only_while_it_still_falls(numbers: tuple[int, ...], drains: bool):
    found = growth(counted(*numbers))
    assert found is not None
    assert found.draining is drains


def test_two_counts_a_moment_apart_tell_no_draining():
    found = growth(counted(1000, 900, step_s=0.1))
    assert found is not None
    assert not found.draining


def test_a_last_count_right_after_another_is_measured_against_an_earlier_one():
    moments = ((0.0, 1000), (5.0, 1000), (5.2, 950))
    found = growth(make_window([(at, [census(number)]) for at, number in moments]))
    assert found is not None
    assert found.last_step_percent_s == pytest.approx(-5 / 5.2)


def deaths_of(number: int) -> Deaths:
    return Deaths(tuple(Death(n, "/a", 0.0) for n in range(number)), 0, 0.0, 10.0, 0)


def test_fewer_than_five_deaths_are_no_ground_for_a_forecast():
    assert rate(growth(counted(100, 104)), None) is None
    assert rate(None, deaths_of(4)) is None
    assert rate(growth(counted(100, 105)), None) == 1.0
    assert rate(None, deaths_of(5)) == 0.5


def test_what_was_freed_meanwhile_counts_against_what_died():
    assert rate(growth(counted(100, 100)), deaths_of(50)) is None


def test_more_cgroups_than_ids_disprove_the_id_limit():
    (ids,) = limits(census(68_440, live=240), (), 0.1)
    assert ids.value == "does not apply: 68,680 exist at the same time"


def test_without_a_pace_a_limit_has_no_date():
    assert not any(
        "in " in limit.value for limit in limits(census(5_000), [walk(estimate_s=0.4)], None)
    )


def test_with_a_pace_both_limits_have_one():
    ids, cost = limits(census(4_900), [walk(estimate_s=0.5)], 1.0)
    assert ids.value == "5,000 of 65,535, in 16 h 48 min at this rate"
    reached = "5 s at 50,000 cgroups, in 12 h 30 min at this rate"
    assert cost.value == f"500 ms (estimated) now, {reached}"


def test_a_flat_cost_has_no_limit_in_sight():
    (_, cost) = limits(census(70_000), [walk(root_s=0.00005)], 1.0)
    assert cost.value.startswith("not expected: 50 µs (measured)")


def test_a_limit_that_is_reached_is_reported():
    (_, cost) = limits(census(80_000), [walk(estimate_s=6.0)], None)
    assert cost.value.startswith("reached: 6.0 s")


def test_an_estimate_from_single_cgroups_is_a_bound_and_no_number():
    (_, cost) = limits(census(70_000), [walk(memcgs=1, estimate_s=2.1)], 1.0)
    assert cost.value.startswith("unknown: one read takes at most 2.1 s")
    assert cost.number is None


def test_jitter_over_few_cgroups_is_a_bound():
    assert is_bound(walk(memcgs=3, estimate_s=0.9), 70_000)
    assert not is_bound(walk(memcgs=41, estimate_s=4.8), 68_680)
    assert not is_bound(walk(memcgs=1, root_s=0.1), 68_680)


def test_an_unknown_total_has_no_limits():
    assert limits(census(None), [walk()], 1.0) == ()


def test_cgroup_stat_is_charged_to_the_deepest_live_directory():
    rows = [stat("/", 100), stat("/a", 90), stat("/a/b", 60), stat("/c", 0)]
    assert dying_below(make_window([(0.0, rows)])) == {"/": 10, "/a": 30, "/a/b": 60, "/c": 0}


def test_memory_states_are_counted_if_the_kernel_separates_them():
    rows = [stat("/", 100, memory=7), stat("/a", 90, memory=7)]
    assert dying_below(make_window([(0.0, rows)])) == {"/": 0, "/a": 7}
    mixed = [stat("/", 100, memory=7), stat("/a", 90)]
    assert dying_below(make_window([(0.0, mixed)])) == {"/": 10, "/a": 90}


def test_children_that_gained_some_between_two_reads_make_no_negative_count():
    assert dying_below(make_window([(0.0, [stat("/", 10), stat("/a", 12)])])) == {"/": 0, "/a": 12}
