"""What held a core: each look-alike of the walk, by stacks, by times, and not at all."""

from __future__ import annotations

import pytest

from sexton.explain.held import families
from sexton.explain.links.cpu import (
    burnt_core_locks_up,
    faults_burn_core,
    flood_burns_core,
    realtime_hog_locks_up_core,
    reclaim_burns_core,
    rstat_burns_cores,
    zombie_walk_burns_core,
)
from sexton.explain.links.memory import pressure_forces_reclaim, zombies_slow_reclaim
from sexton.explain.links.network import realtime_hog_starves_napi
from sexton.explain.links.storage import realtime_hog_hangs_tasks
from sexton.model.chain import Strength
from sexton.model.finding import Severity
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.cpu import SoftnetCpu
from sexton.model.rows.trace import StackCount
from sexton.model.window import Batch, Window
from tests.explain.making import EMPTY, by_kind, evidence, finding, stacks, window

RECLAIM = ("shrink_lruvec", "shrink_node", "do_try_to_free_pages", "try_to_free_pages")
LIMIT = ("shrink_lruvec", "shrink_node", "do_try_to_free_pages", "try_to_free_mem_cgroup_pages")
WALKING = ("mem_cgroup_iter", "shrink_node", "do_try_to_free_pages")
FAULT = ("clear_page_erms", "__handle_mm_fault", "handle_mm_fault", "asm_exc_page_fault")
RSTAT = ("_raw_spin_lock", "cgroup_rstat_flush_locked", "mem_cgroup_flush_stats")
PACKETS = ("tcp_v4_rcv", "net_rx_action", "handle_softirqs", "run_ksoftirqd")
OTHER = ("read_zero", "vfs_read")
KSWAPD = ("shrink_node", "balance_pgdat", "kswapd")
HELD = finding("saturated_core", core=("5",), task=("job[7]",))
FAMILIES = {
    reclaim_burns_core: ("direct_reclaim", RECLAIM),
    faults_burn_core: ("page_fault_storm", FAULT),
    rstat_burns_cores: ("rstat_contention", RSTAT),
    flood_burns_core: ("softirq_flood", PACKETS),
}
each_family = pytest.mark.parametrize(
    ("link", "cause", "frames"),
    [(link, cause, frames) for link, (cause, frames) in FAMILIES.items()],
    ids=lambda each: each if isinstance(each, str) else "",
)


def joined(link, cause, held=HELD, seen=EMPTY):
    found = link.join(cause, held, seen)
    return found.strength if found else None


@each_family
@pytest.mark.parametrize(
    ("share", "strength"),
    [
        (90, Strength.PROVEN),
        (50, Strength.PROVEN),
        (30, Strength.LIKELY),
        (10, Strength.POSSIBLE),
        (4, None),
        (0, None),
    ],
)
def test_stacks_of_the_held_core_decide(link, cause, frames, share, strength):
    seen = stacks((frames, share), (OTHER, 100 - share))
    cause = finding(cause, core=("5", "6"), task=("job[7]",))
    assert joined(link, cause, seen=seen) is strength


@each_family
def test_another_time_is_no_cause_but_stacks_are_of_the_time_itself(link, cause, frames):
    for span in ((10.0, 20.0), (300.0, 310.0), None):
        early = finding(cause, span, core=("5", "6"), task=("job[7]",))
        assert joined(link, early) is None
        assert joined(link, early, seen=stacks((frames, 100))) is Strength.PROVEN
        assert joined(link, early, seen=stacks((OTHER, 100))) is None


@each_family
def test_stacks_of_another_core_or_second_say_nothing_of_this_one(link, cause, frames):
    cause = finding(cause, core=("5",), task=("job[7]",))
    elsewhere = joined(link, cause, seen=stacks((frames, 100), core=6))
    assert elsewhere is not Strength.PROVEN
    assert joined(link, cause, seen=stacks((frames, 100), at=200)) is elsewhere


@each_family
def test_too_few_samples_and_unnamed_ones_prove_nothing(link, cause, frames):
    cause = finding(cause, core=("5",), task=("job[7]",))
    for seen in (stacks((frames, 19)), stacks((("[unknown]",), 60), (frames, 50))):
        assert joined(link, cause, seen=seen) is not Strength.PROVEN


