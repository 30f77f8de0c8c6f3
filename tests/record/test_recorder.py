"""The recorder at work on this machine: what it keeps, what alarms it, what it survives."""

from __future__ import annotations

import json
import os
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sexton.detect.registry import applied
from sexton.errors import StoreError
from sexton.explain.diagnosis import diagnose
from sexton.host.host import open_host
from sexton.model import window as windows
from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.net import NicCounter
from sexton.model.rows.recorder import Alarm, Mark, RecorderCost, RecorderNote
from sexton.model.rows.task import Process
from sexton.model.settings import Settings
from sexton.model.window import Batch, Window
from sexton.record import recorder as recorders
from sexton.record.schedule import TABLES_S
from sexton.replay import span_reader
from sexton.replay.span import everything
from sexton.replay.window import window as replayed
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.store.layout import is_locked
from sexton.store.pins import leave_mark, pins_in, remark_now
from sexton.store.recording import Recording
from sexton.store.retention import Limits
from sexton.store.writer import Writer
from tests.record.running import (
    every,
    moments,
    options,
    recording,
    source,
    state_of,
    wait_for_reads,
    wait_until,
)


def status(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "status.json").read_text())
    return found


def findings(window: Window) -> str:
    return json.dumps(diagnosis_json(diagnose(window))["findings"], indent=1)


@pytest.mark.root
def telling(batches: tuple[Batch[Row], ...] | None) -> list[Batch[Row]]:
    """The first and the last reading, and those between that had rows: a replay drops others."""
    found = list(batches or ())
    return [*found[:1], *(batch for batch in found[1:-1] if batch.rows), *found[1:][-1:]]


def test_over_the_same_interval_replay_and_live_give_the_same_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[type[Row], list[Batch[Row]]] = {}
    place = tmp_path / "r"

    class Listening(Writer):
        """The recorder's writer, with somebody who listens in: what a live window would hold."""

        def append(self, kind: type[Row], batch: Batch[Row]) -> None:
            kept.setdefault(kind, []).append(batch)
            super().append(kind, batch)

    with monkeypatch.context() as patch:
        patch.setattr(recorders, "Writer", Listening)
        with recording(options(place)) as recorder:
            wait_until(lambda: recorder._writer.written.segments >= 3)
    # A machine that others hold for seconds leaves real gaps, which a replay tells and nobody else.
    for module in (span_reader, windows):
        monkeypatch.setattr(module, "GAP_S", 600.0)
    states = recorder._sampler.states()
    providers = {kind: reader.id for reader in recorder._sources for kind in reader.rows}
    found = Recording(place)
    assert len(found.segments) >= 3
    again = replayed(found, everything(found))
    live = Window(kept, states, providers)
    for kind in kept:
        assert telling(again.window.batches(kind)) == telling(live.batches(kind))
    assert findings(again.window) == findings(live)


@pytest.mark.alone
@pytest.mark.root
def test_a_core_held_in_the_kernel_is_alarming_pinned_and_looked_at_closely(tmp_path: Path) -> None:
    place = tmp_path / "r"
    with recording(options(place)) as recorder:
        wait_for_reads(recorder, "procfs.stat", 2)
        # In real time, so that a test machine's other work does not take its share.
        command = ["chrt", "-f", "1", "taskset", "-c", "0"]
        command += ["dd", "if=/dev/zero", "of=/dev/null", "bs=4M"]
        busy = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            # Others' alarms may come first: their tests leave dead cgroups behind, say.
            wait_until(lambda: any(pin.kind == "held_core" for pin in pins_in(place)[0]))
            began = time.monotonic()
            wait_for_reads(recorder, "procfs.tasks", 4)
        finally:
            busy.kill()
            busy.wait()
    held = [item.about for item in every(place, Alarm) if item.kind == "held_core"]
    assert held[0] == "core 0"
    pin = next(item for item in pins_in(place)[0] if item.kind == "held_core")
    assert pin.start_s <= began - 290
    assert pin.end_s >= began + 100
    closely = [moment for moment in moments(place, Process) if moment >= began]
    assert max(later - earlier for earlier, later in pairwise(closely)) < TABLES_S, (
        "the process table is read every second while the alarm is on"
    )
    assert any(row.pid == busy.pid for row in every(place, Process))


def test_it_records_the_configuration_and_that_its_file_changed(tmp_path: Path) -> None:
    file, place = tmp_path / "config.toml", tmp_path / "rec"
    mine = Settings(str(file), off=("tcp_loss",))
    file.write_text("")
    wanted = options(place, config_files=(str(file),))
    with applied(mine), recording(wanted, [calm()]) as recorder:
        file.write_text("# changed")
        wait_until(lambda: "config" in [note.kind for note in recorder._recent])
    found = Recording(place).segments
    assert found
    assert all(segment.settings == mine for segment in found)


def test_a_mark_becomes_a_row_an_alarm_and_a_pin_and_its_file_goes(tmp_path: Path) -> None:
    place = tmp_path / "r"
    with recording(options(place), [calm()]) as recorder:
        leave_mark(place, remark_now("job 17 died\x1b[2J", recorder.boot_id))
        (place / "marks" / "junk").write_bytes(b"\xff not a mark")
        wait_until(lambda: recorder._alarms)
        wait_until(lambda: not os.listdir(place / "marks"))
    (mark,) = every(place, Mark)
    assert mark.text.startswith("job 17 died")
    assert "\x1b" not in mark.text
    assert every(place, Alarm)[0].kind == "mark"
    assert pins_in(place)[0][0].about == mark.text


