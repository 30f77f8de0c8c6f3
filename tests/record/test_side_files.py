"""Pins, marks and the status, while the disk may hang."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.recorder import Alarm, Mark, RecorderNote
from sexton.record import side_files as desks
from sexton.record.side_files import SideFileWriter
from sexton.store.layout import prepare
from sexton.store.pins import Pin, leave_mark, pins_in, remark_now
from tests.record.running import (
    every,
    moments,
    options,
    recording,
    source,
    wait_for_reads,
    wait_until,
)


def pin(name: str) -> Pin:
    return Pin(name, "mark", "x", "x", "boot", 0.0, 1.0, 0.0)


def test_it_writes_pins_and_the_status_and_finds_marks(tmp_path: Path) -> None:
    prepare(tmp_path)
    writer = SideFileWriter(tmp_path)
    leave_mark(tmp_path, remark_now("job 17 died", "boot"))
    writer.pin(pin("p1"))
    writer.show({"state": "recording"})
    wait_until(lambda: (tmp_path / "status.json").exists())
    writer.look()
    writer.close()
    assert writer.marks() == ["job 17 died"]
    assert writer.marks() == []
    assert [item.id for item in writer.pinned()] == ["p1"]
    assert [item.id for item in pins_in(tmp_path)[0]] == ["p1"]
    assert json.loads((tmp_path / "status.json").read_text()) == {"state": "recording"}


def test_it_tells_which_watched_files_changed(tmp_path: Path) -> None:
    prepare(tmp_path / "rec")
    old, new, still = (str(tmp_path / name) for name in ("old.toml", "new.toml", "still.toml"))
    for path in (old, still):
        Path(path).write_text("x")
    writer = SideFileWriter(tmp_path / "rec", (old, new, still, str(tmp_path / "none")))
    Path(old).unlink()
    Path(new).write_text("y")
    writer.look()
    writer.close()
    assert writer.changed() == [old, new]
    assert writer.changed() == []


def test_a_pin_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "pins").rmdir()
    writer = SideFileWriter(tmp_path)
    writer.pin(pin("p1"))
    writer.close()
    assert writer.problems() == ["could not pin mark: No such file or directory"]
    assert writer.pinned() == []


def test_a_disk_that_hangs_stops_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, hung = threading.Event(), threading.Event()

    def hang(*_: object) -> None:  # a fake: a real disk that hangs cannot be had at will
        hung.set()
        go_on.wait(120)

    monkeypatch.setattr(desks, "add_pin", hang)
    monkeypatch.setattr(os, "fdatasync", hang)
    place = tmp_path / "r"
    calm = source("test.calm", VmCounter, lambda: [VmCounter("ticks", 1)])
    with recording(options(place), [calm]) as recorder:
        leave_mark(place, remark_now("job 17 died", recorder.boot_id))
        assert hung.wait(60)
        wait_for_reads(recorder, "test.calm", 40)
        assert not go_on.is_set()
        go_on.set()
    assert len(moments(place, VmCounter)) > 40, "what waited for the disk is there"
    assert not every(place, CoreTimes)
    assert [item.kind for item in every(place, RecorderNote)] == []


def test_what_was_left_right_before_the_end_is_in_the_recording(tmp_path: Path) -> None:
    with recording(options(tmp_path), sources=()) as recorder:
        wait_until(lambda: (tmp_path / "status.json").exists())
        leave_mark(tmp_path, remark_now("job 17 died", recorder.boot_id))
    assert [row.text for row in every(tmp_path, Mark)] == ["job 17 died"]
    assert [row.kind for row in every(tmp_path, Alarm)] == ["mark"]
    assert list((tmp_path / "marks").iterdir()) == []


def test_a_closed_writer_leaves_new_marks_for_the_next_recorder(tmp_path: Path) -> None:
    prepare(tmp_path)
    writer = SideFileWriter(tmp_path)
    assert writer.last_marks() == []
    writer.close()
    leave_mark(tmp_path, remark_now("job 17 died", "boot"))
    writer.close()
    assert len(list((tmp_path / "marks").iterdir())) == 1