@pytest.mark.parametrize(
    ("link", "cause"),
    [(reclaim_burns_core, "direct_reclaim"), (faults_burn_core, "page_fault_storm")],
)
def test_without_stacks_a_shared_task_makes_it_possible_and_nothing_else_does(link, cause):
    assert joined(link, finding(cause, task=("job[7]",))) is Strength.POSSIBLE
    assert joined(link, finding(cause, task=("other[8]",))) is None
    assert joined(link, finding(cause)) is None
    softirq = finding("saturated_core", core=("5",), task=("job[7]",), evidence=[by_kind(3.0)])
    assert joined(link, finding(cause, task=("job[7]",)), softirq) is None


def test_contention_needs_stacks_and_the_held_core_among_those_that_flush():
    seen = stacks((RSTAT, 100))
    assert joined(rstat_burns_cores, finding("rstat_contention", core=("5", "6"))) is None
    other = finding("rstat_contention", core=("6", "7"))
    assert joined(rstat_burns_cores, other, seen=seen) is None
    alone = rstat_burns_cores.join(finding("rstat_contention", core=("5",)), HELD, seen)
    assert alone.against == ("core 5 flushes alone: no other core contends",)


@pytest.mark.parametrize(
    ("system", "cores", "strength"),
    [
        (3.0, ("5",), Strength.PROVEN),
        (97.0, ("5",), None),
        (None, ("5",), Strength.POSSIBLE),
        (3.0, ("6",), None),
    ],
)
def test_without_stacks_softirq_time_on_the_same_core_shows_a_flood(system, cores, strength):
    evidence = [] if system is None else [by_kind(system)]
    held = finding("saturated_core", core=("5",), evidence=evidence)
    assert joined(flood_burns_core, finding("softirq_flood", core=cores), held) is strength


@pytest.mark.parametrize(("packets", "strength"), [(90_000, Strength.PROVEN), (900, None)])
def test_a_flood_that_comes_again_is_known_by_the_packets_of_the_held_seconds(packets, strength):
    seen = window(
        {
            100: [SoftnetCpu(5, 0, 0, 0, None, None, None)],
            105: [SoftnetCpu(5, packets, 9, 9, None, None, None)],
        }
    )
    held = finding("saturated_core", core=("5",), evidence=[by_kind(3.0)])
    later = finding("softirq_flood", (500.0, 520.0), core=("5",))
    assert joined(flood_burns_core, later, held, seen) is strength


def test_the_softirq_daemon_on_the_held_core_is_a_flood_too():
    held = finding("saturated_core", core=("5",), task=("ksoftirqd/5[40]",))
    assert joined(flood_burns_core, finding("softirq_flood", core=("5",)), held) is Strength.PROVEN


@pytest.mark.parametrize(("squeezed", "against"), [(0, 1), (9, 0)])
def test_a_core_that_lost_nothing_speaks_against_the_flood(squeezed, against):
    seen = window(
        {
            100: [SoftnetCpu(5, 0, 0, 0, None, None, None)],
            105: [SoftnetCpu(5, 9_000, 0, squeezed, None, None, None)],
        }
    )
    held = finding("saturated_core", core=("5",), evidence=[by_kind(3.0)])
    link = flood_burns_core.join(finding("softirq_flood", core=("5",)), held, seen)
    assert len(link.against) == against


def walking(dying: int) -> Window:
    census = CgroupCensus("v1", 1, None, "node", 1_000, 1_000 - dying, dying, "count", None)
    rows = stacks((WALKING, 40), (RECLAIM, 60)).batches(StackCount)
    return Window({StackCount: rows, CgroupCensus: [Batch(102.0, 102.0, (census,))]})


def test_reclaim_that_walks_the_dead_is_the_deads_doing():
    cause = finding("direct_reclaim", task=("job[7]",))
    link = reclaim_burns_core.join(cause, HELD, walking(dying=900))
    assert link.strength is Strength.POSSIBLE
    assert "they make this reclaim expensive" in link.against[-1]
    dead = zombie_walk_burns_core.join(finding("zombie_memcgs"), HELD, walking(dying=900))
    assert dead.strength is Strength.PROVEN


