from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.synthetic import Plan as Node
from lab.synthetic import write
from sexton.explain.aligned import Plan
from sexton.model.aligned import Signal
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupEvent, CgroupEventGap
from sexton.model.rows.cpu import CoreTimes, SoftirqWait
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.net import NicCounter, TcpCounters
from sexton.model.rows.task import Process, Thread
from sexton.model.rows.unit import Unit
from sexton.model.window import Batch
from sexton.replay.signals import aligned_in, recorded_in, signals_of
from sexton.replay.span import everything
from sexton.store.recording import Recording
from tests.explain.aligned.made import align
from tests.support.recordings import WALL_S, damage_table, write_open, write_sealed
from tests.support.synthetic import small


def batch(mono_s: float, *rows: Row) -> Batch[Any]:
    return Batch(mono_s, WALL_S + mono_s, rows)


def core(cpu: int, user_ms: int, system_ms: int, idle_ms: int = 0) -> CoreTimes:
    return CoreTimes(cpu, user_ms, 0, system_ms, idle_ms, 0, 0, 0, 0)


def process(pid: int, comm: str, used_ms: int, start_ms: int = 10) -> Process:
    return Process(pid, 1, comm, "S", start_ms, used_ms, 0, 0, 1, False)


def signals(directory: Path) -> dict[tuple[str, str], Signal]:
    recording = Recording(directory)
    found = list(signals_of(recording, everything(recording)))
    named = {(signal.about, signal.name): signal for signal in found}
    assert len(named) == len(found)
    assert all(len(signal.mono_s) == len(signal.value) for signal in found)
    return named


def values(signal: Signal) -> list[float | None]:
    rounded = np.round(signal.value.astype(float), 3)
    return [None if np.isnan(item) else float(item) for item in rounded]


def written(directory: Path, *segments: dict[type[Row], list[Batch[Any]]]) -> Path:
    for sequence, flush in enumerate(segments, start=1):
        write_sealed(directory, [flush], sequence)
    return directory


def test_counters_become_shares_across_segments(tmp_path: Path):
    first = [
        batch(100.0 + item, core(0, 500 * item, 7, 500 * item), core(1, 0, 100 * item, 900 * item))
        for item in (0, 1)
    ]
    second = [batch(102.0, core(0, 1500, 7, 500), core(1, 0, 300, 1700))]
    found = signals(written(tmp_path, {CoreTimes: first}, {CoreTimes: second}))
    assert found["core 0", "user time"].mono_s.tolist() == [101.0, 102.0]
    assert values(found["core 0", "user time"]) == [50.0, 100.0]
    assert values(found["core 1", "system time"]) == [10.0, 20.0]
    assert ("core 0", "system time") not in found  # it stood still


def test_a_core_that_lost_ticks_is_told_by_what_it_was_given(tmp_path: Path):
    rows = [batch(100.0, core(0, 0, 0)), batch(101.0, core(0, 0, 500)),
            batch(102.0, core(0, 250, 750, 500))]  # fmt: skip
    found = signals(written(tmp_path, {CoreTimes: rows}))
    assert values(found["core 0", "system time"]) == [100.0, 25.0]


def test_a_counter_that_was_reset_is_unknown_for_that_step_and_never_zero(tmp_path: Path):
    counts = [100, 200, 5, 105]
    rows = [batch(10.0 + index, VmCounter("pgscan_direct", count)) for index, count in
            enumerate(counts)]  # fmt: skip
    rows.append(batch(14.0, VmCounter("pgscan_direct", 405)))
    found = signals(written(tmp_path, {VmCounter: rows}))
    assert values(found["vmstat", "pgscan_direct"]) == [100.0, None, 100.0, 300.0]


