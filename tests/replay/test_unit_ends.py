"""Every end of a unit, whatever a long window leaves out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from lab.synthetic import Told, write
from lab.synthetic.plan import PERIOD_S
from sexton.replay.span import Span, everything
from sexton.replay.unit_ends import unit_ends
from sexton.store.recording import Recording
from tests.support.synthetic import small


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return write(tmp_path_factory.mktemp("loop") / "recording", small("crash_loop", hours=0.1))


def whole(told: Told) -> tuple[Recording, Span]:
    recording = Recording(Path(told.directory))
    return recording, everything(recording)


def test_a_crash_loop_is_found_end_by_end(told: Told):
    recording, span = whole(told)
    ends = unit_ends(recording, span, "ecs.service")
    assert len(ends) > 0.9 * 360 / PERIOD_S - 1
    steps = [b - a for a, b in pairwise(ends)]
    assert min(steps) == pytest.approx(PERIOD_S, abs=0.1)
    assert all(span.holds(end) for end in ends)


def test_a_part_of_the_recording_has_a_part_of_them(told: Told):
    recording, span = whole(told)
    middle = (span.start[0] + span.end[0]) / 2
    part = Span(span.boot_id, span.start, (middle, span.start[1] + middle - span.start[0]))
    ends = unit_ends(recording, part, "ecs.service")
    assert ends == [end for end in unit_ends(recording, span, "ecs.service") if end <= middle]


def test_a_unit_that_is_not_there_has_none(told: Told):
    assert unit_ends(*whole(told), "no-such.service") == []
