"""Profiles in a recording: read back as they were sampled, and no more is read than is needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.errors import StoreError
from sexton.model.profile import Facts, Heat, Profile
from sexton.profile import recorded
from sexton.profile.heat import heat_of
from sexton.profile.recorded import (
    RecordedPiece,
    check_annex,
    ends_of,
    read_seconds,
    recorded_pieces,
)
from sexton.store.annex import Annex
from sexton.store.verify import Checks, verify
from tests.support.annexes import annex, samples, with_stacks
from tests.support.cli import sexton
from tests.support.examples import examples
from tests.support.profiles import SECOND, Sample, profile_of
from tests.support.recordings import (
    HOSTILE,
    WALL_S,
    damage_table,
    manifest_of,
    replace_table,
    resign,
    scratch,
    simple,
    write_sealed,
)

NAMES = st.sampled_from([*HOSTILE, "main", "k:vfs_read", "k:do_idle", "?:x"])
SAMPLES = st.builds(
    Sample,
    st.integers(0, 40 * SECOND),
    st.integers(-1, 3),
    st.lists(NAMES, max_size=5).map(tuple),
    st.sampled_from(["swapper", "app", "\udcff", "a b"]),
    st.integers(-1, 2**22),
    st.sampled_from(["", "/a", "/b\udcfe"]),
    st.sampled_from(["cpu-clock", "cycles"]),
    st.integers(1, 1000),
)


def told(profile: Profile) -> list[tuple[object, ...]]:
    """Every sample in full, its time in whole microseconds."""
    frames = profile.tree.frames
    return [
        (
            int(profile.time_ns[at]) // 1000,
            int(profile.cpu[at]),
            profile.threads[profile.thread[at]],
            profile.cgroups[profile.cgroup[at]] if profile.cgroup[at] >= 0 else None,
            profile.events[profile.event[at]].name,
            tuple(
                (frames.names[number], frames.modules[number], int(frames.kinds[number]))
                for number in profile.tree.path(int(profile.node[at]))
            ),
            1 if profile.weight is None else int(profile.weight[at]),
        )
        for at in range(len(profile))
    ]


def same_heat(one: Heat, other: Heat) -> bool:
    names = ("second", "cpu", "samples", "busy", "kernel", "cells")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def sealed(place: Path, profile: Profile) -> RecordedPiece:
    segment = write_sealed(place, [simple(0.0), simple(99.0)])
    annex(segment, profile)
    (piece,) = recorded_pieces(place)
    return piece


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(SAMPLES, min_size=1, max_size=40), st.booleans())
def test_whatever_was_sampled_is_read_back_as_it_was(found, weighted):
    profile = profile_of(found, weighted=weighted)
    with scratch() as place:
        piece = sealed(place / "r", profile)
        again = piece.profile()
        assert told(again) == told(profile)
        assert same_heat(piece.heat(), heat_of(profile))
        assert np.array_equal(again.tree.end, profile.tree.end)
        assert (piece.start_ns, piece.end_ns) == (
            int(profile.time_ns[0]) // 1000 * 1000,
            int(profile.time_ns[-1]) // 1000 * 1000,
        )
        assert piece.samples == sum(item.weight if weighted else 1 for item in found)


def test_a_range_is_what_lies_in_it_and_other_row_groups_are_not_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "_GROUP", 7)
    profile = profile_of(samples(100.0, 10))
    piece = sealed(tmp_path / "r", profile)
    asked = []
    opened = Annex.opened

    def watched(self, name):
        source = opened(self, name)
        read = source.read
        if name == "sample":
            source.read = lambda groups: asked.append(groups) or read(groups=groups)
        return source

    monkeypatch.setattr(Annex, "opened", watched)
    every = told(piece.profile())
    for start_s, end_s in ((0, 200), (103.05, 104.05), (103, 103), (109.9, None), (None, 100.001)):
        start = None if start_s is None else round(start_s * SECOND)
        end = None if end_s is None else round(end_s * SECOND)
        part = piece.profile(start, end)
        expected = [
            item
            for item in every
            if (start is None or item[0] * 1000 >= start) and (end is None or item[0] * 1000 < end)
        ]
        assert told(part) == expected
    assert len(asked[0]) == -(-len(profile) // 7)
    assert 0 < len(asked[2]) < 6
    assert asked[3] == [] or len(asked[3]) <= 1


def test_heat_is_read_without_a_sample_or_a_stack_and_seconds_without_cells(tmp_path):
    profile = profile_of(samples())
    piece = sealed(tmp_path / "r", profile)
    for name in ("sample", "node", "frame", "thread", "cgroup", "who"):
        damage_table(piece.path, name)
    assert same_heat(piece.heat(), heat_of(profile))
    damage_table(piece.path, "heat_cell")
    seconds = read_seconds(piece.annex)
    assert seconds.busy.tolist() == heat_of(profile).busy.tolist()
    assert seconds.cells.shape == (len(seconds), 0)
    with pytest.raises(StoreError, match="heat_cell"):
        piece.heat()
    with pytest.raises(StoreError):
        piece.profile()


def test_cells_past_a_byte_are_kept(tmp_path):
    profile = profile_of([Sample(SECOND, 0, ("main",), weight=40_000)] * 2, weighted=True)
    assert sealed(tmp_path / "r", profile).heat().cells.max() == 65_535


def test_a_recordings_pieces_are_in_order_each_with_its_clock(tmp_path):
    with_stacks(tmp_path / "r", number=3)
    facts = Facts()
    pieces = recorded_pieces(tmp_path / "r", facts)
    assert [piece.start_ns // SECOND for piece in pieces] == [100, 200, 300]
    assert pieces[0].clock.wall_s(pieces[0].start_ns) == pytest.approx(WALL_S + 100)
    assert facts.problems == []
    assert facts.format == "recording"


def test_of_several_boots_the_last_is_shown_and_a_problem_says_so(tmp_path):
    place = tmp_path / "r"
    with_stacks(place)
    other = write_sealed(place, [simple(10.0)], 2, {"boot_id": "later", "host": "x"})
    annex(other, profile_of(samples(10.0)), boot_id="later")
    facts = Facts()
    (piece,) = recorded_pieces(place, facts)
    assert piece.start_ns == 10 * SECOND
    assert facts.problems == ["stacks of 2 boots: only the last is shown"]


def test_a_damaged_annex_is_named_and_the_others_are_read(tmp_path):
    place = tmp_path / "r"
    made = with_stacks(place, number=2)
    (made / "manifest.json").write_bytes(b"00000000\n{}")
    facts = Facts()
    (piece,) = recorded_pieces(place, facts)
    assert len(piece.profile()) == 80
    assert made.name in facts.problems[0]


def test_a_recording_without_stacks_has_no_pieces(tmp_path):
    write_sealed(tmp_path / "r", [simple(1.0)])
    assert recorded_pieces(tmp_path / "r") == []


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(0, 6), max_size=60))
def test_where_nodes_end_follows_from_their_depths(steps):
    depth = [0]
    for step in steps:
        depth.append(max(1, min(step, depth[-1] + 1)))
    expected = [
        next((at for at in range(here + 1, len(depth)) if depth[at] <= depth[here]), len(depth))
        for here in range(len(depth))
    ]
    assert ends_of(np.array(depth, np.int32)).tolist() == expected


#: Of the samples of `sealed`: a table of an annex, one of its columns, and values that are invalid.
INVALID = [
    ("node", "depth", [0, 3, 2]),
    ("node", "depth", [0, -1, 2]),
    ("node", "depth", [0, 0, 1]),
    ("node", "frame", [0, 1, 99]),
    ("frame", "kind", [0, 1, 9]),
    ("frame", "name", ["", None, "x"]),
    ("thread", "tid", ["7"]),
    ("sample", "node", [2, -1]),
    ("sample", "who", [-1, 0]),
    ("sample", "cpu", [0, 1 << 30]),
    ("sample", "cpu", [0, None]),
    ("sample", "time_us", [10_500_000, 10_000_000]),
    ("sample", "time_us", [10_000_000, 1 << 62]),
    ("heat", "second", [float("nan")]),
    ("heat", "second", [1 << 62]),
    ("heat", "busy", [-1]),
]


@pytest.mark.parametrize(("name", "column", "values"), INVALID)
def test_an_annex_with_values_that_cannot_be_is_invalid_for_readers_and_for_verify(
    tmp_path, name, column, values
):
    profile = profile_of(
        [Sample(10 * SECOND, 0, ("main",)), Sample(10 * SECOND + 500, 0, ("main",))]
    )
    piece = sealed(tmp_path, profile)
    found = piece.annex.table(name)
    assert found.num_rows == len(values)
    assert verify(tmp_path, checks=Checks(check_annex)).troubles == []
    changed = found.set_column(found.column_names.index(column), column, pa.array(values))
    sink = pa.BufferOutputStream()
    pq.write_table(changed, sink, store_schema=False)
    replace_table(piece.path, name, sink.getvalue().to_pybytes())
    (piece,) = recorded_pieces(tmp_path)
    with pytest.raises(StoreError, match=piece.annex.name):
        check_annex(piece.annex)
    (trouble,) = verify(tmp_path, checks=Checks(check_annex)).troubles
    assert trouble.place.startswith(f"segments/{piece.path.parent.name}/{piece.annex.name}")
    ended = sexton("recording", "verify", tmp_path)
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.parametrize("events", [3, [["x"]], [["x", "often", 1]], [["x", -1, None]]])
def test_events_of_an_annex_that_are_no_events_are_invalid(tmp_path, events):
    profile = profile_of([Sample(10 * SECOND, 0, ("main",))])
    piece = sealed(tmp_path, profile)
    told = manifest_of(piece.path)
    told["profile"]["events"] = events
    resign(piece.path, told)
    (piece,) = recorded_pieces(tmp_path)
    with pytest.raises(StoreError, match="cannot be understood"):
        check_annex(piece.annex)
