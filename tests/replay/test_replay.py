"""A recording read back: the same answer as live, over any part of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.detect.kernel_log import reach
from sexton.errors import StoreError
from sexton.explain.diagnosis import diagnose
from sexton.host.host import open_host
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, WalkCost
from sexton.model.rows.cpu import CoreTimes, SoftirqCount
from sexton.model.rows.event import KernelEvent, KernelLog
from sexton.model.rows.net import Nic, NicCounter, NicQueue
from sexton.model.rows.node import Node
from sexton.model.window import Batch, SourceState, Window
from sexton.record.sampler import Sampler
from sexton.replay import span
from sexton.replay import window as replay
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.store.journal import OpenSegment
from sexton.store.layout import prepare, segment_name
from sexton.store.recording import Recording
from sexton.store.schema import tables
from sexton.store.sealed import seal
from tests.support.examples import examples
from tests.support.recordings import (
    BOOT,
    HEADER,
    WALL_S,
    cores,
    damage_table,
    scratch,
    simple,
    write_open,
    write_sealed,
)

Batches = dict[type[Row], list[Batch[Any]]]


WANTED = ("node", "nics", "window", "findings", "chains", "story", "contests", "coincidences",
          "unexplained", "against", "plan")  # fmt: skip


def findings(window: Window) -> str:
    return json.dumps(diagnosis_json(diagnose(window))["findings"], indent=1)


def answer(window: Window) -> str:
    document = diagnosis_json(diagnose(window))
    return json.dumps({name: document[name] for name in WANTED}, indent=1)


def read_back(directory: Path) -> replay.Replay:
    recording = Recording(directory)
    return replay.window(recording, span.everything(recording))


def cut(batches: Batches, start: float, end: float) -> Batches:
    """Readings from `start` up to `end`, which belongs to the next part."""
    return {
        kind: [item for item in items if start <= item.mono_s < end]
        for kind, items in batches.items()
    }


def record(directory: Path, window: Window, batches: Batches, parts: int) -> None:
    """Write these readings in several flushes; all parts but the last are sealed."""
    prepare(directory)
    providers = {name: window.why_missing(kind).id for name, kind in tables().items()}
    edge = max(item.mono_s for items in batches.values() for item in items) + 1.0
    first = min(item.mono_s for items in batches.values() for item in items)
    step = (edge - first) / parts
    sequence = 0
    for number in range(parts):
        start = first + number * step
        end = edge + 1 if number == parts - 1 else start + step
        if not any(cut(batches, start, end).values()):
            continue
        sequence += 1
        place = directory / "open" / segment_name(sequence, WALL_S).text
        opened = OpenSegment(place, {**HEADER, "providers": providers})
        middle = (start + end) / 2
        for piece in (cut(batches, start, middle), cut(batches, middle, end)):
            opened.flush({kind: items for kind, items in piece.items() if items},
                         tuple(window.states.values()))  # fmt: skip
        opened.close()
        if number < parts - 1:
            whole, problems = seal(place, directory / "segments")
            assert (whole is not None, problems) == (True, [])


def test_a_live_run_and_its_recording_give_the_same_findings_byte_for_byte(tmp_path: Path):
    with Sampler(open_host("/")) as sampler:
        live = sampler.run(3.0)
    batches: Batches = {
        kind: list(items) for kind in tables().values() if (items := live.batches(kind))
    }
    assert len(batches[CoreTimes]) >= 3
    record(tmp_path, live, batches, parts=3)
    again = read_back(tmp_path)
    assert again.notes == ()
    assert again.window.batches(CoreTimes) == live.batches(CoreTimes)
    assert answer(again.window) == answer(live)


@st.composite
def windows(draw: st.DrawFn) -> Batches:
    """Some seconds of a small node, on which anything may happen."""
    length = draw(st.integers(2, 9))
    times = [1000.0 + index + draw(st.floats(0, 0.2)) for index in range(length)]
    jump = draw(st.sampled_from((0.0, 0.0, -7200.0, 3600.0)))
    walls = [WALL_S + at + (jump if index > length // 2 else 0) for index, at in enumerate(times)]
    counters = {cpu: [draw(st.integers(0, 10**9)) for _ in range(6)] for cpu in range(3)}
    made: Batches = {kind: [] for kind in (CoreTimes, SoftirqCount, CgroupCensus, KernelEvent)}
    made |= {kind: [] for kind in (KernelLog, NicCounter, CgroupEvent)}
    made[Nic] = [Batch(times[0], walls[0], (Nic("eth0", True, "ena", "2", "0000:05", "up"),))]
    made[NicQueue] = [Batch(times[0], walls[0], (NicQueue("eth0", 0, "rxtx", 30, "x", (1,)),))]
    small = st.integers(0, 3)
    for index, (at, wall) in enumerate(zip(times, walls, strict=True)):
        for cpu, values in counters.items():
            grown = draw(st.sampled_from(((10, 5), (20, 985), (0, 1100), (-5, 3), (0, 0))))
            counters[cpu] = [values[0] + grown[0], *values[1:2], values[2] + grown[1], *values[3:]]
        rows = tuple(
            CoreTimes(cpu, *values, 0, 0)
            for cpu, values in counters.items()
            if draw(st.sampled_from((True, True, True, False)))
        )
        made[CoreTimes].append(Batch(at, wall, rows))
        runs = tuple(SoftirqCount(cpu, 1, 1, 400 * draw(small), 1, 1, 1, 1, 1) for cpu in (0, 1))
        made[SoftirqCount].append(Batch(at + 0.01, wall + 0.01, runs))
        dying = draw(st.none() | st.integers(0, 20_000))
        census = CgroupCensus("v1", 1, "/m", "node", 20_100, 100, dying, "count", None)
        made[CgroupCensus].append(Batch(at, wall, (census,)))
        phase = draw(st.sampled_from(("start", "done")))
        fields = {"nic": "eth0", "queue": draw(small), "phase": phase}
        said = KernelEvent("r", "nic_reset", "eth0: reset", int(at * 1e6) - 5, wall - 0.5, fields)
        told = (said,) if draw(small) == 0 else ()
        made[KernelEvent].append(Batch(at, wall, told))
        made[KernelLog].append(Batch(at, wall, (KernelLog(index + 1, 4_000_000, 0, "/dev/kmsg"),)))
        resets = NicCounter("eth0", "total_resets", draw(small))
        made[NicCounter].append(Batch(at, wall, (resets,)))
        died = CgroupEvent("rmdir", index, "/a/run-\udcff", int(at * 1e9))
        made[CgroupEvent].append(Batch(at, wall, (died,) if draw(small) == 0 else ()))
    return made


STATES = (
    SourceState("procfs.stat", "/proc/stat", "ok"),
    SourceState("cgroupfs.walk_cost", "numa_stat", "denied", "no", "sudo sexton diagnose"),
)


@given(windows(), st.integers(1, 3))
@settings(max_examples=examples(25), deadline=None)
def test_whatever_was_read_is_judged_the_same_when_it_is_read_back(batches: Batches, parts: int):
    live = Window(batches, STATES, {WalkCost: "cgroupfs.walk_cost"})
    with scratch() as place:
        record(place, live, batches, parts)
        assert findings(read_back(place).window) == findings(live)


SMALL = {"cores": 4, "hours": 0.2, "processes": 40, "cgroups": 40, "queues": 4, "units": 40}


def nodes(at: float) -> Batch[Any]:
    node = Node("n", "6.1", 2, BOOT, at, *(None,) * 8)
    return Batch(at, WALL_S + at, (node,))


def line(at: float, text: str = "eth0: reset", wall: float | None = None) -> KernelEvent:
    when = WALL_S + at if wall is None else wall
    return KernelEvent("p", "nic_reset", text, int(at * 1e6), when, {"nic": "eth0"})


def log(at: float, lines: int, oldest: float, kernel_events: Sequence[KernelEvent] = ()) -> Batches:
    seen = KernelLog(lines, int(oldest * 1e6), 0, "/dev/kmsg")
    return {
        KernelLog: [Batch(at, WALL_S + at, (seen,))],
        KernelEvent: [Batch(at, WALL_S + at, tuple(kernel_events))],
    }


def seconds(start: int, end: int) -> Batches:
    return {CoreTimes: [cores(float(at)) for at in range(start, end)]}


def segment(directory: Path, sequence: int, *flushes: Batches, boot: str = BOOT) -> Path:
    return write_sealed(directory, flushes, sequence, {**HEADER, "boot_id": boot})


def test_a_part_of_a_recording_knows_what_was_known_before_it_began(tmp_path: Path):
    segment(tmp_path, 1, seconds(100, 110), {Node: [nodes(100.0)]}, log(101, 9, 2, [line(50)]))
    segment(tmp_path, 2, seconds(110, 130), log(111, 9, 2, [line(110.5, "again")]))
    recording = Recording(tmp_path)
    part = span.between(recording, WALL_S + 115, WALL_S + 125)
    window = replay.window(recording, part).window
    assert (window.start_mono, window.end_mono) == (115.0, 125.0)
    assert (window.start, window.end) == (WALL_S + 115, WALL_S + 125)
    assert len(window.batches(CoreTimes) or ()) == 11
    assert window.node is not None
    assert [batch.mono_s for batch in window.batches(Node) or ()] == [100.0]
    assert [event.message for event in window.all(KernelEvent) or ()] == ["eth0: reset", "again"]
    log_reach = reach(window)
    assert log_reach is not None
    assert log_reach.whole_boot


def test_core_times_of_before_do_not_stand_in_for_those_of_the_span(tmp_path: Path):
    segment(tmp_path, 1, seconds(100, 110))
    segment(tmp_path, 2, {Node: [nodes(at) for at in (120.0, 121.0)]})
    recording = Recording(tmp_path)
    window = replay.window(recording, span.between(recording, WALL_S + 119, WALL_S + 122)).window
    assert window.batches(CoreTimes) is None


def test_lines_that_a_new_recorder_reads_again_are_told_once(tmp_path: Path):
    first, later = line(50), line(50, wall=WALL_S + 50.0001)
    segment(tmp_path, 1, seconds(100, 103), log(101, 9, 2, [first]))
    segment(tmp_path, 2, seconds(110, 113), log(111, 5, 20, [later, line(105, "new")]))
    window = read_back(tmp_path).window
    assert [event.message for event in window.all(KernelEvent) or ()] == ["eth0: reset", "new"]


def test_the_log_reaches_no_further_than_the_segments_that_are_left(tmp_path: Path):
    for sequence, start in ((7, 100), (8, 110), (12, 150)):
        flush = seconds(start, start + 10) | log(start + 1.0, start, 2)
        segment(tmp_path, sequence, flush)
    recording = Recording(tmp_path)
    early = replay.window(recording, span.between(recording, WALL_S + 112, WALL_S + 118)).window
    assert {kernel_log.oldest_mono_us for kernel_log in early.all(KernelLog) or ()} == {100_000_000}
    late = replay.window(recording, span.between(recording, WALL_S + 152, WALL_S + 158)).window
    told = reach(late)
    assert told is not None
    assert (told.whole_boot, told.seconds) == (False, pytest.approx(8.0))


def test_a_recorder_that_starts_anew_has_read_the_whole_ring_again(tmp_path: Path):
    segment(tmp_path, 7, seconds(100, 110) | log(101.0, 900, 2))
    segment(tmp_path, 8, seconds(140, 150) | log(141.0, 50, 2))
    told = reach(read_back(tmp_path).window)
    assert told is not None
    assert told.whole_boot


def test_only_the_last_boot_is_judged_and_the_others_are_named(tmp_path: Path):
    segment(tmp_path, 1, seconds(900, 910), boot="one")
    segment(tmp_path, 2, seconds(20, 30), boot="two")
    again = read_back(tmp_path)
    assert (again.window.start_mono, again.window.end_mono) == (20.0, 29.0)
    assert any("2 boots" in note for note in again.notes)


def shifted(batches: Batches, by_s: float) -> Batches:
    return {
        kind: [replace(item, wall_s=item.wall_s + by_s) for item in items]
        for kind, items in batches.items()
    }


@pytest.mark.parametrize(
    ("moment", "boot", "edges"),
    [
        (905, "one", (900, 909)),
        (1025, "two", (1020, 1029)),
        (940, "one", (900, 909)),  # in the outage: the boot that had just ended
        (1000, "two", (1020, 1029)),
    ],
)
def test_around_a_moment_near_a_reboot_its_own_boot_is_judged(
    tmp_path: Path, moment: int, boot: str, edges: tuple[int, int]
):
    segment(tmp_path, 1, seconds(900, 910), boot="one")
    segment(tmp_path, 2, shifted(seconds(20, 30), 1000.0), boot="two")
    found = span.around(Recording(tmp_path), WALL_S + moment, WALL_S + moment, 300.0)
    assert found.boot_id == boot
    assert (found.start[1], found.end[1]) == (WALL_S + edges[0], WALL_S + edges[1])
    assert any("2 boots" in note for note in found.notes)


def test_around_a_moment_of_the_only_boot_is_what_lies_around_it(tmp_path: Path):
    segment(tmp_path, 1, seconds(100, 200))
    recording = Recording(tmp_path)
    found = span.around(recording, WALL_S + 150, WALL_S + 160, 10.0)
    assert found == span.between(recording, WALL_S + 140, WALL_S + 170)
    with pytest.raises(StoreError, match="nothing was recorded"):
        span.around(recording, WALL_S + 900, WALL_S + 900, 10.0)


def test_of_a_time_that_came_twice_the_later_is_judged(tmp_path: Path):
    segment(tmp_path, 1, seconds(100, 160))
    segment(tmp_path, 2, shifted(seconds(160, 220), -60.0))
    recording = Recording(tmp_path)
    part = span.between(recording, WALL_S + 110, WALL_S + 120)
    assert (part.start[0], part.end[0]) == (170.0, 180.0)
    assert any("occurred twice" in note for note in part.notes)
    with pytest.raises(StoreError, match="the recording covers"):
        span.between(recording, WALL_S + 0, WALL_S + 99)


def test_a_jump_inside_one_segment_is_found(tmp_path: Path):
    segment(tmp_path, 1, seconds(100, 110), shifted(seconds(110, 120), 5000.0))
    recording = Recording(tmp_path)
    part = span.between(recording, WALL_S + 5112, WALL_S + 5115)
    assert (part.start[0], part.end[0]) == (112.0, 115.0)
    assert any("set forward" in note for note in span.everything(recording).notes)


def test_hours_without_a_recorder_are_named_and_make_no_rate(tmp_path: Path):
    segment(tmp_path, 1, seconds(100, 110))
    segment(tmp_path, 2, seconds(400, 410))
    again = read_back(tmp_path)
    assert [note for note in again.notes if "nothing was recorded" in note]
    unjoined = [
        batch.mono_s for batch in again.window.batches(CoreTimes) or () if not batch.follows
    ]
    assert unjoined == [400.0]


def test_damage_is_skipped_counted_and_the_rest_judged(tmp_path: Path):
    segment(tmp_path, 1, seconds(100, 110))
    damage_table(segment(tmp_path, 2, seconds(110, 120)), "core_times")
    segment(tmp_path, 3, seconds(120, 130))
    (tmp_path / "segments" / "junk").mkdir()
    again = read_back(tmp_path)
    kept = again.window.batches(CoreTimes) or ()
    assert all(not 110 <= amount.mono_s < 120 for amount in kept)
    assert [amount.mono_s for amount in kept if not amount.follows][-1:] == [120.0]
    assert any("2 damaged or foreign pieces skipped" in note for note in again.notes)


def test_the_minutes_still_being_written_are_part_of_it(tmp_path: Path):
    segment(tmp_path, 1, seconds(100, 110))
    write_open(tmp_path, [seconds(110, 115), seconds(115, 120)], 2)
    assert times(read_back(tmp_path).window) == [float(at) for at in range(100, 120)]


def times(window: Window) -> list[float]:
    found: Iterable[Batch[Any]] = window.batches(CoreTimes) or ()
    return [batch.mono_s for batch in found]


def test_a_table_that_is_damaged_everywhere_is_unknown_and_not_healthy(tmp_path: Path):
    """What cannot be read is never a pass."""
    whole = write_sealed(tmp_path, [simple(1.0)])
    damage_table(whole, "core_times")
    recording = Recording(tmp_path)
    found = replay.window(recording, span.everything(recording))
    assert not found.window.read(CoreTimes)
    assert found.window.read(tables()["mark"])
    state = found.window.why_missing(CoreTimes)
    assert (state.state, state.detail) == ("malformed", "damaged in this recording")
    assert "1 damaged or foreign piece skipped" in found.notes[-1]


def test_as_many_things_as_moments_are_not_laid_out(tmp_path: Path, monkeypatch):
    """Rows that are each of another thing at another moment: their square would be in memory."""
    rows = [Batch(float(at), WALL_S + at, (cores(1.0, at + 1).rows[-1],)) for at in range(200)]
    write_sealed(tmp_path, [{CoreTimes: rows}])
    monkeypatch.setattr("sexton.sandbox._UNCONFINED_READ", 200_000)
    recording = Recording(tmp_path)
    found = replay.window(recording, span.everything(recording))
    assert list(found.window.columns(CoreTimes, ("user_ms",))) == []
    assert any("200 things at 200 moments, too large" in line for line in recording.problems)
