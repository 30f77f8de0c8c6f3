from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.synthetic import write
from sexton.detect.detectors.cpu.saturated_core import KERNEL_SHARE
from sexton.detect.registry import applied, key_of
from sexton.errors import CommandError, StoreError
from sexton.explorer.tiles.registry import all_lanes
from sexton.explorer.tiles.view import View
from sexton.model.lane import COLUMNS, TOP
from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import NetDevice, Nic
from sexton.model.rows.recorder import Alarm, Mark
from sexton.model.rows.unit import Unit
from sexton.model.settings import Changed, Settings
from sexton.model.window import Batch
from sexton.store.layout import prepare
from tests.support.recordings import (
    BOOT,
    HEADER,
    HOSTILE,
    WALL_S,
    cores,
    damage_table,
    marks,
    write_open,
    write_sealed,
)
from tests.support.synthetic import small

Fields = dict[str, int | str]
OTHER = {**HEADER, "boot_id": BOOT.replace("1", "2")}


def at(wall_s: float, mono_s: float, *rows: Row) -> Batch[Any]:
    return Batch(mono_s, wall_s, rows)


def held(mono_s: float, share: float, number: int = 1, wall_s: float | None = None) -> Batch[Any]:
    """Cores that were in the kernel for so much of the time since the boot, and idle else."""
    busy, idle = round(mono_s * 1000 * share), round(mono_s * 1000 * (1 - share))
    rows = tuple(CoreTimes(cpu, 0, 0, busy, idle, 0, 0, 0, 0) for cpu in range(number))
    return Batch(mono_s, WALL_S + mono_s if wall_s is None else wall_s, rows)


def system(view: View, level: int = 0, row: int = 0) -> dict[int, float]:
    """A core's system time in percent, by the column's number since the recording's epoch."""
    first = floor(WALL_S) >> level
    tile = first // COLUMNS - 1
    strip = view.strip("cores", level, tile, 4)
    plane = strip.planes["peak"][1, row].astype(float) / 2
    return {
        tile * COLUMNS + column - first: float(value)
        for column, value in enumerate(plane.tolist())
        if value != 127.5
    }


def flush(batches: Sequence[Batch[Any]]) -> list[dict[type[Row], list[Batch[Any]]]]:
    return [{CoreTimes: list(batches)}]


def test_a_gap_is_unknown_and_listed(tmp_path: Path):
    write_sealed(tmp_path, flush([held(second, 0.5) for second in range(10, 20)]), 1)
    write_sealed(tmp_path, flush([held(second, 0.5) for second in range(60, 70)]), 2)
    view = View.open(tmp_path)
    assert sorted(system(view)) == [*range(10, 19), *range(60, 69)]
    assert {*system(view).values()} == {50.0}
    assert view.gaps() == [(WALL_S + 19, WALL_S + 60)]
    assert view.span == (WALL_S + 10, WALL_S + 69)


def test_counters_of_another_boot_are_not_compared_and_the_boot_is_marked(tmp_path: Path):
    write_sealed(tmp_path, flush([held(second, 1.0) for second in range(100, 110)]), 1)
    after = [held(second, 0.1, wall_s=WALL_S + 120 + second) for second in range(3, 9)]
    write_sealed(tmp_path, flush(after), 2, OTHER)
    view = View.open(tmp_path)
    assert sorted(system(view)) == [*range(100, 109), *range(123, 128)]
    assert system(view)[124] == 10.0
    assert view.gaps() == [(WALL_S + 109, WALL_S + 123)]
    assert view.span is not None
    assert [mark.kind for mark in view.marks(WALL_S, WALL_S + 500)] == ["boot"]
    boot = view.found("boot", WALL_S)
    assert boot is not None
    assert boot.time == WALL_S + 123


def test_a_clock_set_forward_makes_a_gap_and_no_step_of_hours(tmp_path: Path):
    before = [held(second, 0.5) for second in range(10, 20)]
    after = [held(second, 0.5, wall_s=WALL_S + 500 + second) for second in range(20, 30)]
    write_sealed(tmp_path, flush([*before, *after]), 1)
    view = View.open(tmp_path)
    assert sorted(system(view)) == [*range(10, 19), *range(519, 529)]
    assert view.gaps() == [(WALL_S + 19, WALL_S + 520)]


