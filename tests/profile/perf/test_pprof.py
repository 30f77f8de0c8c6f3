"""pprof: profiles made field by field, and junk."""

from __future__ import annotations

import gzip
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.model.profile import Event, Kind, Thread
from sexton.profile.perf import pprof
from sexton.profile.perf.protobuf import number, text
from sexton.profile.perf.stream import Bounds
from tests.fuzz.pprof_target import one
from tests.support.pprof import packed, small


def read(data):
    return pprof.read(BytesIO(data), "cpu.pb.gz")


def stacks(named):
    """Per row: the task, then names from the innermost, and the weight."""
    found = []
    for stack, weight in zip(named.stack.tolist(), named.weight.tolist(), strict=True):
        frames = named.stacks.frame[named.stacks.start[stack] : named.stacks.start[stack + 1]]
        names = [named.frames.names[frame] for frame in frames.tolist()]
        found.append((named.tasks[named.stacks.task[stack]], *names, weight))
    return found


def test_stacks_inlined_functions_and_labels_are_read():
    named = read(small())
    assert stacks(named) == [
        ("worker/3", "vfs_read", "inlined_one", "main", "main", 3),
        ("app", "main", 4),
    ]
    assert named.threads == (Thread(70, 71, "worker/3"), Thread(-1, -1, "app"))
    assert named.cpu.tolist() == [7, -1]
    assert not named.timed


def test_kind_and_module_come_from_the_mapping():
    named = read(small())
    told = dict(
        zip(
            named.frames.names,
            zip(named.frames.modules, named.frames.kinds.tolist(), strict=True),
            strict=True,
        )
    )
    assert told["vfs_read"] == ("[kernel.kallsyms]", Kind.KERNEL)
    assert told["main"] == ("/usr/bin/app", Kind.USER)


def test_samples_are_counted_and_the_rest_is_named():
    named = read(small())
    assert named.events == (Event("samples", hertz=97),)
    assert named.facts.problems == ["sample type samples (count) used; ignored: cpu (nanoseconds)"]


def test_without_samples_the_profiles_default_is_taken_then_the_last_type():
    types = ((3, 4), (5, 2))
    assert stacks(read(small(types=types) + number(14, 3)))[1] == ("app", "main", 4)
    assert stacks(read(small(types=types)))[1] == ("app", "main", 40)


def test_gzipped_or_not_is_the_same():
    assert stacks(read(gzip.compress(small()))) == stacks(read(small()))


def test_locations_may_come_unpacked():
    sample = text(2, number(1, 2) + number(1, 1) + number(2, 5) + number(2, 50))
    assert stacks(read(small() + sample))[2] == ("app", "vfs_read", "main", 5)


def test_without_names_and_mappings_everything_is_unknown():
    told = b"".join(text(6, word) for word in (b"", b"samples", b"count"))
    told += text(1, number(1, 1) + number(2, 2))
    told += text(4, number(1, 9) + number(3, 0x1234))
    named = read(told + text(2, text(1, b"\x09") + text(2, b"\x02")))
    assert stacks(named) == [("[unknown]", "[unknown]", 2)]
    assert named.frames.kinds.tolist() == [Kind.UNTOLD]


def test_negative_values_are_skipped_and_reported():
    sample = text(2, text(1, b"\x01") + text(2, packed(-5, -50)))
    named = read(small() + sample)
    assert len(named) == 2
    assert "1 negative value (a difference of profiles?): skipped" in named.facts.problems[-1]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a pprof profile"),
        (b"hello world, this is no profile", "corrupt"),
        (small()[:-3], "truncated or corrupt"),
        (small() + text(2, text(1, b"\x55") + text(2, b"\x01")), "refers to missing location 85"),
        (small() + text(5, number(1, 9) + number(2, 99)), "refers to missing string 99"),
        (small() + b"\x0b", "not a protocol buffer"),
        (small() + b"\x08" + b"\xff" * 11, "not a protocol buffer"),
        (small() + text(2, text(1, b"\x01") + text(2, packed(2**62, 1))), "too large to add"),
        (gzip.compress(small(), mtime=0)[:-8] + b"\x00" * 8, "corrupt gzip data"),
        (gzip.compress(small(), mtime=0)[:-90], "past the end|mid-number|not a pprof profile"),
    ],
    ids=range(10),
)
def test_what_makes_no_sense_is_refused_in_one_line(data, reason):
    with pytest.raises(SourceMalformed, match=reason) as caught:
        read(data)
    assert "\n" not in str(caught.value)


def test_stacks_that_would_grow_far_beyond_the_file_are_refused(monkeypatch):
    monkeypatch.setattr("sexton.profile.perf.named_samples.MOST_STACKED", 50_000)
    deep = text(4, number(1, 4) + b"".join(text(4, number(1, 1)) for _ in range(2000)))
    many = b"".join(
        text(2, text(1, packed(*([1] * n), 4)) + text(2, b"\x01\x01")) for n in range(1, 60)
    )
    with pytest.raises(SourceMalformed, match="more than 50,000 frames"):
        read(small() + deep + many)


def test_more_than_fits_in_memory_is_refused():
    with pytest.raises(SourceMalformed, match=r"larger than 100 B: refused"):
        pprof.read(BytesIO(small()), "cpu.pb", Bounds(unpacked=100))


@given(st.binary(max_size=300))
def test_junk_is_refused_or_read_never_more(data):
    one(data)


@given(st.data())
def test_junk_made_of_a_real_profile_is_refused_or_read_never_more(data):
    piece = bytearray(small())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(piece) - 1))
        piece[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    one(bytes(piece))
