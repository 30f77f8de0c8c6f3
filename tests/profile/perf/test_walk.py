"""Both ways of walking records agree with the kernel's order of fields, and with each other."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.profile.perf import native
from sexton.profile.perf.native import NativeWalker
from sexton.profile.perf.walk import BadRecord, Columns, Layout, Since, Walker, plan_of, walker
from sexton.profile.perf.walk_numpy import NumpyWalker
from tests.support.examples import examples

from . import walk_cases as cases
from .walk_cases import Told, body, record, since

PLAIN = Layout(0x2001E7, 0, 0, 0, 0, ())  # perf record -a -g --all-cgroups
NOBODY = since([])


def walkers(layouts: list[Layout], comms: Since, spaces: Since) -> list[Walker]:
    library = native.loaded(native.HERE)
    assert library is not None, "_walk.so is not compiled: scripts/setup dev"
    plan = plan_of(layouts, comms, spaces)
    return [NumpyWalker(plan), NativeWalker(library, plan)]


def walked(walk: Walker, data: bytes, piece: int = 1 << 20) -> tuple[Columns, object]:
    """All columns, and what stopped the walk: the bytes left over, or a bad record."""
    at, rest = 0, b""
    while True:
        rest += data[at : at + piece]
        at += piece
        try:
            used = walk.samples(memoryview(rest))
        except BadRecord as bad:
            return walk.finish(), ("bad", bad.offset)
        rest = rest[used:]
        if at >= len(data):
            return walk.finish(), rest


def same(first: Columns, second: Columns) -> None:
    for name, one, other in zip(Columns._fields, first, second, strict=True):
        assert getattr(one, "dtype", int) == getattr(other, "dtype", int), name
        assert np.array_equal(one, other), name


def rows(columns: Columns) -> list[dict]:
    """Columns in plain words."""
    found = []
    for index in range(len(columns.time_ns)):
        stack = columns.stack[index]
        span = columns.stack_frame[columns.stack_start[stack] : columns.stack_start[stack + 1]]
        assert columns.stack_comm[stack] == columns.comm[index]
        cgroup = columns.cgroup[index]
        row = {name: int(getattr(columns, name)[index]) for name in Columns._fields[:5]}
        row["cgroup"] = int(columns.cgroup_id[cgroup]) % 2**64 if cgroup >= 0 else None
        row["event"] = int(columns.event[index])
        row["frames"] = [(int(columns.space[f]), int(columns.address[f])) for f in span]
        found.append(row)
    return found


@given(st.data())
def test_both_ways_read_every_layout_as_the_kernel_writes_it(data: st.DataObject):
    layouts = data.draw(cases.layouts())
    summaries = data.draw(st.lists(cases.samples(layouts), max_size=12))
    comms, spaces = data.draw(cases.rows), data.draw(cases.rows)
    stream = b"".join(
        record(9, one.mode, body(layouts[one.event], one)) + record(3, 0, b"x" * 16)
        for one in summaries
    )
    expected = [cases.row_of(layouts[one.event], one, comms, spaces) for one in summaries]
    piece = data.draw(st.sampled_from([1 << 20, 64, 700]))
    found = []
    for walk in walkers(layouts, since(comms), since(spaces)):
        offsets, consumed = walk.side(memoryview(stream))
        assert consumed == len(stream)
        assert [stream[at] for at in offsets] == [3] * len(summaries)
        columns, rest = walked(walk, stream, piece)
        assert rows(columns) == expected
        assert (columns.bad, rest) == (0, b"")
        found.append(columns)
    same(*found)


@given(st.data())
@settings(max_examples=examples(300))
def test_both_ways_agree_on_what_is_cut_off_flipped_or_junk(data: st.DataObject):
    layouts = data.draw(cases.layouts())
    summaries = data.draw(st.lists(cases.samples(layouts), min_size=1, max_size=8))
    stream = bytearray(
        b"".join(record(9, one.mode, body(layouts[one.event], one)) for one in summaries)
        + data.draw(st.binary(max_size=40))
    )
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(stream) - 1))
        stream[at] = data.draw(st.sampled_from([0, 1, 9, 255, stream[at] ^ 1]))
    stream = bytes(stream[: data.draw(st.integers(0, len(stream)))])
    comms, spaces = since(data.draw(cases.rows)), since(data.draw(cases.rows))
    numpy, compiled = (walked(walk, stream) for walk in walkers(layouts, comms, spaces))
    assert numpy[1] == compiled[1]
    same(numpy[0], compiled[0])
    sides = []
    for walk in walkers(layouts, comms, spaces):
        try:
            offsets, consumed = walk.side(memoryview(stream))
            sides.append((offsets.tolist(), consumed))
        except BadRecord as bad:
            sides.append(bad.offset)
    assert sides[0] == sides[1]


@pytest.mark.parametrize("which", [0, 1], ids=["numpy", "c"])
class TestEither:
    def walk(self, which: int, *, layouts=(PLAIN,), comms=NOBODY, spaces=NOBODY) -> Walker:
        return walkers(list(layouts), comms, spaces)[which]

    def test_stacks_frames_and_cgroups_are_numbered_as_they_appear(self, which: int):
        chains = [[cases.KERNEL_MARK, 5, 6], [cases.KERNEL_MARK, 6], [cases.KERNEL_MARK, 5, 6]]
        stream = b"".join(
            record(9, 1, body(PLAIN, Told(chain=chain, cgroup=cgroup)))
            for chain, cgroup in zip(chains, (9, 4, 9), strict=True)
        )
        columns, _ = walked(self.walk(which), stream)
        assert columns.stack.tolist() == [0, 1, 0]
        assert columns.address.tolist() == [5, 6]
        assert columns.stack_frame.tolist() == [0, 1, 1]
        assert columns.stack_start.tolist() == [0, 2, 3]
        assert columns.cgroup_id.tolist() == [9, 4]
        assert columns.cgroup.tolist() == [0, 1, 0]

    def test_a_stack_whose_marks_differ_but_not_its_frames_is_the_same(self, which: int):
        chains = [[cases.KERNEL_MARK, 5], [cases.KERNEL_MARK, 5, cases.USER_MARK]]
        stream = b"".join(record(9, 1, body(PLAIN, Told(chain=chain))) for chain in chains)
        assert walked(self.walk(which), stream)[0].stack.tolist() == [0, 0]

    def test_stacks_that_differ_by_little_are_distinguished(self, which: int):
        near = [0x401000 + step for step in range(12)]
        comms = since([(tid, 0, tid) for tid in range(12)])
        spaces = since([(pid, 0, pid) for pid in range(1, 4)])
        chains = [[address] for address in near] + [[one, two] for one in near for two in near]
        stream = b"".join(
            record(9, 2, body(PLAIN, Told(pid=pid, tid=tid, chain=chain)))
            for tid in range(12)
            for pid in range(1, 4)
            for chain in chains
        )
        columns, _ = walked(self.walk(which, comms=comms, spaces=spaces), stream)
        assert np.array_equal(columns.stack, np.arange(12 * 3 * len(chains)))

    def test_a_renamed_thread_has_other_stacks_from_then_on(self, which: int):
        comms = since([(8, 0, 0), (8, 2000, 1)])
        stream = b"".join(
            record(9, 1, body(PLAIN, Told(time=time, chain=[5]))) for time in (1999, 2000)
        )
        columns, _ = walked(self.walk(which, comms=comms), stream)
        assert columns.comm.tolist() == [0, 1]
        assert columns.stack.tolist() == [0, 1]

    def test_a_thread_without_a_name_is_identified_by_its_number(self, which: int):
        tids = (8, -1, -7, 2**31 - 1)
        stream = b"".join(record(9, 1, body(PLAIN, Told(tid=tid))) for tid in tids)
        assert walked(self.walk(which), stream)[0].comm.tolist() == [-10, -1, -1, -1]

    def test_a_chain_longer_than_its_record_is_counted_as_bad(self, which: int):
        whole = body(PLAIN, Told(chain=[5, 6]))
        lying = whole[:48] + struct.pack("=Q", 2**61) + whole[56:]
        columns, rest = walked(self.walk(which), record(9, 1, lying) + record(9, 1, whole))
        assert (columns.bad, len(columns.time_ns), rest) == (1, 1, b"")

    def test_an_unknown_id_is_counted_as_bad(self, which: int):
        both = [PLAIN._replace(ids=(1,)), PLAIN._replace(ids=(2,))]
        stream = b"".join(record(9, 1, body(PLAIN, Told(id=value))) for value in (1, 2, 3))
        columns, _ = walked(self.walk(which, layouts=both), stream)
        assert columns.event.tolist() == [0, 1]
        assert columns.bad == 1

    def test_a_record_smaller_than_its_header_stops_the_walk_and_keeps_what_was_before(
        self, which: int
    ):
        good = record(9, 1, body(PLAIN, Told()))
        walk = self.walk(which)
        with pytest.raises(BadRecord, match=f"byte {len(good)}") as caught:
            walk.samples(memoryview(good + bytes(8)))
        assert caught.value.offset == len(good)
        assert len(walk.finish().time_ns) == 1
        with pytest.raises(BadRecord):
            self.walk(which).side(memoryview(bytes(8)))

    def test_nothing_gives_empty_columns_of_the_right_kinds(self, which: int):
        walk = self.walk(which)
        assert walk.samples(memoryview(b"")) == 0
        columns = walk.finish()
        assert [len(column) for column in columns[:-1]] == [0] * 9 + [1] + [0] * 4
        assert columns.stack_start.dtype == np.int64

    def test_more_side_records_than_fit_at_once_are_all_found(self, which: int):
        stream = record(3, 0, b"") * 70_000
        offsets, consumed = self.walk(which).side(memoryview(stream))
        assert consumed == len(stream)
        assert np.array_equal(offsets, np.arange(70_000) * 8)

    def test_columns_outlive_their_walker(self, which: int):
        chance = random.Random(1)
        stream = b"".join(
            record(9, 1, body(PLAIN, Told(time=n, chain=[chance.randrange(1, 900) for _ in "abc"])))
            for n in range(3000)
        )
        walk = self.walk(which)
        columns, _ = walked(walk, stream)
        kept = columns.time_ns[10:20]
        del walk, columns
        assert kept.tolist() == list(range(10, 20))

    def test_without_events_samples_cannot_be_read_but_records_be_found(self, which: int):
        walk = self.walk(which, layouts=())
        assert walk.side(memoryview(record(3, 0, b"")))[1] == 8
        with pytest.raises(ValueError, match="no event"):
            walk.samples(memoryview(record(9, 1, b"")))


def test_events_that_keep_their_ids_at_different_places_are_refused():
    with pytest.raises(ValueError, match="events have their ids at different offsets"):
        walker([PLAIN, PLAIN._replace(sample_type=0x2001E7 | cases.IDENTIFIER)], NOBODY, NOBODY)


def test_the_engine_is_chosen_by_what_is_compiled_and_by_the_environment(monkeypatch):
    assert native.engine() == "c"
    assert isinstance(walker([PLAIN], NOBODY, NOBODY), NativeWalker)
    monkeypatch.setenv("SEXTON_ENGINE", "numpy")
    assert native.engine() == "numpy"
    assert isinstance(walker([PLAIN], NOBODY, NOBODY), NumpyWalker)


def test_a_library_of_another_walk_c_is_refused(tmp_path):
    for name in ("walk.c", "_walk.so"):
        (tmp_path / name).write_bytes((native.HERE / name).read_bytes())
    assert native.loaded(tmp_path) is not None
    other = tmp_path / "other"
    other.mkdir()
    (other / "walk.c").write_bytes((native.HERE / "walk.c").read_bytes() + b"\n")
    (other / "_walk.so").write_bytes((native.HERE / "_walk.so").read_bytes())
    assert native.loaded(other) is None
    junk = tmp_path / "junk"
    junk.mkdir()
    (junk / "walk.c").write_bytes(b"")
    (junk / "_walk.so").write_bytes(b"not a library")
    assert native.loaded(junk) is None
