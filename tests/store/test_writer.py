"""The thread between the sampler and the disk."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from sexton.store import sealed
from sexton.store import writer as writers
from sexton.store.journal import OpenSegment
from sexton.store.layout import prepare
from sexton.store.recording import Recording
from sexton.store.retention import Limits
from sexton.store.schema import tables
from sexton.store.writer import Writer
from tests.record.running import wait_until
from tests.support.recordings import HEADER, STATES, marks

MARK = tables()["mark"]


def test_a_disk_that_does_not_come_back_fills_no_memory_and_the_newest_survive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path)
    monkeypatch.setattr(writers, "MOST_WAITING_ROWS", 1000)
    hanging, held = threading.Event(), threading.Event()
    real = OpenSegment.flush

    def hang(self: OpenSegment, *given: Any) -> int:
        held.set()
        assert hanging.wait(30)
        return real(self, *given)

    monkeypatch.setattr(OpenSegment, "flush", hang)
    writer = Writer(tmp_path, HEADER, Limits(1e12, 1 << 30))
    try:
        for second in range(50):
            writer.append(MARK, marks(100, float(second)))
            writer.flush(STATES)
            if second == 0:
                assert held.wait(60)
        assert writer._flushes.qsize() <= 11
        assert writer.written.dropped_rows >= 3800
        assert any("has not responded" in words for _, words in writer.written.notes)
    finally:
        hanging.set()
    assert writer.close(STATES)
    kept = [
        batch.mono_s for segment in Recording(tmp_path).segments for batch in segment.batches(MARK)
    ]
    assert kept[0] == 0.0
    assert kept[-10:] == [float(second) for second in range(40, 50)]


@pytest.mark.parametrize("times", [1, 2])
def test_a_segment_whose_sealing_failed_is_sealed_with_the_next(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path)
    real, refusals = sealed.seal, [times]

    def refuse(*given: Any) -> Any:
        if refusals[0]:
            refusals[0] -= 1
            raise OSError(5, "Input/output error")  # a full disk would delete segments
        return real(*given)

    monkeypatch.setattr(sealed, "seal", refuse)
    writer = Writer(tmp_path, HEADER, Limits(1e12, 1 << 30), segment_s=0.0)

    def flush(second: int) -> None:
        writer.append(MARK, marks(10, float(second)))
        writer.flush(STATES)

    flush(0)
    wait_until(lambda: writer.written.bytes)
    for refused in range(times):
        flush(2 * refused + 1)
        wait_until(lambda: writer.written.problem == "Input/output error")
        # This one opens a segment again, and the next tries to seal both.
        flush(2 * refused + 2)
        wait_until(lambda: not writer.written.problem)
    assert refusals == [0]
    assert len(list((tmp_path / "open").iterdir())) == 2
    assert writer.close(STATES)
    assert list((tmp_path / "open").iterdir()) == []
    found = Recording(tmp_path)
    assert found.problems == []
    assert [b.mono_s for segment in found.segments for b in segment.batches(MARK)] == [
        float(second) for second in range(2 * times + 1)
    ]