def test_a_gap_is_unknown_and_so_is_a_thing_that_was_away(tmp_path: Path):
    times = [10.0, 11.0, 12.0, 60.0, 61.0]
    rows = []
    for index, mono in enumerate(times):
        here = [VmCounter("pgfault", 100 * index * index), VmCounter("pgfree", index**3)]
        rows.append(batch(mono, *here[: 1 if index == 3 else 2]))
    rows.append(batch(62.0, VmCounter("pgfault", 3600), VmCounter("pgfree", 200)))
    found = signals(written(tmp_path, {VmCounter: rows}))
    assert values(found["vmstat", "pgfault"]) == [100.0, 300.0, None, 700.0, 2000.0]
    assert values(found["vmstat", "pgfree"]) == [1.0, 7.0, None, None, 136.0]


def test_what_was_not_read_gives_no_signal(tmp_path: Path):
    rows = [batch(10.0 + index, core(0, index * index, 0, 1_000 * index)) for index in range(4)]
    found = signals(written(tmp_path, {CoreTimes: rows}))
    assert {signal.kind for signal in found.values()} == {"core"}


def test_columns_the_kernel_did_not_give_are_left_out(tmp_path: Path):
    rows = [
        batch(10.0 + index, TcpCounters(index * index, 5, 0, 0, 0, None, None, None, None))
        for index in range(4)
    ]
    found = signals(written(tmp_path, {TcpCounters: rows}))
    assert [*found] == [("TCP", "in segments")]


def test_levels_are_told_by_their_change(tmp_path: Path):
    rows = [
        batch(10.0 + index, VmCounter("nr_free_pages", count), VmCounter("nr_mlock", count))
        for index, count in enumerate([100, 80, 90])
    ]
    found = signals(written(tmp_path, {VmCounter: rows}))
    assert values(found["vmstat", "change of nr_free_pages"]) == [-20.0, 10.0]
    assert values(found["vmstat", "nr_free_pages"]) == [100.0, 80.0, 90.0]
    assert ("vmstat", "nr_mlock") not in found


def test_a_drivers_statistics_are_counters_unless_they_fall(tmp_path: Path):
    rows = [
        batch(10.0 + index, NicCounter("eth0", "rx", 2**40 + 10 * index * index),
              NicCounter("eth0", "room", 50 + 10 * (index % 3)))
        for index in range(9)
    ]  # fmt: skip
    found = signals(written(tmp_path, {NicCounter: rows}))
    assert values(found["eth0", "rx"])[:3] == [10.0, 30.0, 50.0]
    assert values(found["eth0", "change of room"])[:3] == [10.0, 10.0, -20.0]


def test_tasks_are_summed_by_name_and_new_ones_have_used_all_their_time_since(tmp_path: Path):
    readings = [
        batch(100.0, process(5, "job", 1000), process(6, "python", 0), process(7, "python", 0)),
        batch(110.0, process(5, "job", 2000), process(6, "python", 500), process(7, "python", 900)),
        # 5 has ended; 8 began at 112 s; 9 is old and was not seen before.
        batch(120.0, process(6, "python", 500), process(7, "python", 900),
              process(8, "job", 4000, 112_000), process(9, "old", 9000)),
        batch(130.0, process(6, "python", 1500), process(7, "python", 1000),
              process(8, "job", 4000, 112_000), process(9, "old", 9100)),
    ]  # fmt: skip
    found = signals(written(tmp_path, {Process: readings}))
    assert values(found["job", "CPU time"]) == [None, 10.0, 40.0, 0.0]
    assert values(found["python", "CPU time"]) == [None, 14.0, 0.0, 11.0]
    assert values(found["python[7]", "CPU time"]) == [None, 9.0, 0.0, 1.0]
    assert values(found["old[9]", "CPU time"]) == [None, 0.0, None, 1.0]  # when it ran is unknown


def test_a_reused_pid_is_another_process(tmp_path: Path):
    readings = [
        batch(100.0, process(5, "a", 9000, 10)),
        batch(110.0, process(5, "a", 100, 105_000)),
    ]
    found = signals(written(tmp_path, {Process: readings}))
    assert values(found["a[5]", "CPU time"]) == [None, 1.0]


