"""What the targets of recordings share: verify one, read it as every command does, and keep it as a
recorder does."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from sexton.explain.diagnosis import diagnose
from sexton.replay.span import everything
from sexton.replay.window import window
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.reports.text.verdict import verdict_text
from sexton.store.compaction import compact
from sexton.store.export import Wanted, export_tables
from sexton.store.recording import Recording
from sexton.store.retention import Limits, Retention
from sexton.store.schema import tables
from sexton.store.sealer import take_over
from sexton.store.summary import summarise
from sexton.store.verify import DAMAGED, Trouble, verify
from tests.support.recordings import BOOT, WALL_S

_ALL = Limits(1e9, 1 << 40)


def read_and_verify(directory: Path, data: bytes) -> None:
    """Whatever it holds, only our own errors may come of it, each in one line; and what is valid
    stays so."""
    chosen = crc32(data)
    damage = _damage(directory)
    recording = Recording(directory)
    for segment in recording.segments:
        for kind in tables().values():
            if segment.has(kind):
                segment.batches(kind)
    assert all("\n" not in problem for problem in recording.problems)
    if recording.segments and chosen % 8 == 0:  # it costs several times the reading
        summarise(recording)
        diagnosis = diagnose(window(recording, everything(recording)).window)
        diagnosis_json(diagnosis)
        assert "\x1b" not in verdict_text(diagnosis, 100)
    if recording.segments and chosen % 8 == 1:
        export_tables(recording, directory / "out", Wanted(format="csv"))
    elif chosen % 4 == 2:
        take_over(directory)
        compact(directory, _ALL, settled_s=None)
        Retention(directory, _ALL).tidy((9.0, WALL_S + 9.0), BOOT)
        found = _damage(directory)
        assert damage or not found, f"was valid, and is not when it is kept: {found}"


def _damage(directory: Path) -> list[Trouble]:
    troubles = verify(directory).troubles
    assert all("\n" not in trouble.detail + trouble.place for trouble in troubles)
    return [trouble for trouble in troubles if trouble.kind == DAMAGED]