def test_where_a_clock_was_set_back_the_later_is_shown(tmp_path: Path):
    before = [held(second, 0.25) for second in range(10, 20)]
    busy = [
        CoreTimes(0, 0, 0, 5000 + 1000 * (second - 20), 0, 0, 0, 0, 0) for second in range(20, 25)
    ]
    after = [
        at(WALL_S + second - 10, second, row)
        for second, row in zip(range(20, 25), busy, strict=True)
    ]
    write_sealed(tmp_path, flush(before), 1)
    write_sealed(tmp_path, flush(after), 2)
    shown = system(View.open(tmp_path))
    assert sorted(shown) == [9, *range(10, 19)]
    assert [shown[second] for second in (11, 12, 15, 16)] == [100.0, 100.0, 25.0, 25.0]


def test_a_clock_of_another_century_takes_neither_time_nor_memory(tmp_path: Path):
    write_sealed(tmp_path, flush([held(second, 0.5) for second in (10, 11, 12)]), 1)
    later = [held(second, 0.5, wall_s=WALL_S * 3 + second) for second in (13, 14, 15)]
    write_sealed(tmp_path, flush(later), 2)
    view = View.open(tmp_path)
    view.warm()
    assert len(system(view)) == 2
    assert view.bytes < 5_000_000


@pytest.mark.parametrize("number", [1, 192])
def test_any_number_of_cores_is_drawn_in_order(tmp_path: Path, number: int):
    rows = [held(second, 0.5, number) for second in range(10, 15)]
    write_sealed(tmp_path, flush([at(b.wall_s, b.mono_s, *reversed(b.rows)) for b in rows]), 1)
    view = View.open(tmp_path)
    strip = view.strip("cores", 0, floor(WALL_S) // COLUMNS, 1)
    assert strip.names == tuple(f"core {index}" for index in range(number))
    assert strip.planes["mean"].shape == (4, number, COLUMNS)
    assert strip.planes["mean"].flags["C_CONTIGUOUS"]


def test_a_core_that_came_later_is_absent_before(tmp_path: Path):
    first = [held(second, 0.5, 1) for second in range(10, 15)]
    write_sealed(tmp_path, flush([*first, *(held(s, 0.5, 2) for s in range(15, 20))]), 1)
    view = View.open(tmp_path)
    assert sorted(system(view, row=0)) == list(range(10, 19))
    assert sorted(system(view, row=1)) == list(range(15, 19))


def test_an_empty_recording_is_a_view_of_nothing(tmp_path: Path):
    prepare(tmp_path)
    view = View.open(tmp_path)
    view.warm()
    document = view.about()
    assert (document["start"], document["end"], document["gaps"]) == (None, None, [])
    assert [lane["id"] for lane in document["lanes"]] == ["events"]
    assert view.marks(0, 1e10) == []
    assert view.found("spike", 0.0) is None
    assert view.strip("cores", 3, 0, 1).names == ()
    assert view.table("cores", 0, 100).rows == ()
    with pytest.raises(StoreError):
        view.diagnosis(0, 100)
    with pytest.raises(StoreError):
        view.flame(0, 100)


def test_what_is_no_recording_is_said(tmp_path: Path):
    with pytest.raises(StoreError, match="neither segments/ nor open/"):
        View.open(tmp_path)


@pytest.mark.parametrize(
    ("lane", "level", "count"),
    [("cores", -1, 1), ("cores", TOP + 1, 1), ("cores", 0, 0), ("cores", 0, 9), ("no", 0, 1)],
)
def test_what_there_is_none_of_is_refused(tmp_path: Path, lane: str, level: int, count: int):
    write_sealed(tmp_path, flush([cores(10.0), cores(11.0)]), 1)
    with pytest.raises(CommandError):
        View.open(tmp_path).strip(lane, level, 0, count)


def test_a_page_learns_the_limit_of_a_held_core_that_is_in_force(tmp_path: Path):
    write_sealed(tmp_path, flush([cores(10.0), cores(11.0)]), 1)

    def limits() -> dict[str, float | None]:
        return {lane["id"]: lane["limit"] for lane in View.open(tmp_path).about()["lanes"]}

    assert limits()["cores"] == KERNEL_SHARE.default
    changed = Changed(("saturated_core",), key_of(KERNEL_SHARE), 70, KERNEL_SHARE.default, "%")
    with applied(Settings(thresholds=(changed,))):
        assert limits() == {"events": None, "average": None, "cores": 70}


def test_a_damaged_table_is_reported_and_the_rest_is_drawn(tmp_path: Path):
    for sequence, start in enumerate((10, 20, 30), start=1):
        batches = [held(second, 0.5) for second in range(start, start + 10)]
        place = write_sealed(tmp_path, flush(batches), sequence)
        if sequence == 2:
            damage_table(place, "core_times")
    view = View.open(tmp_path)
    # The step over what is missing is short enough, but readings were lost in it: as in the table
    # and in the verdict it is unknown.
    assert sorted(system(view)) == [*range(10, 19), *range(30, 39)]
    assert any("core_times.parquet" in problem for problem in view.problems)


def test_a_live_recording_grows_second_by_second_and_over_the_seal(tmp_path: Path):
    write_sealed(tmp_path, flush([held(second, 0.5) for second in range(10, 14)]), 1)
    view = View.open(tmp_path)
    assert sorted(system(view)) == [10, 11, 12]
    assert not view.refresh()
    growing = [held(second, 0.5) for second in range(14, 17)]
    place = write_open(tmp_path, flush(growing), 2)
    assert view.refresh()
    assert sorted(system(view)) == list(range(10, 16))
    for path in place.iterdir():
        path.unlink()
    place.rmdir()
    more = [*growing, *(held(second, 1.0) for second in range(17, 20))]
    write_sealed(tmp_path, [{CoreTimes: more, Mark: [marks(1, 18.0)]}], 2)
    assert view.refresh()
    assert sorted(system(view)) == list(range(10, 19))
    assert system(view, level=2)[2] >= 50.0
    assert [mark.kind for mark in view.marks(WALL_S, WALL_S + 100)] == ["mark"]
    assert view.span == (WALL_S + 10, WALL_S + 19)
    assert not view.refresh()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_slow_source_is_drawn_alike_live_and_afterwards(tmp_path: Path, sealed: bool):
    """The budget may let a source be read every 20 s: one new reading at a time tells nothing of
    its usual step. Each reading is in a segment that grows, or in a sealed one of its own."""
    batches = [held(second, 0.5) for second in range(10, 200, 20)]
    view = None
    for at, batch in enumerate(batches):
        if sealed:
            beside = [Batch(batch.mono_s - back, batch.wall_s - back, ()) for back in (10, 0)]
            write_sealed(tmp_path, [{CoreTimes: [batch], Mark: beside}], at + 1)
        else:
            shutil.rmtree(tmp_path / "open", ignore_errors=True)
            write_open(tmp_path, flush(batches[: at + 1]), 1)
        view = view or View.open(tmp_path)
        view.refresh()
        system(view)
    assert view is not None
    expected = system(View.open(tmp_path))
    assert system(view) == expected
    assert expected == dict.fromkeys(range(10, 190), 50.0)
    table = view.table("average", WALL_S, WALL_S + 190)
    assert [row[2] for row in table.rows] == ["50"] * 180


def test_a_node_that_was_started_again_while_it_is_looked_at_leaves_no_holes(tmp_path: Path):
    write_sealed(tmp_path, flush([held(second, 0.5) for second in range(100, 105)]), 1)
    died = write_open(tmp_path, flush([held(second, 0.5) for second in range(105, 108)]), 2)
    view = View.open(tmp_path)
    assert sorted(system(view)) == list(range(100, 107))
    expected = list(range(100, 107))
    for sequence, start in ((3, 5), (4, 9), (5, 13)):
        batches = [
            held(index, 0.5, wall_s=WALL_S + 200 + index) for index in range(start, start + 4)
        ]
        write = write_open if sequence == 5 else write_sealed
        write(tmp_path, flush(batches), sequence, OTHER)
        assert view.refresh()
        expected = [*range(100, 107), *range(205, 200 + start + 3)]
        assert sorted(system(view)) == expected
    assert died.exists()
    assert system(view)[208] == 50.0
    assert sorted(system(View.open(tmp_path))) == expected


def test_many_segments_that_are_read_ahead_are_the_same_as_one(tmp_path: Path):
    for sequence in range(20):
        batches = [held(10 + 3 * sequence + at, 0.5) for at in range(3)]
        write_sealed(tmp_path, flush(batches), sequence + 1)
    view = View.open(tmp_path)
    assert sorted(system(view)) == list(range(10, 69))
    assert {*system(view).values()} == {50.0}


def test_what_retention_deleted_is_no_longer_shown(tmp_path: Path):
    old = write_sealed(tmp_path, flush([held(second, 0.5) for second in range(10, 20)]), 1)
    write_sealed(tmp_path, flush([held(second, 0.5) for second in range(400, 410)]), 2)
    view = View.open(tmp_path)
    assert 10 in system(view)
    for path in old.iterdir():
        path.unlink()
    old.rmdir()
    assert view.refresh()
    assert min(system(view)) == 400
    assert view.span == (WALL_S + 400, WALL_S + 409)


def test_names_from_the_kernel_are_shown_and_disturb_nothing(tmp_path: Path):
    batches: dict[type[Row], list[Batch[Any]]] = {Unit: [], NetDevice: [], Nic: []}
    names = [item for item in HOSTILE if item]
    for step, mono in enumerate((10.0, 20.0, 30.0)):
        batches[Unit].append(
            at(
                WALL_S + mono,
                mono,
                *(unit(name, (index + 1) * step) for index, name in enumerate(names)),
            )
        )
        batches[NetDevice].append(
            at(
                WALL_S + mono,
                mono,
                *(NetDevice(name, step, 0, 0, step, 0, 0, 0, 0) for name in names),
            )
        )
    event = KernelEvent("p", "nic_reset", "\x1b[2J<script>", None, WALL_S + 15, {"nic": "\u202e"})
    write_sealed(tmp_path, [{**batches, KernelEvent: [at(WALL_S + 15, 15.0, event)]}], 1)
    view = View.open(tmp_path)
    view.warm()
    shown = [name for lane in view.lanes() for name in lane.series]
    assert any("<script>" in name for name in shown)
    assert all(name.isprintable() for name in shown)
    (mark,) = view.marks(WALL_S, WALL_S + 100)
    assert (mark.text, mark.entity) == ("\\x1b[2J<script>", "\\u202e")
    strip = view.strip("restarts", 0, floor(WALL_S) // COLUMNS, 1)
    assert len(strip.names) == 6
    assert np.nanmax(strip.planes["peak"]) == pytest.approx(len(names) / 10 * 60)


def unit(name: str, restarts: int) -> Unit:
    return Unit(name, "loaded", "active", "running", None, restarts, None, None, None, None, None,
                None, None, None, "systemd")  # fmt: skip


def test_a_line_that_a_second_recorder_reads_again_was_said_once(tmp_path: Path):
    lines = [
        KernelEvent("p", "nic_reset", "reset", mono * 1_000_000, WALL_S + mono) for mono in (5, 30)
    ]
    write_sealed(tmp_path, [{KernelEvent: [at(WALL_S + 31, 31.0, *lines)]}], 1)
    write_sealed(tmp_path, [{KernelEvent: [at(WALL_S + 41, 41.0, *lines)]}], 2)
    view = View.open(tmp_path)
    assert [mark.time for mark in view.marks(WALL_S, WALL_S + 99)] == [WALL_S + 5, WALL_S + 30]


def test_an_alarm_that_an_overloaded_recorder_raised_late_is_no_second_line(tmp_path: Path):
    """In starved_nic-6.1-v2 a transmit watchdog was listed again, 20 s later and as a reset."""
    text = "eth1: transmit queue 0 timed out 6148 ms"
    line = KernelEvent("p", "nic_watchdog", text, 5_000_000, WALL_S + 5)
    alarms = [
        Alarm("nic_reset", "eth1", text, 0.0, 99.0),
        Alarm("held_core", "core 1", "", 0.0, 99.0),
    ]
    write_sealed(
        tmp_path,
        [{KernelEvent: [at(WALL_S + 18, 18.0, line)], Alarm: [at(WALL_S + 25, 25.0, *alarms)]}],
        1,
    )
    found = View.open(tmp_path).marks(WALL_S, WALL_S + 99)
    assert [(mark.kind, mark.time - WALL_S) for mark in found] == [
        ("nic_watchdog", pytest.approx(5)),
        ("held_core", pytest.approx(25)),
    ]


def test_a_line_is_as_severe_as_its_pattern_says(tmp_path: Path):
    """The catalogue's, or the one that an owner's pattern stored with it."""
    said: tuple[tuple[str, str, Fields], ...] = (
        ("soft-lockup", "critical", {}),
        ("ext4-read-only", "critical", {"phase": "read-only"}),
        ("ext4-mounted", "info", {"phase": "done"}),
        ("oom-killed", "warning", {}),
        ("of another version", "warning", {}),
        ("an owner's", "critical", {"severity": "critical"}),
        ("soft-lockup", "info", {"severity": "info"}),
        ("invalid", "warning", {"severity": "<b>"}),
    )
    lines = [
        KernelEvent(pattern, "flagged", f"line {at}", 20_000_000, None, fields)
        for at, (pattern, _, fields) in enumerate(said)
    ]
    write_sealed(tmp_path, [{KernelEvent: [at(WALL_S + 21, 21.0, *lines)]}], 1)
    view = View.open(tmp_path)
    given = {mark.text: mark.severity for mark in view.marks(WALL_S, WALL_S + 99)}
    assert given == {f"line {at}": severity for at, (_, severity, _) in enumerate(said)}
    kept = {mark.text for mark in view.marks(WALL_S, WALL_S + 99, most=3)}
    assert kept == {"line 0", "line 1", "line 5"}


def test_of_too_many_marks_the_gravest_are_given(tmp_path: Path):
    event = KernelEvent("soft-lockup", "soft_lockup", "stuck", 20_500_000, None)
    write_sealed(
        tmp_path, [{Mark: [marks(20, 20.0)], KernelEvent: [at(WALL_S + 21, 21.0, event)]}], 1
    )
    view = View.open(tmp_path)
    given = view.marks(WALL_S, WALL_S + 99, most=3)
    assert [mark.kind for mark in given].count("soft_lockup") == 1
    assert len(given) == 3
    assert view.marks_between(WALL_S, WALL_S + 99) == 21


def test_threads_that_ask_at_once_get_the_same(tmp_path: Path):
    write(tmp_path, small("zombie_walk"))
    view, alone = View.open(tmp_path), View.open(tmp_path)
    assert alone.span is not None
    first = floor(alone.span[0]) // COLUMNS
    expected = alone.strip("cores", 0, first, 2).planes["peak"]
    found: list[bool] = []

    def ask() -> None:
        got = view.strip("cores", 0, first, 2).planes["peak"]
        found.append(bool((got == expected).all()))

    threads = [threading.Thread(target=item) for item in (view.warm, *[ask] * 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 6


def test_lanes_say_what_they_are_and_come_in_their_order():
    lanes = all_lanes()
    assert [lane.id for lane in lanes][:3] == ["events", "average", "cores"]
    assert len({lane.order for lane in lanes}) == len(lanes)
    for lane in lanes:
        assert lane.title
        assert len(lane.about) > 40
        assert lane.of in {other.id for other in lanes if other.build is not None}


def test_a_made_up_node_shows_what_was_planted(tmp_path: Path):
    plan = small("crash_loop", "zombie_walk", "nic_reset", walks_at=(100.0, 230.0))
    write(tmp_path, plan)
    view = View.open(tmp_path)
    view.warm()
    assert view.span is not None
    spikes = []
    moment = view.span[0]
    while (found := view.found("spike", moment)) is not None:
        spikes.append(found.time - plan.start)
        moment = found.time
    assert spikes == pytest.approx([100.0, 230.0], abs=1.5)
    restarts = view.strip("restarts", TOP, floor(view.span[0]) >> TOP >> 8, 1)
    assert restarts.names[0] == "ecs.service"
    first, second = (view.found("reset", plan.start + after) for after in (0, 200))
    assert first is not None
    assert second is not None
    assert 5 < first.time - plan.start - 100 < 15
