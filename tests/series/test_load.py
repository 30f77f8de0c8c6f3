"""Pauses in which nothing was read and tasks waited for a core."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.model.rows.memory import Pressure
from sexton.model.window import Batch
from sexton.replay.span import everything
from sexton.replay.window import window
from sexton.series.load import lapses
from sexton.store.recording import Recording
from tests.support.recordings import WALL_S, write_sealed


def waited(at: float, seconds: float) -> Batch[Pressure]:
    row = Pressure("cpu", "some", 0.0, 0.0, 0.0, round(1e6 * seconds))
    return Batch(at, WALL_S + at, (row,))


@pytest.mark.parametrize("edge", [2, 3])
def test_a_pause_between_two_segments_is_seen_as_one_inside_a_segment(tmp_path: Path, edge: int):
    read = [waited(0.0, 5.0), waited(1.0, 5.0), waited(41.0, 43.0), waited(42.0, 43.0)]
    for number, part in enumerate((read[:edge], read[edge:]), start=1):
        write_sealed(tmp_path, [{Pressure: part}], number)
    recording = Recording(tmp_path)
    found = lapses(window(recording, everything(recording)).window, 90.0, 30.0)
    assert found == [(1.0, 41.0, pytest.approx(95.0))]
