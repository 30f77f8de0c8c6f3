"""Units of lanes: all of them stand in the catalogue of metrics, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sexton.explorer.files.capture
import sexton.explorer.lanes
from sexton.explorer.tiles.registry import Declared, all_lanes
from sexton.explorer.tiles.view import View
from sexton.series.catalogue import ALL_CORES, METRICS, SAMPLES
from tests.explorer.tiles.test_flames import INCIDENT

NUMBERS = [lane for lane in all_lanes() if lane.kind != "marks"]
FILES = [
    *Path(sexton.explorer.lanes.__path__[0]).glob("*.py"),
    Path(sexton.explorer.files.capture.__file__),
]


@pytest.mark.parametrize("lane", NUMBERS, ids=lambda lane: lane.id)
def test_a_lane_of_numbers_has_a_unit_of_the_catalogue(lane: Declared):
    assert lane.unit in {metric.unit for metric in METRICS if metric.unit} | {ALL_CORES, SAMPLES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_unit_is_not_written_down_again(path: Path):
    assert not re.search(r"(?:unit|draws)\"?[=:] ?\"[^\"]", path.read_text())


@pytest.mark.parametrize(
    ("lane", "headings"),
    [
        (
            "average",
            ("time", *(f"{name} (% of all cores)" for name in ("user", "system", "softirq"))),
        ),
        ("softirq_wait", ("time", "NET_RX longest (ms)", "NET_TX longest (ms)")),
    ],
)
def test_the_headings_of_a_table_have_units(lane: str, headings: tuple[str, ...]):
    view = View.open(INCIDENT)
    assert view.span is not None
    assert view.table(lane, view.span[0], view.span[0] + 5).headings == headings
