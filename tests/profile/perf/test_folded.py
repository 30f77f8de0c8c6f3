"""Folded stacks as several writers write them, and junk."""

from __future__ import annotations

import gzip
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.model.profile import Event, Kind, Thread
from sexton.profile.perf import folded
from sexton.profile.perf.named_samples import MOST_FRAMES
from tests.fuzz.folded_target import one


def read(data):
    return folded.read(BytesIO(data), "a.folded")


def stacks(named):
    """Per row: the task, then names from the outermost, and the weight."""
    found = []
    for stack, weight in zip(named.stack.tolist(), named.weight.tolist(), strict=True):
        frames = named.stacks.frame[named.stacks.start[stack] : named.stacks.start[stack + 1]]
        names = [named.frames.names[frame] for frame in reversed(frames.tolist())]
        found.append((named.tasks[named.stacks.task[stack]], *names, weight))
    return found


def test_stacks_are_read_with_their_counts():
    named = read(b"Web Content;main;f(int, char) 3\nksoftirqd/12;main 4\nalone 5\n")
    assert stacks(named) == [
        ("Web Content", "main", "f(int, char)", 3),
        ("ksoftirqd/12", "main", 4),
        ("alone", 5),
    ]
    assert named.threads[0] == Thread(-1, -1, "Web Content")
    assert named.events == (Event("samples"),)
    assert not named.timed
    assert set(named.frames.kinds.tolist()) == {Kind.UNTOLD}
    assert named.facts.problems == []


def test_annotations_give_the_kind_and_are_not_part_of_the_name():
    named = read(b"java;Interp_[j];inl_[i];vfs_read_[k];odd_[x] 7\n")
    told = dict(zip(named.frames.names, named.frames.kinds.tolist(), strict=True))
    assert told == {
        "Interp": Kind.USER,
        "inl": Kind.USER,
        "vfs_read": Kind.KERNEL,
        "odd_[x]": Kind.UNTOLD,
    }


def test_the_same_stack_twice_is_two_rows_of_one_stack():
    named = read(b"a;b 1\na;b 2\nc;b 4\n")
    assert named.stack.tolist() == [0, 0, 1]
    assert named.weight.tolist() == [1, 2, 4]


def test_decimals_are_rounded_and_reported():
    named = read(b"a;b 1.5\na;c 2.4\na;d 7.\n")
    assert named.weight.tolist() == [2, 2, 7]
    assert named.facts.problems == ["3 counts with decimals: rounded"]


def test_a_comment_in_front_is_no_stack_and_dos_lines_are_lines():
    named = read(b'# {"hostname": "a b 5"}\r\na;b 1\r\n')
    assert stacks(named) == [("a", "b", 1)]


def test_lines_that_are_no_stack_are_counted():
    named = read(b"a;b 1\nnonsense\na;b -5\n 7\n\n")
    assert len(named) == 1
    assert named.facts.problems == ["3 lines without a folded stack: skipped"]


def test_gzipped_is_the_same_and_a_cut_one_gives_what_it_has():
    data = b"".join(b"task;f%d;g%d 1\n" % (n, n * 7919 % 1000) for n in range(50_000))
    packed = gzip.compress(data)
    assert stacks(read(packed)) == stacks(read(data))
    cut = read(packed[: len(packed) // 2])
    assert 10_000 < len(cut) < 50_000
    assert "gzip data truncated" in cut.facts.problems[0]


def test_gzip_members_follow_each_other():
    named = read(gzip.compress(b"a;b 1\n") + gzip.compress(b"c;d 2\n") + b"\x00" * 9)
    assert stacks(named) == [("a", "b", 1), ("c", "d", 2)]


def test_a_stack_too_deep_loses_its_outermost_frames_and_is_reported():
    line = b"task;" + b";".join(b"f%d" % at for at in range(MOST_FRAMES + 9)) + b" 1\n"
    named = read(line)
    assert named.tasks == ("task",)
    assert len(named.stacks.frame) == MOST_FRAMES
    assert named.frames.names[named.stacks.frame[0]] == f"f{MOST_FRAMES + 8}"
    assert "1 stack deeper" in named.facts.problems[0]


@pytest.mark.parametrize("data", [b"", b"\n \n", b"hello\n" * 200, b"\x00\x01\x02"])
def test_what_has_no_stacks_is_refused_in_one_line(data):
    with pytest.raises(SourceMalformed, match="no folded stacks found"):
        read(data)


def test_counts_too_large_to_add_are_refused():
    with pytest.raises(SourceMalformed, match="line 5: counts too large"):
        read(b"a;b 999999999999999999\n" * 5)


def test_a_line_without_end_is_refused():
    with pytest.raises(SourceMalformed, match="line longer than"):
        read(b"a;b 1\n" + b"x" * (3 << 20))


@given(st.binary(max_size=300))
def test_junk_is_refused_or_read_never_more(data):
    one(data)


@given(st.lists(st.tuples(st.text(";ab_[k] \n\r\x00é", max_size=20), st.integers(0, 10**19))))
def test_junk_made_of_stacks_is_refused_or_read_never_more(lines):
    one(b"".join(f"{stack} {count}\n".encode() for stack, count in lines))
