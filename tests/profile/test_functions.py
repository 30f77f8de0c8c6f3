"""Functions count once per stack, however often they call themselves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given

from sexton.profile.flame import flame_of, functions, outermost, tasks
from sexton.profile.select import Selection
from tests.profile.naive import lists
from tests.support.profiles import Sample, function, path_of, profile_of

EVERY = Selection(idle=True)


@given(lists)
def test_functions_are_what_a_set_per_stack_counts(samples):
    own: Counter[object] = Counter()
    total: Counter[object] = Counter()
    for sample in samples:
        total.update({function(name) for name in sample.stack})
        own.update([function(sample.stack[-1])] if sample.stack else [])
    found = functions(flame_of(profile_of(samples), EVERY))
    assert {(f.name, f.module, f.kind): f.total for f in found} == dict(total)
    assert {(f.name, f.module, f.kind): f.own for f in found if f.own} == dict(own)
    assert [(-f.own, -f.total) for f in found] == sorted((-f.own, -f.total) for f in found)


@given(lists)
def test_tasks_are_counted_by_name(samples):
    counted = Counter(sample.comm for sample in samples)
    bare = Counter(sample.comm for sample in samples if not sample.stack)
    found = tasks(flame_of(profile_of(samples), EVERY))
    assert {task.name: task.total for task in found} == dict(counted)
    assert {task.name: task.own for task in found if task.own} == dict(bare)


@given(lists)
def test_a_node_is_outermost_where_nothing_above_is_the_same_function(samples):
    tree = profile_of(samples).tree
    paths = [tree.path(node) for node in range(1, len(tree))]
    assert outermost(tree)[1:].tolist() == [path[-1] not in path[:-1] for path in paths]


def test_a_function_that_calls_itself_and_comes_back_counts_once():
    stack = ("main", "walk", "walk", "visit", "walk")
    found = {f.name: f for f in functions(flame_of(profile_of([Sample(0, stack=stack)]), EVERY))}
    assert (found["walk"].own, found["walk"].total) == (1, 1)
    assert (found["main"].own, found["main"].total) == (0, 1)
    assert len(path_of(Sample(0, stack=stack))) == 6


def test_counts_too_large_for_floats_are_exact():
    huge = 2**53 + 1
    flame = flame_of(profile_of([Sample(0, stack=("main",), weight=huge)], weighted=True), EVERY)
    assert [(f.own, f.total) for f in functions(flame)] == [(huge, huge)]
