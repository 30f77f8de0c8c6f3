"""Shared parts of the memory detectors: counters by group, stretches, stacks, places."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.cpu.saturated_core import held_meanwhile
from sexton.detect.families import is_direct_reclaim, is_fault, is_reclaim, is_rstat, is_spinning
from sexton.detect.runs import StepRun, step_runs
from sexton.detect.stacks import caught, cgroups_of
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.task import ProcessCgroup
from sexton.series import paging, pressure
from sexton.series.rates import CLOSE_S
from sexton.sources.procfs.vmstat import parse
from tests.support.fixtures import FIXTURES
from tests.support.memory import FAULT, KSWAPD, RECLAIM, Machine, sample
from tests.support.windows import make_window


@pytest.mark.parametrize(
    "path", sorted((FIXTURES / "procfs" / "vmstat").glob("*.txt")), ids=lambda path: path.stem
)
def test_every_kernels_counters_have_the_groups_that_the_detectors_ask_for(path):
    rows = [row for row in parse(path.read_text()) if isinstance(row, VmCounter)]
    (found,) = paging.readings(make_window([(0.0, rows)]))
    assert {"direct", "kswapd", "stalls", "faults", "major", "free"} <= found.sums.keys()


def test_counters_by_zone_are_one_sum_and_throttling_is_no_scan():
    rows = [VmCounter("pgscan_direct_dma", 1), VmCounter("pgscan_direct_normal", 20)]
    rows += [VmCounter("pgscan_direct_throttle", 400), VmCounter("allocstall_movable", 3)]
    (found,) = paging.readings(make_window([(0.0, rows)]))
    assert found.sums == {"direct": 21, "stalls": 3}


def test_over_a_span_the_nearest_readings_are_taken():
    machine = Machine()
    for _ in range(9):
        machine.second(pgfault=10)
    found = paging.readings(machine.window())
    step = paging.over(found, 2.4, 5.6)
    assert step is not None
    assert (step.start, step.end, step.rate("faults")) == (2.0, 6.0, 10.0)
    assert paging.over(found, 3.0, 3.1) is None
    assert paging.over(paging.readings(make_window([])), 0.0, 9.0) is None
    level = pressure.over(pressure.levels(machine.window(), "memory"), 2.4, 5.6)
    assert level is not None
    assert (level.start, level.end, level.some) == (2.0, 6.0, 0.0)


class Step:
    def __init__(self, start: float, end: float, high: bool) -> None:
        self.start, self.end, self.high = start, end, high


def test_steps_that_do_not_touch_are_two_stretches():
    steps = [Step(0, 1, True), Step(1, 2, True), Step(5, 6, True), Step(6, 7, False)]
    found = step_runs(steps, [step.high for step in steps])
    assert [(run.start, run.end) for run in found] == [(0, 2), (5, 6)]
    assert step_runs([], []) == []


def test_nine_tenths_of_a_limit_in_seconds_are_enough():
    assert StepRun((Step(0, 1.8, True),)).lasts(2)
    assert not StepRun((Step(0, 1.7, True),)).lasts(2)


def test_only_the_start_of_a_long_stretch_is_analysed_closely():
    assert StepRun((Step(10, 400, True),)).close_up == (10, 10 + CLOSE_S)
    assert StepRun((Step(10, 12, True),)).close_up == (10, 12)


@pytest.mark.parametrize(
    ("frames", "reclaims", "by_a_task"),
    [
        (RECLAIM, True, True),
        (KSWAPD, True, False),
        (("shrink_slab", "drop_slab", "drop_caches_sysctl_handler"), True, False),
        (("shrink_lruvec", "shrink_node_memcgs"), True, True),
        (("shrink_node", "try_to_free_mem_cgroup_pages", "try_charge_memcg"), True, True),
        (("shrink_node", "try_to_free_mem_cgroup_pages", "memory_reclaim"), True, False),
        (
            ("shrink_node", "try_to_free_mem_cgroup_pages", "mem_cgroup_force_empty_write"),
            True,
            False,
        ),
        (("shrink_folio_list", "reclaim_pages", "madvise_cold_or_pageout_pte_range"), True, False),
        (("shrink_dentry_list", "d_invalidate"), False, False),
        (FAULT, False, False),
        ((), False, False),
    ],
)
def test_reclaim_is_known_by_its_functions(frames, reclaims, by_a_task):
    assert (is_reclaim(frames), is_direct_reclaim(frames)) == (reclaims, by_a_task)


@pytest.mark.parametrize(
    ("frames", "faults"),
    [
        (FAULT, True),
        (("clear_page_erms", "do_page_fault", "page_fault"), True),  # 5.4
        (("do_anonymous_page", "__handle_mm_fault", "do_mem_abort", "el0_da"), True),  # arm64
        ((*RECLAIM, *FAULT), False),
        (("fault_in_iov_iter_readable", "generic_perform_write"), False),
    ],
)
def test_a_fault_is_known_by_its_functions(frames, faults):
    assert is_fault(frames) is faults


@pytest.mark.parametrize(
    ("frames", "flushes", "spins"),
    [
        (
            ("cgroup_rstat_flush_locked", "cgroup_rstat_flush", "mem_cgroup_flush_stats"),
            True,
            False,
        ),
        (("native_queued_spin_lock_slowpath", "cgroup_rstat_flush_irqsafe"), True, True),
        (("_raw_spin_lock_irq", "__cgroup_rstat_lock"), True, True),
        (("mem_cgroup_css_rstat_flush", "css_rstat_flush"), True, False),
        (("do_flush_stats", "mem_cgroup_flush_stats_ratelimited"), True, False),
        (("flush_memcg_stats_dwork", "process_one_work"), True, False),
        (("css_rstat_updated", "mod_memcg_lruvec_state"), False, False),
        (("native_queued_spin_lock_slowpath", "lru_add_drain"), False, True),
    ],
)
def test_a_flush_is_known_by_its_functions(frames, flushes, spins):
    assert (is_rstat(frames), is_spinning(frames)) == (flushes, spins)


def test_samples_are_those_of_the_span_and_none_is_not_nothing():
    rows = [sample(second, 0, RECLAIM, 1) for second in range(10)]
    window = make_window([(9.0, rows)])
    found = caught(window, is_reclaim, (3.5, 6.0))
    assert found is not None
    assert sorted(row.second_mono for row in found.rows) == [3, 4, 5]
    assert caught(make_window([(0.0, [])]), is_reclaim) is None


def test_a_process_lives_where_it_was_last_seen_before_and_else_where_it_was_seen_next():
    window = make_window([
        (0.0, [ProcessCgroup(1, "/old", False), ProcessCgroup(2, "/gone", False)]),
        (10.0, [ProcessCgroup(1, "/now", False)]),
        (20.0, [ProcessCgroup(1, "/later", False), ProcessCgroup(3, "/born", False)]),
        (30.0, [ProcessCgroup(4, "/too late", False)]),
    ])  # fmt: skip
    assert cgroups_of(window, (1, 2, 3, 4), 15.0) == ("/now", "/born")
    assert cgroups_of(make_window([(0.0, [])]), (1,), 0.0) == ()


def test_the_root_is_no_place_to_name():
    assert cgroups_of(make_window([(0.0, [ProcessCgroup(1, "/", False)])]), (1,), 1.0) == ()


def test_a_core_is_held_meanwhile_if_enough_of_a_hold_lies_near_the_span_and_all_of_it_counts():
    machine = Machine(cores=2)
    for share in (99, 99, 99, 10, 99, 99, 10, 10, 10, 99, 99, 99, 99, 99):
        machine.second(kernel=(float(share), 1.0))
    window = machine.window()

    def seconds(start: float, end: float) -> dict[int, float]:
        held = held_meanwhile(window, {0, 1}, (start, end))
        return {core: hold.seconds for core, hold in held.items()}

    assert seconds(1.0, 7.0) == {0: pytest.approx(3.0)}
    assert seconds(4.0, 9.0) == {0: pytest.approx(2.0)}
    assert seconds(4.0, 10.0) == {0: pytest.approx(5.0)}  # all of it, not only what is inside
    assert seconds(7.0, 7.5) == {}
    assert held_meanwhile(machine.window(without=[CoreTimes]), {0}, (1.0, 7.0)) == {}