def test_workers_of_the_kernel_are_one_by_core(tmp_path: Path):
    readings = [
        batch(100.0, process(5, "kworker/3:1", 0), process(6, "kworker/3:2-events", 0)),
        batch(110.0, process(5, "kworker/3:1-mm", 500), process(6, "kworker/3:2", 500)),
    ]
    found = signals(written(tmp_path, {Process: readings}))
    assert values(found["kworker/3", "CPU time"]) == [None, 10.0]


def test_threads_tell_on_which_core_a_task_ran(tmp_path: Path):
    def thread(tid: int, used_ms: int, cpu: int | None) -> Thread:
        return Thread(5, tid, "kubelet", "R", 10, 0, used_ms, cpu)

    readings = [
        batch(100.0, thread(5, 0, 1), thread(6, 0, 2)),
        batch(101.0, thread(5, 500, 1), thread(6, 100, 3)),
        batch(102.0, thread(5, 600, None), thread(6, 1100, 3)),
    ]
    found = signals(written(tmp_path, {Thread: readings}))
    assert values(found["kubelet", "time on core 1"]) == [None, 50.0, 0.0]
    assert values(found["kubelet", "time on core 3"]) == [None, 10.0, 100.0]


def test_deaths_are_counted_by_parent_where_somebody_looked_and_lost_none(tmp_path: Path):
    def died(path: str, mono_s: float) -> CgroupEvent:
        return CgroupEvent("rmdir", 1, path, int(mono_s * 1e9))

    born = CgroupEvent("mkdir", 2, "/a/z", 0)
    events = [
        batch(10.0, died("/a/w", 9.5)),
        batch(11.0, died("/a/x", 10.5), died("/b", 10.6), born),
        batch(12.0),
        batch(13.0, died("/a/y", 12.5)),
        batch(14.0, died("/a/v", 13.5), died("/a/u", 13.6)),
    ]
    gaps = [batch(value + 0.002) for value in (10.0, 11.0, 12.0)]
    gaps += [batch(13.002, CgroupEventGap(40)), batch(14.002)]
    found = signals(written(tmp_path, {CgroupEvent: events, CgroupEventGap: gaps}))
    assert values(found["/a", "cgroups removed"]) == [None, 1.0, 0.0, None, 2.0]
    assert values(found["/", "cgroups removed"]) == [None, 1.0, 0.0, None, 0.0]
    assert values(found["the whole node", "cgroups removed"]) == [None, 2.0, 0.0, None, 2.0]


def line(family: str, mono_s: float) -> KernelEvent:
    return KernelEvent(f"{family}_x", family, f"{family} at {mono_s}", int(mono_s * 1e6), None, {})


def test_lines_of_the_log_count_when_they_were_said_and_not_when_they_were_read(tmp_path: Path):
    events = [
        batch(100.0, line("oom", 3.0)),
        batch(101.0, line("oom", 100.5), line("oom", 5.0)),
        batch(102.0),
    ]
    found = signals(written(tmp_path, {KernelEvent: events}))
    assert values(found["oom", "lines"]) == [None, 1.0, 0.0]


def test_softirq_work_that_nobody_serves_is_a_signal(tmp_path: Path):
    def wait(cpu: int, total_us: int, pending_us: int | None) -> SoftirqWait:
        return SoftirqWait(cpu, "NET_RX", 1, 1, total_us, None, pending_us, ())

    rows = [batch(10.0, wait(0, 0, None), wait(1, 0, None)),
            batch(11.0, wait(0, 10_000, 2_000_000), wait(1, 0, None)),
            batch(12.0, wait(0, 10_000, None), wait(1, 0, None))]  # fmt: skip
    found = signals(written(tmp_path, {SoftirqWait: rows}))
    assert values(found["core 0", "NET_RX waiting"]) == [1.0, 0.0]
    assert values(found["core 0", "NET_RX not yet served"]) == [0.0, 2000.0, 0.0]


