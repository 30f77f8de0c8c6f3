"""Samples with names become a profile."""

from __future__ import annotations

from collections import Counter
from io import BytesIO

from sexton.model.profile import Kind
from sexton.profile.perf import folded, script_text
from sexton.profile.perf.named_samples import profile_of
from tests.profile.export.made import counted
from tests.support.fixtures import FIXTURES

TEXT = (FIXTURES / "perf" / "script" / "6.18-header.txt").read_bytes()


def test_every_sample_finds_its_stack_in_the_tree():
    named = script_text.read(BytesIO(TEXT), "capture.txt")
    expected: Counter[tuple[str, ...]] = Counter()
    for stack in named.stack.tolist():
        frames = named.stacks.frame[named.stacks.start[stack] : named.stacks.start[stack + 1]]
        path = [named.frames.names[frame] for frame in reversed(frames.tolist())]
        expected[(named.tasks[named.stacks.task[stack]], *path)] += 1
    profile = profile_of(named)
    assert counted(profile) == expected
    assert profile.facts.host == "vm"
    assert profile.timed


def test_the_tree_begins_with_tasks():
    tree = profile_of(script_text.read(BytesIO(TEXT), "capture.txt")).tree
    assert tree.frames.kinds[tree.frame[0]] == Kind.ROOT
    for node, depth in enumerate(tree.depth.tolist()):
        is_task = tree.frames.kinds[tree.frame[node]] == Kind.TASK
        assert is_task == (depth == 1)


def test_samples_are_put_into_the_order_of_time_and_equal_times_stay():
    lines = [b"a 1 [000] 5.000000: c: \n\n", b"b 2 [001] 3.000000: c: \n\n"]
    lines += [b"c 3 [002] 5.000000: c: \n\n", b"d 4 [003] 3.000000: c: \n\n"]
    profile = profile_of(script_text.read(BytesIO(b"".join(lines)), "t"))
    assert profile.cpu.tolist() == [1, 3, 0, 2]
    assert [profile.threads[thread].comm for thread in profile.thread.tolist()] == list("bdac")
    assert profile.span_ns == (3 * 10**9, 5 * 10**9)


def test_counted_stacks_keep_their_weight_and_have_no_times():
    profile = profile_of(folded.read(BytesIO(b"a;b;c 3\na;b 4\n"), "t"))
    assert counted(profile) == Counter({("a", "b", "c"): 3, ("a", "b"): 4})
    assert profile.weight.tolist() == [3, 4]
    assert profile.span_ns is None
