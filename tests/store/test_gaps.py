"""A recorder that was stopped, or a machine that slept, is a gap wherever it falls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sexton.explorer.tiles.view import View
from sexton.replay.signals import recorded_in
from sexton.replay.span import everything
from sexton.replay.window import window
from sexton.series.cores import core_series
from sexton.store.recording import Recording
from sexton.store.schema import tables
from sexton.store.summary import summarise
from tests.support.recordings import WALL_S, cores, marks, simple, write_open, write_sealed

CORE = tables()["core_times"]


@pytest.mark.parametrize("write", [write_sealed, write_open])
def test_a_pause_inside_a_segment_is_a_gap(tmp_path: Path, write):
    write(tmp_path, [simple(1.0), simple(3.0), simple(64.0)])
    recording = Recording(tmp_path)
    found = summarise(recording)
    assert [gap[:3] for gap in found.gaps] == [(WALL_S + 4.0, WALL_S + 64.0, 60.0)]
    assert found.watched_s == pytest.approx(4.0)
    assert found.jumps == []
    span = everything(recording)
    assert [note.partition(" from ")[0] for note in span.notes] == ["nothing was recorded"]
    assert recorded_in(recording, span) == ((1.0, 4.0), (64.0, 65.0))
    assert View.open(tmp_path).gaps() == [(WALL_S + 4.0, WALL_S + 64.0)]


@pytest.mark.parametrize(("pause", "gap"), [(14.0, False), (16.0, True)])
@pytest.mark.parametrize("segments_apart", [False, True])
def test_a_gap_of_the_recording_is_a_gap_of_its_rates(
    tmp_path: Path, pause: float, gap: bool, segments_apart: bool
):
    flushes = [{CORE: [cores(1.0), cores(2.0)]}, {CORE: [cores(2.0 + pause), cores(3.0 + pause)]}]
    for number, part in enumerate([[one] for one in flushes] if segments_apart else [flushes], 1):
        write_sealed(tmp_path, part, number)
    recording = Recording(tmp_path)
    span = everything(recording)
    rates = core_series(window(recording, span).window)
    assert [len(summarise(recording).gaps), len(span.notes)] == [gap, gap]
    assert len(recorded_in(recording, span)) == 1 + gap
    assert rates is not None
    known = ~np.isnan(rates.percent(rates.user)[0])
    assert (rates.end - rates.start)[known].sum() == pytest.approx(2.0 if gap else 2.0 + pause)


def test_tables_that_are_all_read_seldom_have_no_gaps(tmp_path: Path):
    write_sealed(tmp_path, [{CORE: [cores(60.0 * minute)]} for minute in range(1, 8)])
    recording = Recording(tmp_path)
    assert summarise(recording).gaps == []
    assert everything(recording).notes == ()


def test_a_table_that_comes_late_fills_the_gap_it_seemed_to_leave(tmp_path: Path):
    slow = tables()["mark"]
    late = [{CORE: [cores(1.0), cores(2.0), cores(31.0)]}]
    write_sealed(tmp_path, [*late, {slow: [marks(1, float(second)) for second in range(3, 31)]}])
    assert summarise(Recording(tmp_path)).gaps == []


def test_a_clock_that_jumps_inside_a_segment_is_told_where_it_did(tmp_path: Path):
    after = [replace(batch, wall_s=batch.wall_s - 7200) for batch in (cores(3.0), cores(4.0))]
    write_sealed(tmp_path, [{CORE: [cores(1.0), cores(2.0)]}, {CORE: after}])
    found = summarise(Recording(tmp_path))
    assert found.gaps == []
    assert found.jumps == [(WALL_S + 3.0 - 7200, -7200.0)]
