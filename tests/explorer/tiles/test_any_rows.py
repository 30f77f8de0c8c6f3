"""Whatever a recording holds, it can be looked at: sources may lie, clocks may jump."""

from __future__ import annotations

import json
from math import floor

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sexton.explorer.tiles.registry import all_lanes
from sexton.explorer.tiles.view import View
from sexton.model.lane import COLUMNS, TOP
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupEvent
from sexton.model.rows.cpu import ProbeCost
from sexton.model.text import printable
from tests.support.recordings import batches_of, scratch, write_sealed

KINDS: list[type[Row]] = sorted(
    {kind for lane in all_lanes() for kind in lane.needs} | {CgroupEvent, ProbeCost},
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_any_rows_can_be_drawn_and_tabulated(data: st.DataObject, kind: type[Row]):
    with scratch() as directory:
        write_sealed(directory, [{kind: data.draw(batches_of(kind))}], 1)
        write_sealed(directory, [{kind: data.draw(batches_of(kind, 500_000.0))}], 2)
        view = View.open(directory)
        view.warm()
        assert view.problems == []
        document = view.about()
        json.dumps(document, allow_nan=False).encode()
        assert view.span is not None
        start, end = view.span
        for lane in view.lanes():
            for level in (0, 5, TOP):
                first = floor(start) >> level
                strip = view.strip(lane.id, level, first // COLUMNS, 1)
                shapes = {plane.shape[1:] for plane in strip.planes.values()}
                assert shapes == {(len(strip.names), COLUMNS)}
            table = view.table(lane.id, start, end + 1)
            assert all(printable(cell) == cell for row in table.rows for cell in row)
            assert all(printable(name) == name for name in strip.names)
        for mark in view.marks(0, 1e12):
            shown = mark.text + mark.entity + mark.kind
            assert printable(shown) == shown
        assert view.found("spike", start) is None or kind.__name__ == "CoreTimes"
        assert view.bytes < 100_000_000