def test_reclaim_that_walks_who_knows_whom_is_not_blamed_with_confidence():
    seen = stacks((WALKING, 40), (RECLAIM, 60))
    link = reclaim_burns_core.join(finding("direct_reclaim", task=("job[7]",)), HELD, seen)
    assert link.strength is Strength.POSSIBLE
    assert "is unknown" in link.against[-1]
    few = stacks((WALKING, 10), (RECLAIM, 90))
    assert joined(reclaim_burns_core, finding("direct_reclaim"), seen=few) is Strength.PROVEN


ORDERED = ("shrink_lruvec", "shrink_node", "try_to_free_mem_cgroup_pages", "memory_reclaim")


def test_reclaim_that_was_ordered_holds_a_core_like_any_other():
    cause = finding("direct_reclaim", task=("job[7]",))
    link = reclaim_burns_core.join(cause, HELD, stacks((ORDERED, 80), (OTHER, 20)))
    assert link.strength is Strength.PROVEN
    assert "on request" in link.sentence


def test_reclaim_over_the_dead_is_their_doing_and_no_rival():
    cause, effect = finding("zombie_memcgs"), finding("direct_reclaim", core=("5",))
    link = zombies_slow_reclaim.join(cause, effect, walking(dying=900))
    assert link.strength is Strength.PROVEN
    assert "40 % of reclaim's samples" in link.sentence
    assert "90 % of those are dying" in link.sentence


@pytest.mark.parametrize(
    ("effect", "seen"),
    [
        (finding("direct_reclaim", core=("5",)), walking(dying=100)),
        (finding("direct_reclaim", core=("6",)), walking(dying=900)),
        (finding("direct_reclaim", (300.0, 310.0), core=("5",)), walking(dying=900)),
        (finding("direct_reclaim", None, core=("5",)), walking(dying=900)),
        (finding("direct_reclaim", core=("5",)), stacks((WALKING, 40), (RECLAIM, 60))),
        (finding("direct_reclaim", core=("5",)), EMPTY),
    ],
)
def test_reclaim_elsewhere_or_over_the_living_or_nobody_knows_what_is_not(effect, seen):
    assert zombies_slow_reclaim.join(finding("zombie_memcgs"), effect, seen) is None


def test_reclaim_that_walks_the_living_is_not():
    cause = finding("direct_reclaim", task=("job[7]",))
    assert joined(reclaim_burns_core, cause, seen=walking(dying=100)) is Strength.PROVEN
    zombies = finding("zombie_memcgs")
    assert joined(zombie_walk_burns_core, zombies, seen=walking(dying=100)) is None


@pytest.mark.parametrize(
    ("seen", "strength"),
    [
        (EMPTY, Strength.POSSIBLE),
        (stacks((RECLAIM, 80), (OTHER, 20)), Strength.PROVEN),
        (stacks((RECLAIM, 30), (LIMIT, 60)), Strength.LIKELY),
        (stacks((LIMIT, 80)), None),
        (stacks((OTHER, 80)), Strength.POSSIBLE),
    ],
)
def test_pressure_forces_reclaim_only_where_the_allocator_found_no_page(seen, strength):
    pressure = finding("memory_pressure")
    reclaim = finding("direct_reclaim")
    assert joined(pressure_forces_reclaim, pressure, reclaim, seen) is strength
    assert (
        joined(pressure_forces_reclaim, finding("memory_pressure", (1, 2)), reclaim, seen) is None
    )


def test_pressure_forces_no_reclaim_that_somebody_ordered():
    ordered = finding("direct_reclaim", evidence=[evidence("samples in reclaim on request", 9.0)])
    assert joined(pressure_forces_reclaim, finding("memory_pressure"), ordered) is None


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (RECLAIM, {"reclaim", "shortage"}),
        (LIMIT, {"reclaim", "limit"}),
        (ORDERED, {"ordered", "limit"}),
        (KSWAPD, {"background", "shortage"}),
        ((*WALKING, *FAULT), {"reclaim", "walk"}),
        ((*PACKETS, *WALKING), {"softirq", "network"}),
        (("mem_cgroup_node_nr_lru_pages", "memcg_numa_stat_show"), {"walk", "statistics"}),
        (("memcg_stat_show.isra.0", "seq_read_iter"), {"walk", "statistics"}),
        ((*RSTAT, "memory_stat_show"), {"rstat", "statistics"}),
        (("compact_zone", *FAULT), {"compaction"}),
        (("shrink_dcache_parent",), set()),
        ((), set()),
    ],
)
def test_a_stack_is_of_the_families_that_tell_rivals_apart(frames, expected):
    assert families(frames) == expected