def calm() -> object:
    return source("test.calm", VmCounter, lambda: [VmCounter("ticks", 1)])


def test_a_second_recorder_on_one_directory_refuses_and_harms_nothing(tmp_path: Path) -> None:
    place = tmp_path / "r"
    with recording(options(place), [calm()]) as recorder:
        assert is_locked(place)
        with pytest.raises(StoreError, match=f"process {os.getpid()} is recording here already"):
            recorders.Recorder(open_host(), options(place))
        wait_for_reads(recorder, "test.calm", 1)
    assert not is_locked(place)
    assert every(place, VmCounter)


@pytest.mark.parametrize("deadline_s", [0.3, 3.0])
def test_a_source_that_hangs_for_a_minute_stops_no_other(tmp_path: Path, deadline_s: float) -> None:
    def hang() -> list[Row]:
        time.sleep(60)
        return []

    place = tmp_path / "r"
    hanging = source("test.hanging", NicCounter, hang, deadline_s=deadline_s)
    with recording(options(place), [hanging, calm()]) as recorder:
        wait_until(lambda: state_of(recorder, "test.hanging") == "timeout")
        wait_for_reads(recorder, "test.calm", 15)
    times = moments(place, VmCounter)
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert sorted(steps)[len(steps) // 2] < 0.5
    assert max(steps) < 2.9, "only a prompt source is waited for, and only for its deadline"
    document = {state.id: state for state in Recording(place).segments[-1].states}
    assert "no answer" in document["test.hanging"].detail


def test_a_source_that_lies_or_breaks_stops_no_other_and_is_counted(tmp_path: Path) -> None:
    def lie() -> list[Row]:
        return [NicCounter("eth0", "huge", 1 << 80), NicCounter("eth0", "fine", (1 << 64) - 1)]

    def fail() -> list[Row]:
        raise RuntimeError("a bug")

    place = tmp_path / "r"
    sources = [
        source("test.lying", NicCounter, lie),
        source("test.broken", CoreTimes, fail),
        calm(),
    ]
    with recording(options(place), sources) as recorder:
        wait_for_reads(recorder, "test.lying", 8)
        wait_until(lambda: state_of(recorder, "test.broken") == "failed")
    assert {row.counter for row in every(place, NicCounter)} == {"fine"}
    assert recorder._writer.written.refused_rows > 3
    assert any(note.kind == "lost" for note in every(place, RecorderNote))
    states = {state.id: state for state in Recording(place).segments[-1].states}
    assert states["test.broken"].state == "failed"
    assert "a bug" in states["test.broken"].detail


@pytest.mark.whole
def test_a_wall_clock_moved_by_hours_loses_nothing_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "r"
    real, moved_s = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + moved_s[0])  # a fake clock, truly moved
    with recording(options(place, limits=Limits(600.0, 1 << 30)), [calm()]) as recorder:
        for hours in (5, -7):
            wait_for_reads(recorder, "test.calm", 25)
            moved_s[0] = hours * 3600.0
        wait_for_reads(recorder, "test.calm", 25)
    times = moments(place, VmCounter)
    assert times == sorted(times)
    assert len(times) > 45
    told = [note.detail for note in every(place, RecorderNote) if note.kind == "clock"]
    assert told == ["the wall clock moved by +18,000.0 s", "the wall clock moved by -43,200.0 s"]


def test_it_tells_its_own_cost_and_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "JUDGE_S", 0.5)
    place = tmp_path / "r"
    with recording(options(place), [calm()]) as recorder:
        wait_until(lambda: (place / "status.json").exists())
        wait_until(lambda: status(place)["sources"] == {"ok": ["test.calm"]})
        wait_for_reads(recorder, "test.calm", 10)
        assert status(place)["state"] == "recording"
        assert status(place)["pid"] == os.getpid()
        assert recorder.problem == ""
    cost = every(place, RecorderCost)[-1]
    assert cost.cpu_ms > 0
    assert cost.rss_bytes > 1 << 20
    assert cost.written_bytes > 0
    assert json.loads((place / "status.json").read_text())["state"] == "stopped"


def test_over_its_budget_it_sheds_the_costliest_source_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "JUDGE_S", 0.2)
    monkeypatch.setattr(recorders.budgets, "OVER_S", 0.8)

    def burn() -> list[Row]:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return [NicCounter("eth0", "burnt", 1)]

    place = tmp_path / "r"

    def wait() -> list[Row]:
        time.sleep(0.05)
        return [CoreTimes(0, 0, 0, 0, 0, 0, 0, 0, 0)]

    sources = [source("test.dear", NicCounter, burn), source("test.slow", CoreTimes, wait), calm()]
    # A test runner that has read a thousand recordings is no recorder: its memory is not judged.
    asked = options(place, cpu_percent=5.0, memory_bytes=1 << 40)
    with recording(asked, sources) as recorder:
        wait_until(lambda: ("rest", "test.dear") in recorder._budget.given_up)
        reads = {state.id: state.reads for state in recorder._sampler.states()}
        wait_for_reads(recorder, "test.calm", 5)
        now = {state.id: state for state in recorder._sampler.states()}
        assert now["test.dear"].reads == reads["test.dear"]
        assert now["test.dear"].state == "skipped"
        assert now["test.calm"].reads > reads["test.calm"]
        wait_until(lambda: json.loads((place / "status.json").read_text())["shed"])
    told = [note.detail for note in every(place, RecorderNote) if note.kind == "shed"]
    assert told[0].startswith("test.dear read less often: ")
    assert told[1].startswith("test.dear paused: ")
