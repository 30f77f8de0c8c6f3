"""Stacks out of a recording prove what stacks taken live prove."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lab.synthetic import Plan, write
from sexton.model.rows.trace import StackCount
from sexton.replay.span import Span, between, everything
from sexton.replay.stacks import function_signals, stacks_in
from sexton.replay.window import window
from sexton.store.annex import Annex
from sexton.store.recording import Recording
from tests.support.annexes import WALK, annex, samples, with_stacks
from tests.support.cli import sexton
from tests.support.profiles import SECOND, Sample, profile_of
from tests.support.recordings import BOOT, WALL_S, damage_table, replace_table, simple, write_sealed


def spanning(start_s: float, end_s: float) -> Span:
    return Span(BOOT, (start_s, WALL_S + start_s), (end_s, WALL_S + end_s))


def test_kernel_stacks_come_counted_by_second_core_and_thread_and_idle_is_left_out(tmp_path):
    with_stacks(tmp_path / "r")
    found, notes = stacks_in(Recording(tmp_path / "r"), spanning(100.0, 110.0))
    assert notes == []
    frames = tuple(name.removeprefix("k:") for name in reversed(WALK))
    assert found.rows == tuple(
        StackCount(second, 1, 2113, 2113, "kubelet", frames, 10) for second in range(100, 104)
    )
    assert (found.mono_s, found.wall_s) == (110.0, WALL_S + 110.0)


def test_only_the_span_is_taken_wherever_its_annex_lies(tmp_path):
    place = tmp_path / "r"
    one = write_sealed(place, [simple(100.0), simple(109.0)], 1)
    write_sealed(place, [simple(110.0), simple(119.0)], 2)
    annex(one, profile_of(samples(106.0, 10)))
    recording = Recording(place)
    found, _ = stacks_in(recording, spanning(112.0, 113.5))
    assert {row.second_mono for row in found.rows} == {112, 113}
    found, _ = stacks_in(recording, spanning(117.0, 118.0))
    assert found is None


def without(name: str):
    return lambda found: found.drop_columns([name])


def column_of(name: str, values: pa.Array):
    def changed(found: pa.Table) -> pa.Table:
        rows = pa.concat_arrays([values] * found.num_rows)
        return found.set_column(found.column_names.index(name), name, rows)

    return changed


def deep(found: pa.Table) -> pa.Table:
    """Its last node is a billion levels below the one before it."""
    depths = [*found.column("depth").to_pylist()[:-1], 1 << 30]
    place = found.column_names.index("depth")
    return found.set_column(place, "depth", pa.array(depths, pa.int32()))


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("node", without("depth")),
        ("node", column_of("depth", pa.array(["x"]))),
        ("node", deep),
        ("frame", column_of("kind", pa.array([None], pa.int64()))),
        ("sample", without("node")),
        ("sample", column_of("time_us", pa.array(["x"]))),
        ("sample", column_of("node", pa.array([-1], pa.int64()))),
        ("sample", column_of("node", pa.array([1 << 40], pa.int64()))),
    ],
)
def test_stacks_that_somebody_made_up_are_reported_and_left_out(
    tmp_path: Path, table: str, change: Any
):
    """With checksums that fit. `why` failed on the whole recording, or reserved terabytes."""
    found = Annex(with_stacks(tmp_path / "r"))
    sink = pa.BufferOutputStream()
    pq.write_table(change(found.table(table)), sink, store_schema=False)
    replace_table(found.path, table, sink.getvalue().to_pybytes())
    recording = Recording(tmp_path / "r")
    assert list(function_signals(recording, everything(recording), None)) == []
    assert [found.name in problem for problem in recording.problems] == [True]


def test_of_too_many_the_busiest_seconds_are_taken_and_that_is_said(tmp_path):
    place = tmp_path / "r"
    segment = write_sealed(place, [simple(100.0), simple(160.0)])
    calm = [Sample((100 + index) * SECOND, 0, ("main", "k:vfs_read")) for index in range(50)]
    annex(segment, profile_of([*calm, *samples(120.0, 3, 30)]))
    found, (note,) = stacks_in(Recording(place), spanning(100.0, 160.0), most=80)
    assert {(row.second_mono, row.cpu) for row in found.rows} == {(120, 1), (121, 1), (122, 1)}
    assert note == "140 kernel stacks: the 90 of the busiest cores and seconds are judged"


def test_a_damaged_annex_is_named_and_the_rest_is_judged(tmp_path):
    place = tmp_path / "r"
    made = with_stacks(place, number=2)
    damage_table(made, "sample")
    recording = Recording(place)
    found, _ = stacks_in(recording, spanning(100.0, 300.0))
    assert {row.second_mono for row in found.rows} == {100, 101, 102, 103}
    assert any("sample.parquet" in problem for problem in recording.problems)


def test_stacks_that_wait_to_be_decoded_are_recorded_and_that_is_said(tmp_path):
    write_sealed(tmp_path / "r", [simple(100.0)])
    folder = tmp_path / "r" / "stacks"
    folder.mkdir(exist_ok=True)
    (folder / "perf.data.20250220050000123").write_bytes(b"PERFILE2")
    recording = Recording(tmp_path / "r")
    batch, notes = stacks_in(recording, everything(recording))
    assert batch is None
    assert "1 file of stacks recorded and not decoded yet" in notes[0]


def test_what_waits_is_said_also_beside_decoded_stacks_but_only_of_that_time(tmp_path):
    place = tmp_path / "r"
    with_stacks(place)
    folder = place / "stacks"
    folder.mkdir(exist_ok=True)
    raw = folder / "perf.data.20250220050000123"
    raw.write_bytes(b"PERFILE2")
    recording = Recording(place)
    whole = everything(recording)
    for closed_s, told in (
        (whole.end[1], 1),
        (whole.start[1] - 1, 0),  # closed before
        (whole.end[1] + 86400, 1),  # a copy that has lost its times
    ):
        os.utime(raw, (closed_s, closed_s))
        found, notes = stacks_in(recording, whole)
        assert found is not None
        assert (
            sum("1 file of stacks recorded and not decoded yet" in note for note in notes) == told
        )
        assert "sexton profile flame" in "".join(notes) or not told


def test_a_recording_without_stacks_gives_none(tmp_path):
    write_sealed(tmp_path / "r", [simple(100.0)])
    recording = Recording(tmp_path / "r")
    assert stacks_in(recording, spanning(0.0, 200.0)) == (None, [])
    assert window(recording, everything(recording)).window.latest(StackCount) is None


@pytest.fixture(scope="module")
def walked(tmp_path_factory) -> tuple[Path, float]:
    """Ten minutes of eight cores with stacks, in which kubelet walks the dead once."""
    place = tmp_path_factory.mktemp("walked") / "r"
    plan = Plan(
        cores=8, hours=0.15, processes=60, cgroups=60, units=40, queues=8, stack_hertz=97,
        stack_nodes=2000, plant=("crash_loop", "zombie_walk", "nic_reset"), walks=1,
    )  # fmt: skip
    (planted,) = write(place, plan).of("zombie_walk")
    return place, planted.start[1]


def judged(place: Path, wall_s: float) -> dict[str, str]:
    ended = sexton("diagnose", "--from", place, "--around", f"@{wall_s:.0f}", "--json")
    answer = json.loads(ended.stdout)
    links = [link for chain in answer["chains"] for link in chain["links"]]
    return {link["id"]: link["strength"] + str(link["evidence"]) for link in links}


def test_a_planted_walk_is_proven_by_its_stacks_and_likely_without(walked, tmp_path):
    place, wall_s = walked
    slow_stats_burn_core = judged(place, wall_s)["slow_stats_burn_core"]
    assert slow_stats_burn_core.startswith("proven")
    assert "walk functions in the held core's kernel samples" in slow_stats_burn_core
    shutil.copytree(place, tmp_path / "r")
    for path in (tmp_path / "r").glob("segments/*/profile-*"):
        shutil.rmtree(path)
    slow_stats_burn_core = judged(tmp_path / "r", wall_s)["slow_stats_burn_core"]
    assert slow_stats_burn_core.startswith("likely")
    assert "kernel samples" not in slow_stats_burn_core


def test_the_window_is_no_longer_for_its_stacks(walked):
    place, wall_s = walked
    recording = Recording(place)
    span = between(recording, wall_s - 60, wall_s + 60)
    found = window(recording, span).window
    assert (found.start, found.end) == pytest.approx((span.start[1], span.end[1]), abs=1.5)
    rows = found.latest(StackCount)
    assert rows
    held = [row for row in rows if row.comm == "kubelet"]
    assert held
    assert sum(row.samples for row in held) > 5 * 90
    assert len({row.cpu for row in held}) == 1