def test_evidence_of_stacks_is_named_so():
    link = faults_burn_core.join(finding("page_fault_storm"), HELD, stacks((FAULT, 100)))
    assert [item.source for item in link.evidence] == ["perf record"]
    assert evidence("x", 1.0).number == 1.0


@pytest.mark.parametrize(
    ("core", "span", "task", "strength"),
    [
        ("5", (90.0, 112.0), "job[7]", Strength.PROVEN),
        ("5", (90.0, 112.0), "other[9]", Strength.PROVEN),
        ("9", (90.0, 112.0), "job[7]", Strength.LIKELY),
        ("5", (900.0, 922.0), "job[8]", Strength.LIKELY),
        ("5", (900.0, 922.0), "other[9]", None),
        ("6", (90.0, 112.0), "job[7]", None),
        ("5", None, "other[9]", None),
    ],
)
def test_a_lockup_is_of_the_held_core_by_time_or_by_task(core, span, task, strength):
    held = finding("saturated_core", core=("5", "9"), task=("job[7/8]",))
    stuck = finding("soft_lockups", span, core=(core,), task=(task,))
    link = burnt_core_locks_up.join(held, stuck, EMPTY)
    assert (link.strength if link else None) is strength
    if link is not None:
        assert bool(link.against) is (task == "other[9]")


@pytest.mark.parametrize(
    ("cores", "span", "task", "strength"),
    [
        (("5",), (90.0, 112.0), "job[7]", Strength.PROVEN),
        (("5",), (90.0, 112.0), "other[9]", Strength.PROVEN),
        ((), (90.0, 112.0), "job[7]", Strength.LIKELY),  # RCU does not always name its core
        (("5",), (900.0, 922.0), "job[7]", None),
        (("6",), (90.0, 112.0), "job[7]", None),
    ],
)
def test_a_stall_is_of_the_realtime_task_by_core_and_time(cores, span, task, strength):
    held = finding("realtime_hog", core=("5",), task=("job[7]",))
    stuck = finding("soft_lockups", span, core=cores, task=(task,))
    link = realtime_hog_locks_up_core.join(held, stuck, EMPTY)
    assert (link.strength if link else None) is strength
    if link is not None:
        assert bool(link.against) is (task == "other[9]")


@pytest.mark.parametrize(
    ("core", "span", "strength"),
    [
        ("5", (100.0, 105.0), Strength.PROVEN),
        ("5", (900.0, 905.0), Strength.LIKELY),
        ("6", (100.0, 105.0), None),
    ],
)
def test_a_poll_waits_for_the_realtime_task_on_its_core(core, span, strength):
    held = finding("realtime_hog", core=("5",), task=("job[7]",))
    starved = finding("starved_napi", span, core=(core,), queue=("eth0:3",))
    link = realtime_hog_starves_napi.join(held, starved, EMPTY)
    assert (link.strength if link else None) is strength


CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING


@pytest.mark.parametrize(
    ("began", "span", "severity", "device", "strength"),
    [
        (50, (130.0, 250.0), CRITICAL, (), Strength.LIKELY),
        (50, (90.0, 210.0), CRITICAL, (), None),  # they waited before
        (50, (330.0, 450.0), CRITICAL, (), None),  # and afterwards
        (50, (250.0, 370.0), CRITICAL, (), None),  # the core was free, and they still waited
        (50, (130.0, 250.0), WARNING, (), None),  # 5 % of the core was left
        (50, (130.0, 250.0), CRITICAL, ("sda",), None),
        (100, (-60.0, 60.0), CRITICAL, (), Strength.POSSIBLE),  # held when the window began
        (100, (-240.0, -120.0), CRITICAL, (), None),
    ],
)
def test_tasks_hang_while_a_realtime_task_holds_a_core(began, span, severity, device, strength):
    """khugepaged in __lru_add_drain_all, which waits for a worker on each core (6.1)."""
    held = finding("realtime_hog", (100.0, 300.0), severity=severity, core=("5",))
    hung = finding("stuck_io", span, task=("khugepaged[36]",), device=device)
    rows = [SoftnetCpu(5, 0, 0, 0, None, None, None)]
    link = realtime_hog_hangs_tasks.join(held, hung, window({began: rows, 310: rows}))
    assert (link.strength if link else None) is strength
