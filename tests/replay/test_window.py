"""A recorded window gives what a live one gives: columns, single readings, changes, clocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.synthetic import Plan, write
from sexton.explain.diagnosis import diagnose
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.cpu import CoreTimes, SoftirqCount
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.net import NicCounter
from sexton.model.window import Batch, Columns, Wanted, Window
from sexton.replay import segment_reader, span
from sexton.replay.window import RecordedWindow
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.store.recording import Recording
from sexton.store.schema import tables
from tests.replay.test_replay import BOOT, SMALL, Batches, record, windows
from tests.support.examples import examples
from tests.support.recordings import HEADER, WALL_S, damage_table, scratch, write_open, write_sealed

TIMES = ("user_ms", "system_ms", "idle_ms")
COLUMNS: dict[type[Row], Sequence[str]] = {
    CoreTimes: TIMES,
    SoftirqCount: ("net_rx",),
    CgroupCensus: ("dying", "live"),
    NicCounter: ("value",),
}


def read_back(place: Path) -> RecordedWindow:
    recording = Recording(place)
    return RecordedWindow(recording, span.everything(recording))


def flat(pieces: Iterable[Columns]) -> tuple[list[tuple[float, float, bool]], dict[Any, float]]:
    """Every reading, and every value by its thing, column and moment."""
    readings: list[tuple[float, float, bool]] = []
    found: dict[Any, float] = {}
    for piece in pieces:
        times = zip(piece.mono, piece.wall, piece.follows, strict=True)
        readings += [(float(mono), float(wall), bool(follows)) for mono, wall, follows in times]
        for name, values in piece.values.items():
            assert values.shape == (len(piece.things), len(piece.mono))
            for thing, row in zip(piece.things, values.tolist(), strict=True):
                for mono, value in zip(piece.mono.tolist(), row, strict=True):
                    if not math.isnan(value):
                        found[thing, name, mono] = value
    return readings, found


@given(windows(), st.integers(1, 3))
@settings(max_examples=examples(25), deadline=None)
def test_all_ways_to_read_a_window_give_the_same_recorded(batches: Batches, parts: int):
    live = Window(batches)
    first, last = live.start_mono, live.end_mono
    with scratch() as place:
        record(place, live, batches, parts)
        again = read_back(place)
        for kind, names in COLUMNS.items():
            assert flat(again.columns(kind, names)) == flat(live.columns(kind, names))
            for wanted in (_odd, _none):
                there = flat(again.columns(kind, names, wanted))
                assert there == flat(live.columns(kind, names, wanted))
            assert again.latest(kind) == live.latest(kind)
            assert again.edges(kind) == live.edges(kind)
            assert again.bounds_of(kind) == live.bounds_of(kind)
            assert again.row_count(kind) == live.row_count(kind)
            assert again.batches(kind) == live.batches(kind)
            for start, end in ((first, last), (first + 1.5, last - 0.7), (last + 5, last + 9)):
                assert read_back(place).between(kind, start, end) == live.between(kind, start, end)
            for fields in (None, names):
                assert by_time(again, kind, fields) == by_time(live, kind, fields)
        for name in ("total_resets", "tx_timeout", "nothing"):
            found = again.matching(NicCounter, "counter", name)
            assert list(found) == list(live.matching(NicCounter, "counter", name))
        for moment in (first - 3, first, (first + last) / 2, last, last + 0.3):
            assert again.wall(moment) == live.wall(moment)
            assert again.mono(live.wall(moment)) == pytest.approx(live.mono(live.wall(moment)))


def by_time(window: Window, kind: type[Row], fields: Sequence[str] | None) -> list[Row]:
    return list(window.changes(kind, fields))


def _odd(key: tuple[Any, ...]) -> bool:
    return key in ((1,), ("eth0", "total_resets"))


def _none(_: tuple[Any, ...]) -> bool:
    return False


def vm(at: float, wall: float | None = None, **values: int) -> Batch[Any]:
    rows = tuple(VmCounter(name, value) for name, value in values.items())
    return Batch(at, WALL_S + at if wall is None else wall, rows)


def sealed(place: Path, sequence: int, *batches: Batch[Any], boot: str = BOOT) -> Path:
    return write_sealed(place, [{VmCounter: list(batches)}], sequence, {**HEADER, "boot_id": boot})


def readings(window: Window, wanted: Wanted | None = None) -> list[tuple[float, bool]]:
    """Moment and whether it follows, by columns; batches must say the same."""
    found, _ = flat(window.columns(VmCounter, ("value",), wanted))
    told = [(mono, follows) for mono, _, follows in found]
    assert told == [(batch.mono_s, batch.follows) for batch in window.batches(VmCounter) or ()]
    return told


def test_nothing_follows_over_a_segment_that_is_gone(tmp_path: Path):
    sealed(tmp_path, 1, vm(1, a=1), vm(2, a=2))
    sealed(tmp_path, 3, vm(5, a=5), vm(6, a=6))
    assert readings(read_back(tmp_path)) == [(1, True), (2, True), (5, False), (6, True)]


def test_nothing_follows_over_a_damaged_file(tmp_path: Path):
    sealed(tmp_path, 1, vm(1, a=1), vm(2, a=2))
    damage_table(sealed(tmp_path, 2, vm(3, a=3), vm(4, a=4)), "vm_counter")
    sealed(tmp_path, 3, vm(5, a=5), vm(6, a=6))
    window = read_back(tmp_path)
    assert readings(window) == [(1, True), (2, True), (5, False), (6, True)]
    assert any("1 damaged or foreign piece skipped" in note for note in window.notes)


def test_rows_tell_their_times_where_the_list_of_readings_is_damaged(tmp_path: Path):
    damage_table(sealed(tmp_path, 1, vm(1, a=1), vm(2), vm(3, a=3)), "reading")
    assert readings(read_back(tmp_path)) == [(1, True), (3, True)]


def test_a_recorder_that_was_stopped_for_a_minute_leaves_a_gap_inside_a_segment(tmp_path: Path):
    times = [*range(1, 30), *range(90, 120)]
    sealed(tmp_path, 1, *(vm(float(at), a=at) for at in times))
    found = readings(read_back(tmp_path))
    assert [mono for mono, follows in found if not follows] == [90]


def test_a_restarted_recorder_follows_only_where_it_was_quick(tmp_path: Path):
    sealed(tmp_path, 1, *(vm(float(at), a=at) for at in range(1, 5)))
    sealed(tmp_path, 2, *(vm(float(at), a=at) for at in range(8, 12)))
    sealed(tmp_path, 3, *(vm(float(at), a=at) for at in range(60, 64)))
    found = readings(read_back(tmp_path))
    assert [mono for mono, follows in found if not follows] == [60]


def test_a_table_that_is_read_every_two_minutes_has_no_gaps(tmp_path: Path):
    for part in range(4):
        other = [Batch(120.0 * part + at, WALL_S, ()) for at in range(120)]
        some = {VmCounter: [vm(120.0 * part, a=part)], KernelEvent: other}
        write_sealed(tmp_path, [some], part + 1)
    assert all(follows for _, follows in readings(read_back(tmp_path)))


def test_a_thing_that_comes_and_goes_is_unknown_while_it_is_away(tmp_path: Path):
    sealed(tmp_path, 1, vm(1, a=1, b=9), vm(2, a=2), vm(3), vm(4, b=12))
    sealed(tmp_path, 2, vm(5, b=13, c=1), vm(6, c=2))
    window = read_back(tmp_path)
    assert [mono for mono, _ in readings(window)] == [1, 2, 3, 4, 5, 6]
    _, found = flat(window.columns(VmCounter, ("value",)))
    assert {(key[0], mono): value for (key, _, mono), value in found.items()} == {
        ("a", 1): 1, ("a", 2): 2, ("b", 1): 9, ("b", 4): 12, ("b", 5): 13, ("c", 5): 1, ("c", 6): 2,
    }  # fmt: skip


def test_wanted_things_have_every_reading_also_those_they_missed(tmp_path: Path):
    sealed(tmp_path, 1, vm(1, a=1, b=9), vm(2, b=10), vm(3, a=3, b=11))
    times, found = flat(
        read_back(tmp_path).columns(VmCounter, ("value",), lambda key: key == ("a",))
    )
    assert [mono for mono, _, _ in times] == [1, 2, 3]
    assert {mono: value for (_, _, mono), value in found.items()} == {1: 1, 3: 3}


def test_a_few_things_of_a_large_file_are_found_by_their_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from sexton.store import sealed as store

    def small_groups(file: Any, name: str, groups: Any, how: Any) -> dict[str, Any]:
        pieces = [part for group in groups for part in _cut(group, 5)]
        return plain(file, name, pieces, how)

    plain = store.TablesFile.add
    monkeypatch.setattr(store.TablesFile, "add", small_groups)
    sealed(tmp_path, 1, *(vm(float(at), a=at, b=2 * at, c=3 * at, d=at) for at in range(8)))
    window = read_back(tmp_path)
    source = store.open_table(
        window._reader.segments[0].segment.path,
        "vm_counter",
        window._reader.segments[0].segment.manifest,
    )
    assert source is not None
    assert source.num_row_groups >= segment_reader._FEW_GROUPS
    for wanted in (_none, lambda key: key == ("c",), lambda key: key[0] in "ad"):
        _, every = flat(window.columns(VmCounter, ("value",)))
        times, found = flat(window.columns(VmCounter, ("value",), wanted))
        assert len(times) == 8
        assert found == {key: value for key, value in every.items() if wanted(key[0])}


def _cut(found: Any, rows: int) -> list[Any]:
    return [found.slice(at, rows) for at in range(0, max(found.num_rows, 1), rows)]


def test_the_segment_that_is_being_written_is_read_like_the_others(tmp_path: Path):
    sealed(tmp_path, 1, vm(1, a=1, b=5), vm(2, a=2, b=6))
    open_one = [{VmCounter: [vm(3, a=3, b=7)]}, {VmCounter: [vm(4, b=8)]}]
    write_open(tmp_path, open_one, 2)
    window = read_back(tmp_path)
    assert readings(window) == [(at, True) for at in (1, 2, 3, 4)]
    _, found = flat(window.columns(VmCounter, ("value",), lambda key: key == ("b",)))
    assert list(found.values()) == [5, 6, 7, 8]


def test_only_one_boot_is_in_a_window(tmp_path: Path):
    sealed(tmp_path, 1, vm(500, a=1), vm(501, a=2), boot="before")
    sealed(tmp_path, 2, vm(5, a=1), vm(6, a=2))
    assert readings(read_back(tmp_path)) == [(5, True), (6, True)]


def test_a_clock_that_jumped_moves_only_what_came_after_it(tmp_path: Path):
    before = [vm(float(at), a=at) for at in range(1, 5)]
    after = [vm(float(at), WALL_S + 3600 + at, a=at) for at in range(5, 9)]
    sealed(tmp_path, 1, *before, *after)
    window = read_back(tmp_path)
    assert (window.wall(4.2), window.wall(4.8)) == (WALL_S + 4.2, WALL_S + 3604.8)
    assert window.mono(WALL_S + 3606.5) == pytest.approx(6.5)
    assert window.mono(WALL_S + 2.25) == pytest.approx(2.25)
    assert (window.start, window.end) == (WALL_S + 1, WALL_S + 3608)


def test_a_part_of_a_segment_holds_the_readings_inside_only(tmp_path: Path):
    sealed(tmp_path, 1, *(vm(float(at), a=at) for at in range(1, 20)))
    recording = Recording(tmp_path)
    window = RecordedWindow(recording, span.between(recording, WALL_S + 4.5, WALL_S + 9))
    assert readings(window) == [(at, True) for at in (5, 6, 7, 8, 9)]
    assert (window.row_count(VmCounter), window.bounds_of(VmCounter)) == (5, (5, 9))
    fresh = RecordedWindow(recording, span.between(recording, WALL_S + 4.5, WALL_S + 9))
    assert [batch.mono_s for batch in fresh.between(VmCounter, 6.5, 7.5)] == [6, 7, 8]
    assert [batch.mono_s for batch in fresh.between(VmCounter, 0, 50)] == [5, 6, 7, 8, 9]
    assert fresh.latest(VmCounter) == (VmCounter("a", 9),)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(**SMALL, plant=("crash_loop", "zombie_walk", "nic_reset"), walks=2),
        Plan(**SMALL, plant=("flood",), gaps=((200, 90),), walks_at=(400.0,)),
        Plan(**SMALL, plant=("zombie_walk",), jumps=((300, -2.0),), walks_at=(100.0, 500.0)),
    ],
    ids=("causes", "gap", "clock set back"),
)
def test_a_recording_is_judged_as_the_same_rows_in_memory(tmp_path: Path, plan: Plan):
    planted = write(tmp_path, plan).planted
    window = read_back(tmp_path)
    rows = {kind: window.batches(kind) or () for kind in tables().values()}
    held = Window(rows, window.states.values(), window._providers)
    held.start, held.end = window.start, window.end
    mine, theirs = diagnosis(window), diagnosis(held)
    assert mine == theirs
    cores = {item.entities["core"] for item in planted if "core" in item.entities}
    found = next(finding for finding in mine["findings"] if finding["id"] == "saturated_core")
    assert set(found["entities"].get("core", ())) == cores


def diagnosis(window: Window) -> dict[str, Any]:
    found = diagnosis_json(replace(diagnose(window), cost=None))
    return {name: found[name] for name in ("findings", "chains", "story", "unexplained")}
