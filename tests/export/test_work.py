"""What is answered while a recording grows is what a reading of the whole of it says."""

from __future__ import annotations

from collections import defaultdict
from math import inf
from pathlib import Path
from typing import Any

import pytest

from lab.incident import Incident, incidents
from sexton.export.current import KEPT, SPAN_S, current
from sexton.export.families import FAMILIES
from sexton.export.samples import Samples
from sexton.export.work import MetricsWork, last_seconds
from sexton.model.row import Row
from sexton.model.rows.unit import RestartMark
from sexton.model.window import Batch, Window
from sexton.replay.window import window
from sexton.store.journal import JOURNAL
from sexton.store.recording import Recording
from tests.support.recordings import HEADER, write_open

FLUSH_S, REFRESH_S = 5.0, 15.0


def flushes_of(seen: Window) -> list[dict[type[Row], list[Batch[Any]]]]:
    """What a recorder of the same node would have written of these tables."""
    made: dict[int, dict[type[Row], list[Batch[Any]]]] = defaultdict(lambda: defaultdict(list))
    for kind in KEPT.every:
        for batch in seen.batches(kind) or ():
            if seen.start_mono <= batch.mono_s <= seen.end_mono:
                made[int((batch.mono_s - seen.start_mono) / FLUSH_S)][kind].append(batch)
    return [made[at] for at in sorted(made)]


def exported(samples: Samples) -> dict[str, dict[Any, Any]]:
    return {family.name: dict(samples.of(family)) for family in FAMILIES}


#: All take a minute.
_FEW = 8


@pytest.mark.parametrize(
    "incident",
    [
        pytest.param(incident, id=incident.name, marks=[pytest.mark.whole] if at % _FEW else [])
        for at, incident in enumerate(incidents())
    ],
)
def test_each_refresh_says_what_the_whole_recording_says(incident: Incident, tmp_path: Path):
    flushes = flushes_of(incident.replay.window)
    place = write_open(tmp_path, flushes, header={**HEADER, "providers": {}})
    lines = (place / JOURNAL).read_bytes().splitlines(keepends=True)
    work, seen_s, followed = None, -inf, 0
    step = round(REFRESH_S / FLUSH_S)
    for number in range(1 + step, len(lines) + step, step):
        (place / JOURNAL).write_bytes(b"".join(lines[:number]))
        work = work or MetricsWork(tmp_path)
        before = work.tail
        found = work.answer("current", (seen_s, REFRESH_S))
        followed += before is not None and work.tail is before
        recording = Recording(tmp_path)
        span = last_seconds(recording, SPAN_S)
        expected = current(window(recording, span).window, seen_s, REFRESH_S)
        assert exported(found.samples) == exported(expected.samples)
        assert (found.kernel, found.seen_s) == (expected.kernel, expected.seen_s)
        assert (found.boot_id, found.mono_s, found.wall_s) == (span.boot_id, *span.end)
        seen_s = found.seen_s
    restarts = incident.replay.window.all(RestartMark)  # each new one is compared with all before
    assert followed or restarts or len(lines) <= 2 * step + 1
