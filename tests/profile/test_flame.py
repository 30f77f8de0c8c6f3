"""A flame graph counts every selected stack, whether built at once or merged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.model.profile import Flame
from sexton.profile import flame as module
from sexton.profile.flame import FlameSum, empty_tree, flame_of, merge_flames, pruned
from sexton.profile.select import ALL, Selection
from tests.profile.naive import by_path, chosen, lists, paths_of
from tests.profile.test_select import selections
from tests.support.profiles import SECOND, Sample, profile_of

EVERY = ALL._replace(idle=True)


def well_formed(flame: Flame) -> bool:
    """Pre-order, ends and depths agree, and every frame is one of the table's."""
    tree = flame.tree
    parents = tree.parents()
    inner = np.arange(1, len(tree))
    return bool(
        tree.depth[0] == 0
        and tree.end[0] == len(tree)
        and (tree.depth[inner] == tree.depth[parents[inner]] + 1).all()
        and (tree.end[parents[inner]] >= tree.end[inner]).all()
        and (tree.end > np.arange(len(tree))).all()
        and (tree.frame < len(tree.frames)).all()
        and len(flame.own) == len(tree)
    )


@given(lists, selections)
def test_a_flame_graph_is_the_count_of_every_chosen_stack(samples, selection):
    found = flame_of(profile_of(samples), selection)
    assert paths_of(found) == by_path([sample for sample in samples if chosen(sample, selection)])


@given(lists)
def test_totals_are_the_sums_of_all_stacks_that_begin_so(samples):
    found = flame_of(profile_of(samples), EVERY)
    counted = by_path(samples)
    frames = found.tree.frames
    for node, total in enumerate(found.tree.totals(found.own).tolist()):
        path = tuple(
            (frames.names[f], frames.modules[f], int(frames.kinds[f]))
            for f in found.tree.path(node)
        )
        assert total == sum(n for key, n in counted.items() if key[: len(path)] == path)


@given(lists)
def test_a_weight_counts_as_many_samples(samples):
    found = flame_of(profile_of(samples, weighted=True), EVERY)
    assert paths_of(found) == by_path([sample for sample in samples for _ in range(sample.weight)])


@given(st.lists(lists, max_size=4), selections)
def test_flame_graphs_merged_are_the_flame_graph_of_everything(groups, selection):
    merged = merge_flames([flame_of(profile_of(group), selection) for group in groups])
    whole = [item for group in groups for item in group if chosen(item, selection)]
    assert paths_of(merged) == by_path(whole)
    assert well_formed(merged)


@given(lists, selections)
def test_pruning_leaves_the_counts_and_nothing_without_one(samples, selection):
    found = flame_of(profile_of(samples), selection)
    small = pruned(found)
    assert paths_of(small) == paths_of(found)
    assert well_formed(small)
    assert (small.tree.totals(small.own)[1:] > 0).all()
    assert set(small.tree.frame.tolist()) == set(range(len(small.tree.frames)))


@given(st.lists(lists, max_size=6), st.integers(1, 20))
def test_gathering_one_by_one_gives_the_same(groups, few):
    before = module._FEW_NODES
    module._FEW_NODES = few
    try:
        gathering = FlameSum()
        for group in groups:
            gathering.add(flame_of(profile_of(group), EVERY))
        found = gathering.merged()
    finally:
        module._FEW_NODES = before
    assert paths_of(found) == by_path([item for group in groups for item in group])


def test_core_seconds_are_those_of_the_range_whatever_ran_there():
    profile = profile_of(
        [Sample(t * SECOND // 10, cpu=cpu, stack=("main",)) for t in range(40) for cpu in (0, 1)]
    )
    assert flame_of(profile, EVERY).core_seconds == pytest.approx(2 * 3.9)
    some = Selection(SECOND // 2, 2 * SECOND, frozenset({1}), pids=frozenset({77}))
    assert flame_of(profile, some).core_seconds == pytest.approx(1.5)
    assert flame_of(profile, some).samples == 0


def test_core_seconds_of_pieces_that_share_a_second_add_up_to_that_of_the_whole():
    every = [Sample(t * SECOND // 100, stack=("main",)) for t in range(350)]
    whole = flame_of(profile_of(every), EVERY).core_seconds
    parts = [flame_of(profile_of(part), EVERY) for part in (every[:170], every[170:])]
    assert merge_flames(parts).core_seconds == pytest.approx(whole, abs=0.011)


def test_event_range_and_core_time_of_merged_flames():
    timed = profile_of([Sample(0, stack=("main",), event="cycles")])
    other = profile_of([Sample(0, stack=("main",))], timed=False)
    one = flame_of(timed, Selection(0, 5))
    two = flame_of(timed, Selection(3, 9))
    both = merge_flames([one, two])
    assert (both.start_ns, both.end_ns, both.event) == (0, 9, "cycles")
    mixed = merge_flames([one, flame_of(other, ALL)])
    assert (mixed.core_seconds, mixed.start_ns, mixed.event) == (None, None, "cycles, cpu-clock")
    nothing = merge_flames([])
    assert (len(nothing.tree), nothing.samples, len(empty_tree())) == (1, 0, 1)
