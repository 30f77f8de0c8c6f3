"""A companion that breaks its promise takes nothing with it."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sexton.model.memory import VmCounter
from sexton.model.recorder import RecorderNote
from sexton.model.row import Row
from sexton.record.companion import Companion, Place
from sexton.store.pins import Pin
from tests.record.running import (
    every,
    moments,
    options,
    recording,
    source,
    wait_for_reads,
    wait_until,
)


class Broken:
    """Fails at everything it is asked."""

    name = "test.broken"
    outlasts = False

    def __init__(self, _: Place) -> None:
        pass

    def _fail(self) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        del now_s, alarm
        return self._fail()  # type: ignore[no-any-return]

    def alarmed(self, pin: Pin) -> None:
        del pin
        self._fail()

    cost = rest = wake = close = status = _fail


def test_one_that_fails_at_everything_is_told_and_the_recorder_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "r"
    calm = source("test.calm", VmCounter, lambda: [VmCounter("ticks", 1)])
    with recording(options(place), [calm], [Broken]) as recorder:
        wait_until(lambda: recorder._companions[0].failures >= 3)
        failed_s = time.monotonic()
        wait_for_reads(recorder, "test.calm", 3)
    assert max(moments(place, VmCounter)) > failed_s
    told = [note.detail for note in every(place, RecorderNote) if note.kind == "source"]
    assert any("test.broken failed" in words and "Read-only" in words for words in told)


def test_one_that_the_disk_refuses_at_the_start_is_missed_and_not_fatal(tmp_path: Path) -> None:
    def refuse(_: Place) -> Companion:
        raise OSError(errno.ENOSPC, "No space left on device")

    place = tmp_path / "r"
    calm = source("test.calm", VmCounter, lambda: [VmCounter("ticks", 1)])
    with recording(options(place), [calm], [refuse]) as recorder:
        wait_until(lambda: recorder._writer.written.bytes)
    assert "No space left" in recorder.refused[0]