def test_restarts_of_units_are_told_by_the_minute(tmp_path: Path):
    def unit(restarts: int | None) -> Unit:
        return Unit("a.service", "loaded", "active", "running", None, restarts, None, None, None,
                    None, None, None, None, None, "systemd")  # fmt: skip

    rows = [batch(10.0, unit(3)), batch(20.0, unit(4)), batch(30.0, unit(None)),
            batch(40.0, unit(9)), batch(50.0, unit(9))]  # fmt: skip
    found = signals(written(tmp_path, {Unit: rows}))
    assert values(found["a.service", "restarts"]) == [6.0, None, None, 0.0]


def test_names_are_escaped(tmp_path: Path):
    readings = [batch(100.0, process(5, "a\x1b[2J\udcff", 0)),
                batch(110.0, process(5, "a\x1b[2J\udcff", 50))]  # fmt: skip
    found = signals(written(tmp_path, {Process: readings}))
    assert [*found] == [("a\\x1b[2J\\xff[5]", "CPU time")]


def test_an_open_segment_is_read_as_a_sealed_one(tmp_path: Path):
    rows = [
        batch(100.0 + index, core(0, index * index, 0), core(1, 5 * index * index, 0))
        for index in range(5)
    ]
    write_sealed(tmp_path / "sealed", [{CoreTimes: rows}])
    write_open(tmp_path / "open", [{CoreTimes: rows[:3]}, {CoreTimes: rows[3:]}])
    sealed, opened = signals(tmp_path / "sealed"), signals(tmp_path / "open")
    assert {key: values(value) for key, value in sealed.items()} == {
        key: values(value) for key, value in opened.items()
    }


def test_things_that_come_when_others_go_are_not_mistaken_for_one(tmp_path: Path):
    rows = [
        batch(100.0 + index, VmCounter("a", index * index),
              VmCounter("b" if index < 2 else "c", 100 * index * index))
        for index in range(4)
    ]  # fmt: skip
    found = signals(written(tmp_path, {VmCounter: rows}))
    assert values(found["vmstat", "a"]) == [1.0, 3.0, 5.0]
    assert len(found) == 1  # one step each of the others tells of no movement


def test_recorded_time_leaves_gaps_out(tmp_path: Path):
    generated = write(tmp_path / "r", small(hours=0.3, gaps=((400.0, 200.0),)))
    recording = Recording(generated.directory)
    (first, second) = recorded_in(recording, everything(recording))
    assert second[0] - first[1] == pytest.approx(201, abs=3)


