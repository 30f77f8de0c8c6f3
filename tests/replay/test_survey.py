"""Columns must say of hours what the detector says of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.detect.detectors import saturated_core
from sexton.model.cpu import CoreTimes
from sexton.model.unit import Unit
from sexton.model.window import Batch
from sexton.replay import changes, span
from sexton.replay.span_reader import Shelf
from sexton.replay.survey import survey_cores
from sexton.series.steps import steps
from sexton.store.recording import Recording
from tests.support.examples import examples
from tests.support.recordings import WALL_S, scratch, write_open, write_sealed


@st.composite
def core_times(draw: st.DrawFn) -> list[Batch[Any]]:
    """Cores that idle, burn, go offline and come back with counters anew."""
    counters = dict.fromkeys(range(draw(st.integers(1, 4))), 1000)
    made = []
    at = 100.0
    for _ in range(draw(st.integers(2, 14))):
        at += draw(st.sampled_from((0.9, 1.0, 1.0, 1.25)))
        rows = []
        for cpu in counters:
            grown = draw(st.sampled_from((5, 400, 900, 1000, 1250, -700)))
            counters[cpu] = max(counters[cpu] + grown, 0)
            if draw(st.sampled_from((True, True, True, True, False))):
                rows.append(CoreTimes(cpu, 7, 0, counters[cpu], 1, 1, 3, 4, 0))
        made.append(Batch(at, WALL_S + at, tuple(rows)))
    return made


def written(place: Path, batches: list[Batch[Any]], parts: int) -> Shelf:
    """The same readings in so many segments, the last of them open."""
    size = -(-len(batches) // parts)
    pieces = [batches[at : at + size] for at in range(0, len(batches), size)]
    for sequence, piece in enumerate(pieces, 1):
        put = write_open if sequence == len(pieces) else write_sealed
        put(place, [{type(self_of(batches)): piece}], sequence)
    recording = Recording(place)
    return Shelf(recording, span.everything(recording))


def self_of(batches: list[Batch[Any]]) -> Any:
    """Any row there is, for its type."""
    return next(row for batch in batches for row in batch.rows)


@given(core_times(), st.integers(1, 4))
@settings(max_examples=examples(60), deadline=None)
def test_the_survey_finds_the_runs_and_the_worst_step_that_the_detector_finds(
    batches: list[Batch[Any]], parts: int
):
    if not any(batch.rows for batch in batches):
        return
    with scratch() as place:
        found = survey_cores(written(place, batches, parts))
    batches = [batch for batch in batches if batch.rows]  # a core table is never empty
    moved = (saturated_core._slice(step) for _, step in steps(batches, lambda row: row.cpu))
    slices = [each for each in moved if each is not None]
    runs = [(run.core, run.start, run.end) for run in saturated_core._runs(slices)]
    assert len(found.held) == len(runs)
    for core, start, end in runs:
        assert any(
            each.core == core and each.seconds == pytest.approx(end - start) for each in found.held
        )
    if slices:
        worst = max(slices, key=lambda each: each.share)
        moments = [(core, float(found.times[at])) for core, at in found.telling]
        assert (worst.core, worst.end) in moments


def unit(name: str, restarts: int, started: int, ended: int = 0) -> Unit:
    return Unit(
        name, "loaded", "active", "running", None, restarts, None, None, started, ended, None, None,
        1, None, "",
    )  # fmt: skip


def test_units_are_kept_where_their_restarts_do_not_add_up_and_where_they_were_last_seen():
    readings = [
        (unit("steady", 0, 5), unit("loops", 1, 10), unit("leaves", 3, 9)),
        (unit("steady", 0, 5), unit("loops", 2, 20), unit("leaves", 3, 9)),
        (unit("steady", 0, 5), unit("loops", 0, 30), unit("leaves", 3, 9)),
        (unit("steady", 0, 5), unit("loops", 4, 40, 45)),
        (unit("steady", 0, 5), unit("loops", 5, 50)),
    ]
    batches = [Batch(100.0 + at, WALL_S + at, rows) for at, rows in enumerate(readings)]
    for parts in (1, 2, 5):
        with scratch() as place:
            kept = changes.of_units(written(place, batches, parts))
        assert kept == {101.0: {"loops"}, 102.0: {"loops", "leaves"}, 103.0: {"loops"}}


def test_between_readings_with_others_left_out_there_is_no_step():
    def reading(at: float, value: int, follows: bool = True) -> Batch[CoreTimes]:
        row = CoreTimes(0, 0, 0, value, 0, 0, 0, 0, 0)
        return Batch(at, at, (row,), follows)

    batches = [reading(1, 0), reading(2, 10), reading(9, 80, follows=False), reading(10, 90)]
    made = [step.end_mono for _, step in steps(batches, lambda row: row.cpu)]
    assert made == [2, 10]
    made = [step.end_mono for _, step in steps(batches, lambda row: row.cpu, over_gaps=True)]
    assert made == [2, 9, 10]
