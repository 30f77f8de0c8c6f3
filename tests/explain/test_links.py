"""Each link: when it holds, how strongly, and when it must not."""

from __future__ import annotations

import pytest

from sexton.explain.links import (
    burnt_core_starves_napi,
    starved_napi_resets_nic,
    zombie_walk_burns_core,
)
from sexton.explain.registry import all_rules
from sexton.model.cgroup import WalkCost
from sexton.model.chain import Strength
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.stack import StackCount
from sexton.model.window import Batch, Window

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

    known = {each.id for each in all_detectors()}
    for rule in all_rules():
        assert rule.cause in known, rule.id
        assert rule.effect in known, rule.id
        assert "_" in rule.id


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
        ("5", 95.0, Strength.PROVEN),
        ("6", 103.0, None),
    ],
)
def test_starvation_needs_the_same_core_and_is_proven_by_the_same_seconds(
    effect_core, effect_start, strength
):
    link = burnt_core_starves_napi.join(
        finding("saturated_core", start=100.0, end=105.0, core=("5",)),
        finding("starved_napi", start=effect_start, core=(effect_core,), queue=("eth0:5",)),
        EMPTY,
    )
    assert (link.strength if link else None) is strength


def test_a_reset_is_proven_by_time_or_by_the_drivers_own_reason():
    starved = finding("starved_napi", start=100.0, nic=("eth0",), queue=("eth0:5",))
    soon = finding("nic_resets", start=104.0, nic=("eth0",), queue=("eth0:5",))
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
            for effect in (soon, late, other_queue, other_nic, said)
        )
    ]
    assert strengths == [
        Strength.PROVEN,
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
    ],
)
def test_stacks_of_the_held_core_decide_for_and_against_the_walk(window, strength):
    held = finding("saturated_core", start=100.0, end=105.0, core=("5",), task=("kubelet[2113]",))
    link = zombie_walk_burns_core.join(finding("zombie_memcgs"), held, window)
    assert (link.strength if link else None) is strength