def resets(recording: Recording) -> list[float]:
    """When the NIC was reset: one line of its driver each."""
    lines = {row.mono_us / 1e6
             for segment in recording.segments
             for batch in segment.batches(KernelEvent)
             for row in batch.rows if row.family == "nic_reset"}  # fmt: skip
    return [moment for moment in sorted(lines) if not any(0 < moment - m < 10 for m in lines)]


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight walks, each on some core, with stacks and a clock that jumps."""
    node = small(
        "zombie_walk", "nic_reset", hours=0.6, walks=8, stack_hertz=19, stack_nodes=2000, seed=77,
        jumps=((1000.0, 2.0), (1500.0, -1.0)),
    )  # fmt: skip
    return write(tmp_path_factory.mktemp("aligned") / "node", node).directory


def test_a_walk_is_found_by_its_task_and_its_function_though_each_core_has_it_but_once(
    incident: Path,
):
    recording = Recording(incident)
    span = everything(recording)
    events = resets(recording)
    assert len(events) == 8
    found = aligned_in(recording, span, events)
    assert len(found.events) == 8
    passing = {(signal.kind, signal.about, signal.name): signal for signal in found.ranked[
        : found.significant]}  # fmt: skip
    assert ("task", "kubelet[2113]", "CPU time") in passing
    walk = passing["core", "highest of all cores", "system time"]
    assert walk.lead_s == pytest.approx(6.8, abs=1.5)
    assert walk.before > 10 * walk.control
    functions = {about for kind, about, _ in passing if kind == "function"}
    assert "memcg_stat_show" in functions
    assert not any(name.startswith("core ") for _, name, what in passing if what == "user time")


def test_only_what_lies_near_the_windows_is_read_and_gives_the_same_answer(
    incident: Path, monkeypatch: pytest.MonkeyPatch
):
    recording = Recording(incident)
    span = everything(recording)
    events = resets(recording)[:5]
    plan = Plan(controls=4)
    names: set[str] = set()
    table = type(recording.segments[0]).table

    def counted(segment: Any, *rest: Any, **named: Any) -> Any:
        names.add(segment.name)
        return table(segment, *rest, **named)

    monkeypatch.setattr(type(recording.segments[0]), "table", counted)
    near = aligned_in(recording, span, events, plan)
    assert len(names) < len(recording.segments)
    monkeypatch.undo()
    recorded = Plan(controls=4, recorded=recorded_in(recording, span))
    whole = align(signals_of(recording, span), events, recorded)
    one = {
        signal[:4]: signal.before
        for signal in near.ranked
        if signal.kind not in ("function", "task")
    }
    other = {signal[:4]: signal.before for signal in whole.ranked}
    shared = one.keys() & other.keys()
    assert len(shared) > 20
    assert all(one[key] == pytest.approx(other[key], rel=1e-4, abs=1e-4) for key in shared)


def test_damaged_stacks_are_named_and_the_rest_is_compared(tmp_path: Path):
    node: Node = small(hours=0.25, stack_hertz=19, stack_nodes=2000)
    directory = write(tmp_path / "node", node).directory
    for annex in sorted(directory.glob("segments/*/profile-*"))[:2]:
        damage_table(annex, "node")
    recording = Recording(directory)
    span = everything(recording)
    found = list(signals_of(recording, span))
    assert any("damaged" in problem for problem in recording.problems)
    functions = [signal for signal in found if signal.kind == "function"]
    assert functions
    assert functions[0].mono_s[0] > span.start[0] + 200


def test_functions_are_shares_of_all_samples_in_the_last_seconds_of_a_window(tmp_path: Path):
    directory = write(
        tmp_path / "node", small(hours=0.1, stack_hertz=49, stack_nodes=2000)
    ).directory
    recording = Recording(directory)
    span = everything(recording)
    middle = span.start[0] + 150.0
    found = [
        signal
        for signal in signals_of(recording, span, [(middle - 30, middle)])
        if signal.kind == "function"
    ]
    assert found
    mono = found[0].mono_s
    assert mono[-1] == pytest.approx(middle, abs=1e-5)
    assert mono[0] == pytest.approx(middle - 5, abs=1e-5)
    assert all(np.nanmax(signal.value) <= 100 for signal in found)
    by_name = {signal.about: signal for signal in found}
    assert np.nanmin(by_name["do_syscall_64"].value) > 0
    assert not any("idle" in name for name in by_name)


def test_names_may_be_read_as_numbers_and_an_older_table_may_lack_them(tmp_path: Path):
    names = ["a\x1b", "b\udcff", "\0c"]
    rows = [batch(100.0 + item, *(VmCounter(name, item) for name in names)) for item in (0, 1)]
    write_sealed(tmp_path, [{VmCounter: rows}])
    (segment,) = Recording(tmp_path).segments
    plain = segment.table(VmCounter)
    coded = segment.table(VmCounter, None, ["name"])
    older = segment.table(VmCounter, None, ["name", "no such column"])
    assert plain is not None
    assert coded is not None
    assert older is not None
    assert coded.column("name").combine_chunks().indices.to_pylist() == [0, 0, 1, 1, 2, 2]
    assert coded.to_pylist() == plain.to_pylist() == older.to_pylist()
