"""Each link: when it holds, how strongly, and when it must not."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from sexton.detect.detectors.cpu import saturated_core
from sexton.explain.links.cgroups import (
    churn_leaves_zombies,
    crash_loop_leaves_zombies,
    zombies_slow_stats,
)
from sexton.explain.links.cpu import slow_stats_burn_core, zombie_walk_burns_core
from sexton.explain.links.network import burnt_core_starves_napi, starved_napi_resets_nic
from sexton.explain.registry import all_rules, rule_of
from sexton.explain.story import timeline
from sexton.model.chain import Chain, Strength
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, CgroupStat, WalkCost
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import NicCounter
from sexton.model.rows.trace import StackCount
from sexton.model.rows.unit import Unit
from sexton.model.window import Batch, Window
from sexton.reports.text.narrative import chain_title
from tests.support.fixtures import FIXTURES
from tests.support.windows import load_window

EMPTY = Window({})


def finding(name, start=None, end=None, evidence=(), **entities):
    return Finding(
        name,
        Verdict.PRESENT,
        Severity.CRITICAL,
        name,
        entities=entities,
        start=start,
        end=end,
        evidence=evidence,
    )


def walked(estimate_s, root_s=None):
    cost = WalkCost("memory.stat", "/small", 40, 0.002, estimate_s, root_s, "")
    return Window({WalkCost: [Batch(0, 0, (cost,))]})


def test_every_link_is_a_sentence_of_two_known_symptoms():
    from sexton.detect.registry import all_detectors

    known = {detector.id for detector in all_detectors()}
    for rule in all_rules():
        assert rule.cause in known, rule.id
        assert rule.effect in known, rule.id
        assert "_" in rule.id


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_every_link_has_a_written_rule_and_says_what_would_prove_it(rule):
    doc = sys.modules[rule.join.__module__].__doc__
    assert "**Rule.**" in doc
    assert "**Evidence against.**" in doc
    assert any(f"*{item}*" in doc.lower() for item in Strength) or "That of `" in doc
    for words in (rule.story, rule.proof):
        assert words
        assert not words.endswith(".")
        assert words[0].islower()


@pytest.mark.parametrize(
    ("task", "window", "strength"),
    [
        ("kubelet[2113]", walked(4.8), Strength.LIKELY),
        ("kubelet[2113]", walked(4.8, root_s=4.6), Strength.LIKELY),
        ("kubelet[2113]", walked(0.00004), Strength.POSSIBLE),
        ("kubelet[2113]", EMPTY, Strength.POSSIBLE),
        ("stress-ng[7]", walked(4.8), Strength.POSSIBLE),
    ],
)
def test_a_walk_is_at_best_likely_without_stacks(task, window, strength):
    link = zombie_walk_burns_core.join(
        finding("zombie_memcgs"), finding("saturated_core", core=("5",), task=(task,)), window
    )
    assert link.strength is strength


def test_zombies_and_a_burnt_core_are_no_chain_by_themselves():
    core = finding("saturated_core", core=("5",), task=("stress-ng[7]",))
    assert zombie_walk_burns_core.join(finding("zombie_memcgs"), core, EMPTY) is None
    assert zombie_walk_burns_core.join(finding("zombie_memcgs"), core, walked(0.00004)) is None


def test_a_fast_walk_speaks_against_it():
    core = finding("saturated_core", core=("5",), task=("kubelet[2113]",))
    link = zombie_walk_burns_core.join(finding("zombie_memcgs"), core, walked(0.00004))
    assert link.against


@pytest.mark.parametrize(
    ("effect_core", "effect_start", "strength"),
    [
        ("5", 103.0, Strength.PROVEN),
        ("5", 5000.0, Strength.LIKELY),
        ("5", 98.5, Strength.PROVEN),  # readings do not tell which was first
        ("5", 95.0, Strength.LIKELY),
        ("5", 107.7, Strength.LIKELY),
        ("6", 103.0, None),
        ("9", 103.0, Strength.LIKELY),
    ],
)
def test_starvation_needs_the_same_core_and_is_proven_by_the_same_seconds(
    effect_core, effect_start, strength
):
    link = burnt_core_starves_napi.join(
        finding("saturated_core", start=100.0, end=105.0, core=("5", "9")),
        finding("starved_napi", start=effect_start, core=(effect_core,), queue=("eth0:5",)),
        EMPTY,
    )
    assert (link.strength if link else None) is strength


def test_a_reset_is_proven_by_time_or_by_the_drivers_own_reason():
    starved = finding("starved_napi", start=100.0, nic=("eth0",), queue=("eth0:5",))
    soon = finding("nic_resets", start=104.0, nic=("eth0",), queue=("eth0:5",))
    before = finding("nic_resets", start=90.0, nic=("eth0",), queue=("eth0:5",))
    late = finding("nic_resets", start=9000.0, nic=("eth0",), queue=("eth0:5",))
    other_queue = finding("nic_resets", start=9000.0, nic=("eth0",), queue=("eth0:1",))
    other_nic = finding("nic_resets", start=104.0, nic=("eth1",), queue=("eth1:5",))
    said = finding(
        "nic_resets",
        nic=("eth0",),
        evidence=(Evidence("suspected_poll_starvation", "1", "0", "", "ethtool", 1),),
    )
    strengths = [
        (link.strength if link else None)
        for link in (
            starved_napi_resets_nic.join(starved, effect, EMPTY)
            for effect in (soon, before, late, other_queue, other_nic, said)
        )
    ]
    assert strengths == [
        Strength.PROVEN,
        Strength.LIKELY,
        Strength.LIKELY,
        Strength.POSSIBLE,
        None,
        Strength.PROVEN,
    ]


def stacks(*functions: tuple[str, int], core: int = 5) -> Window:
    rows = tuple(
        StackCount(102, core, 1, 1, "kubelet", (name, "do_syscall_64"), samples)
        for name, samples in functions
    )
    return Window({StackCount: [Batch(102.0, 102.0, rows)]})


@pytest.mark.parametrize(
    ("window", "strength"),
    [
        (stacks(("mem_cgroup_iter", 30), ("shrink_node", 70)), Strength.PROVEN),
        (stacks(("mem_cgroup_nr_lru_pages", 90), ("read_zero", 10)), Strength.PROVEN),
        (stacks(("css_next_descendant_pre", 10), ("read_zero", 90)), Strength.LIKELY),
        (stacks(("read_zero", 100)), None),
        (stacks(("mem_cgroup_iter", 100), core=6), Strength.POSSIBLE),
        (stacks(("mem_cgroup_iter", 10), ("shrink_node", 90)), Strength.POSSIBLE),
        (stacks(("handle_mm_fault", 100)), None),
        (stacks(("net_rx_action", 100)), None),
        (stacks(("cgroup_rstat_flush_locked", 100)), None),
        (stacks(("compact_zone", 100)), None),
        (stacks(("shrink_node", 100)), None),
        (stacks(("mem_cgroup_iter", 10)), Strength.POSSIBLE),
    ],
)
def test_stacks_of_the_held_core_decide_for_and_against_the_walk(window, strength):
    held = finding("saturated_core", start=100.0, end=105.0, core=("5",), task=("kubelet[2113]",))
    link = zombie_walk_burns_core.join(finding("zombie_memcgs"), held, window)
    assert (link.strength if link else None) is strength


def said(scheduled, nic="eth0"):
    fields = {"nic": nic, "queue": 5, "napi_us": 6_000_000, "napi_scheduled": scheduled}
    event = KernelEvent("ena", "nic_starved", "", None, None, fields)
    return Window({KernelEvent: [Batch(0, 0, (event,))]})


@pytest.mark.parametrize(
    ("window", "against"),
    [(said(0), True), (said(1), False), (said(0, "eth1"), False), (EMPTY, False)],
)
def test_an_interrupt_that_was_lost_speaks_against_the_core(window, against):
    link = burnt_core_starves_napi.join(
        finding("saturated_core", core=("5",)),
        finding("starved_napi", core=("5",), nic=("eth0",)),
        window,
    )
    assert ("1 line of the driver" in " ".join(link.against)) is against


def counted(name, value, nic="eth0"):
    return Window({NicCounter: [Batch(0, 0, (NicCounter(nic, name, value),))]})


@pytest.mark.parametrize(
    ("window", "against"),
    [
        (counted("wd_expired", 3), ("eth0 wd_expired 3: the device stopped sending keep-alives",)),
        (counted("missing_intr", 1), ("eth0 missing_intr 1: an interrupt was lost",)),
        (counted("wd_expired", 0), ()),
        (counted("wd_expired", 3, "eth1"), ()),
        (counted("suspected_poll_starvation", 3), ()),
        (EMPTY, ()),
    ],
)
def test_counters_of_another_cause_speak_against_a_starved_reset(window, against):
    link = starved_napi_resets_nic.join(
        finding("starved_napi", nic=("eth0",)), finding("nic_resets", nic=("eth0",)), window
    )
    assert link.against == against


def unit(restarts, cgroup="/system.slice/crash.service"):
    return Unit(
        name="crash.service",
        load_state="loaded",
        active_state="activating",
        sub_state="auto-restart",
        file_state=None,
        restarts=restarts,
        restart_policy="always",
        restart_delay_us=100_000,
        main_start_us=None,
        main_exit_us=None,
        active_enter_us=None,
        result="exit-code",
        exit_status=1,
        cgroup=cgroup,
        cgroup_origin="systemd",
    )


def looping(restarts, dying, below=None):
    census = CgroupCensus("v2", 2, None, "node", dying + 50, 50, dying, "cgroup.stat", None)
    stats = tuple(CgroupStat(path, 1, number, None) for path, number in (below or {}).items())
    batches = {
        Unit: [Batch(0, 0, (unit(restarts - 5),)), Batch(10, 10, (unit(restarts),))],
        CgroupCensus: [Batch(10, 10, (census,))],
    }
    if stats:
        batches[CgroupStat] = [Batch(10, 10, stats)]
    return Window(batches)


@pytest.mark.parametrize(
    ("window", "against"),
    [
        (looping(5_000, 5_000), ""),
        (looping(50, 5_000), "crash.service accounts for 50 of 5,000 dying cgroups only"),
        (
            looping(50, 5_000, {"/": 5_000, "/system.slice": 50, "/kubepods.slice": 4_950}),
            "4,950 dying cgroups are below /kubepods.slice",
        ),
        (looping(5_000, 5_000, {"/": 5_000, "/system.slice": 5_000}), ""),
    ],
)
def test_fewer_restarts_than_dead_and_dead_elsewhere_speak_against_a_crash_loop(window, against):
    link = crash_loop_leaves_zombies.join(
        finding("crash_looping_unit", unit=("crash.service",)), finding("zombie_memcgs"), window
    )
    assert " ".join(link.against) == against


def died(kept, released):
    events = []
    for number in range(kept + released):
        path = f"/docker/{number:064x}"
        events.append(CgroupEvent("rmdir", number, path, number))
        if number >= kept:
            events.append(CgroupEvent("release", number, path, number + 1))
    census = CgroupCensus("v2", 2, None, "node", kept + 50, 50, kept, "cgroup.stat", None)
    return Window(
        {
            CgroupEvent: [Batch(0, 0, tuple(events)), Batch(60, 60, ())],
            CgroupCensus: [Batch(60, 60, (census,))],
        }
    )


@pytest.mark.parametrize(
    ("window", "against"),
    [
        (died(kept=10, released=2), ()),
        (died(kept=10, released=30), ("30 of the 40 cgroups removed under /docker were released",)),
    ],
)
def test_what_is_released_speaks_against_the_churn(window, against):
    link = churn_leaves_zombies.join(
        finding("cgroup_churn", cgroup=("/docker",)),
        finding("zombie_memcgs", cgroup=("/docker",)),
        window,
    )
    assert link.against == against


def test_dead_that_nobody_saw_die_speak_against_the_churn_where_they_are_the_most():
    ends = (
        finding("cgroup_churn", cgroup=("/docker",)),
        finding("zombie_memcgs", cgroup=("/docker",)),
    )
    seen = died(kept=10, released=0)
    (census,) = seen.latest(CgroupCensus)
    for dying, against in (
        (20, ()),
        (21, ("only 10 of 21 dying cgroups are known to come from there",)),
    ):
        counted = replace(census, total=dying, dying=dying)
        window = Window({**seen._batches, CgroupCensus: [Batch(60, 60, (counted,))]})
        link = churn_leaves_zombies.join(*ends, window)
        assert (link.strength, link.against) == (Strength.PROVEN, against)
        assert link.covers == (10, dying)


def test_proven_and_likely_ones_are_told_apart_where_both_are_counted():
    seen = died(kept=10, released=0)
    (census,) = seen.latest(CgroupCensus)
    rows = {
        CgroupCensus: [Batch(60, 60, (replace(census, total=30, dying=30),))],
        CgroupStat: [Batch(60, 60, (CgroupStat("/", 9, 30, 30), CgroupStat("/docker", 1, 12, 12)))],
    }
    link = churn_leaves_zombies.join(
        finding("cgroup_churn", cgroup=("/docker",)),
        finding("zombie_memcgs", cgroup=("/docker",)),
        Window({**seen._batches, **rows}),
    )
    assert link.covers == (10, 30)
    words = "only 12 of 30 dying cgroups are known to come from there (10 proven, 2 likely)"
    assert link.against == (words,)


def test_proven_is_what_was_seen_of_many_dead_a_few_known_ones_prove_nothing():
    """The demo on a node with 10,050 dead of others: 23 were seen to die, and 12,098 are dead."""
    ends = (
        finding("cgroup_churn", cgroup=("/docker",)),
        finding("zombie_memcgs", cgroup=("/docker",)),
    )
    seen = died(kept=23, released=0)
    (census,) = seen.latest(CgroupCensus)
    for dying, strength, sure in (
        (12_098, Strength.LIKELY, "likely, known for 23 of 12,098"),
        (461, Strength.LIKELY, "likely, known for 23 of 461"),
        (460, Strength.PROVEN, "proven for 23 of 460"),
        (23, Strength.PROVEN, "proven"),
    ):
        counted = replace(census, total=dying, dying=dying)
        window = Window({**seen._batches, CgroupCensus: [Batch(60, 60, (counted,))]})
        link = rule_of("churn_leaves_zombies").run(*ends, window)
        assert (link.strength, link.sure) == (strength, sure)
        known = {"cgroup_churn": ends[0], "zombie_memcgs": ends[1]}
        assert any(f"({sure})" in sentence for sentence in timeline(Chain((link,)), known, window))
        title = chain_title(Chain((link,)), 0)
        partial = strength is Strength.PROVEN and dying > 46
        assert title.endswith("(proven in part)") is partial


def test_a_few_known_ones_beside_many_that_are_known_to_be_others_are_only_possible():
    ends = (
        finding("cgroup_churn", cgroup=("/docker",)),
        finding("zombie_memcgs", cgroup=("/docker",)),
    )
    seen = died(kept=23, released=0)
    (census,) = seen.latest(CgroupCensus)
    rows = (
        CgroupStat("/", 9, 12_098, None),
        CgroupStat("/docker", 9, 23, None),
        CgroupStat("/batch", 9, 10_050, None),
    )
    counted = replace(census, total=12_098, dying=12_098)
    both = {CgroupCensus: [Batch(60, 60, (counted,))], CgroupStat: [Batch(60, 60, rows)]}
    link = rule_of("churn_leaves_zombies").run(*ends, Window({**seen._batches, **both}))
    assert link.sure == "possible, known for 23 of 12,098"


def test_a_unit_that_restarts_beside_many_foreign_dead_is_not_blamed_for_them():
    window = looping(600, 12_098)
    ends = finding("crash_looping_unit", unit=("crash.service",)), finding("zombie_memcgs")
    link = crash_loop_leaves_zombies.join(*ends, window)
    assert link.strength is Strength.POSSIBLE
    assert link.covers == (600, 12_098)
    whole = crash_loop_leaves_zombies.join(*ends, looping(12_098, 12_098))
    assert whole.covers is None


def test_dead_that_are_only_counted_make_a_trace_of_others_no_weaker():
    ends = (
        finding("cgroup_churn", cgroup=("/docker",)),
        finding("zombie_memcgs", cgroup=("/docker",)),
    )
    seen = died(kept=10, released=0)
    rows = (CgroupStat("/", 9, 900, None), CgroupStat("/docker", 9, 900, None))
    counted = Window({**seen._batches, CgroupStat: [Batch(60, 60, rows)]})
    assert churn_leaves_zombies.join(*ends, counted).strength is Strength.PROVEN


@pytest.mark.parametrize(
    ("measured_s", "memcgs", "against"), [(0.01, 40, False), (2.0, 40, True), (2.0, 4_000, False)]
)
def test_a_small_subtree_that_is_as_slow_speaks_against_the_dead(measured_s, memcgs, against):
    walk = WalkCost("memory.stat", "/small", memcgs, measured_s, 3.0, 3.0, "")
    census = CgroupCensus("v2", 2, None, "node", 5_000, 50, 4_950, "cgroup.stat", None)
    window = Window({WalkCost: [Batch(0, 0, (walk,))], CgroupCensus: [Batch(0, 0, (census,))]})
    link = zombies_slow_stats.join(finding("zombie_memcgs"), finding("slow_memcg_stats"), window)
    assert bool(link.against) is against


@pytest.mark.parametrize("link", [zombie_walk_burns_core, slow_stats_burn_core])
@pytest.mark.parametrize(
    ("system", "task", "against"),
    [
        (98.0, "kubelet[2113]", 0),
        (12.0, "kubelet[2113]", None),
        (98.0, "stress-ng[7]", 1),
        (12.0, "stress-ng[7]", None),
        (98.0, "kswapd0[80]", None),
        (98.0, "ksoftirqd/5[40]", None),
    ],
)
def test_without_stacks_softirq_and_kernel_threads_are_no_walk(link, system, task, against):
    kinds = Evidence("core 5 by kind", f"system {system} %", "", "%", "/proc/stat", system)
    core = finding("saturated_core", core=("5",), task=(task,), evidence=(kinds,))
    cause = finding("zombie_memcgs" if link is zombie_walk_burns_core else "slow_memcg_stats")
    found = link.join(cause, core, walked(4.8))
    assert (None if found is None else len(found.against)) == against


def test_a_read_measured_as_fast_leaves_a_reader_with_nothing_to_answer_for():
    core = finding("saturated_core", core=("5",), task=("kubelet[2113]",))
    window = walked(0.00004, root_s=0.00004)
    assert zombie_walk_burns_core.join(finding("zombie_memcgs"), core, window) is None


def test_a_flood_of_packets_is_no_walk_by_the_detectors_own_evidence():
    window, _ = load_window(FIXTURES / "detectors/saturated_core/flood.json")
    held = replace(saturated_core.detect(window), entities={"task": ("kubelet[2113]",)})
    assert zombie_walk_burns_core.join(finding("zombie_memcgs"), held, walked(4.8)) is None


@pytest.mark.parametrize(("dying", "strength"), [(4_950, Strength.PROVEN), (2_000, None)])
def test_a_walk_over_the_living_is_not_the_deads_doing(dying, strength):
    census = CgroupCensus("v2", 2, None, "node", 5_000, 5_000 - dying, dying, "cgroup.stat", None)
    rows = stacks(("mem_cgroup_iter", 100)).batches(StackCount)
    window = Window({StackCount: rows, CgroupCensus: [Batch(102.0, 102.0, (census,))]})
    held = finding("saturated_core", start=100.0, end=105.0, core=("5",), task=("kubelet[2113]",))
    link = zombie_walk_burns_core.join(finding("zombie_memcgs"), held, window)
    assert (link.strength if link else None) is strength


def test_a_walk_by_reclaim_is_no_read_of_statistics():
    rows = (StackCount(102, 5, 1, 1, "dd", ("mem_cgroup_iter", "shrink_node"), 100),)
    window = Window({StackCount: [Batch(102.0, 102.0, rows)]})
    held = finding("saturated_core", start=100.0, end=105.0, core=("5",), task=("kubelet[2113]",))
    assert slow_stats_burn_core.join(finding("slow_memcg_stats"), held, window) is None
    link = zombie_walk_burns_core.join(finding("zombie_memcgs"), held, window)
    assert link.strength is Strength.PROVEN
