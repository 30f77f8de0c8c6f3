"""A remark left in a recorder's last second is kept, for that is when jobs die."""

from __future__ import annotations

from pathlib import Path

from sexton.model.recorder import Alarm, Mark
from sexton.record.side_files import SideFileWriter
from sexton.store.layout import prepare
from sexton.store.pins import leave_mark, remark_now
from tests.record.running import every, options, recording, wait_until


def test_what_was_left_right_before_the_end_is_in_the_recording(tmp_path: Path) -> None:
    with recording(options(tmp_path), sources=()) as recorder:
        wait_until(lambda: (tmp_path / "status.json").exists())
        leave_mark(tmp_path, remark_now("job 17 died", recorder.boot_id))
    assert [row.text for row in every(tmp_path, Mark)] == ["job 17 died"]
    assert [row.kind for row in every(tmp_path, Alarm)] == ["mark"]
    assert list((tmp_path / "marks").iterdir()) == []


def test_a_desk_that_is_closed_takes_nothing_that_nobody_would_read(tmp_path: Path) -> None:
    prepare(tmp_path)
    writer = SideFileWriter(tmp_path)
    assert writer.last_marks() == []
    writer.close()
    leave_mark(tmp_path, remark_now("job 17 died", "boot"))
    writer.close()
    assert len(list((tmp_path / "marks").iterdir())) == 1
