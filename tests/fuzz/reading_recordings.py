"""What the targets of recordings share: verify one and read it as every command does."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from sexton.explain.diagnosis import diagnose
from sexton.replay.span import everything
from sexton.replay.window import window
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.reports.text.verdict import verdict_text
from sexton.store.recording import Recording
from sexton.store.schema import tables
from sexton.store.verify import verify


def read_and_verify(directory: Path, data: bytes) -> None:
    """Whatever it holds, only our own errors may come of it, each in one line."""
    found = verify(directory)
    assert all("\n" not in trouble.detail + trouble.place for trouble in found.troubles)
    recording = Recording(directory)
    for segment in recording.segments:
        for kind in tables().values():
            if segment.has(kind):
                segment.batches(kind)
    assert all("\n" not in problem for problem in recording.problems)
    if recording.segments and crc32(data) % 8 == 0:  # it costs several times the reading
        diagnosis = diagnose(window(recording, everything(recording)).window)
        diagnosis_json(diagnosis)
        assert "\x1b" not in verdict_text(diagnosis, 100)
