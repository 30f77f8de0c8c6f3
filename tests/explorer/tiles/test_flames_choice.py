from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.synthetic import write
from sexton.errors import StoreError
from sexton.explorer.tiles.flames import LONGEST_S, SLICE_S, SLICES, Reach, choose
from sexton.explorer.tiles.view import View
from tests.support.synthetic import small

TIMES = st.floats(0, 1e5)


@given(st.lists(st.tuples(TIMES, TIMES, st.none() | st.integers(0, 10**9)), max_size=8), TIMES)
def test_whatever_is_looked_at_lies_in_the_span_and_where_there_are_stacks(pieces, start):
    reaches = [Reach(min(one, other), max(one, other), number) for one, other, number in pieces]
    span = (start, start + 4000.0)
    for quick in (False, True):
        found = choose(span, reaches, quick)
        assert all(span[0] <= first < last <= span[1] for first, last in found.windows)
        there = [reach for reach in reaches if max(reach.start, start) < min(reach.end, span[1])]
        assert bool(found.windows) == bool(there)
        if found.note:
            for first, last in found.windows:
                inside = sum(
                    max(0.0, min(last, reach.end) - max(first, reach.start)) for reach in there
                )
                assert inside >= (last - first) * 0.999
            looked_at = sum(last - first for first, last in found.windows)
            assert looked_at <= SLICES * SLICE_S * 1.001 or quick


def test_minutes_after_an_alarm_are_found_in_a_night():
    """Evenly spread over the night would hit none of them."""
    alarms = [Reach(at, at + 600.0, 600 * 4000) for at in (7_001.0, 20_003.0, 41_007.0)]
    found = choose((0.0, 43200.0), alarms)
    assert len(found.windows) == SLICES
    for alarm in alarms:
        mine = [w for w in found.windows if alarm.start <= w[0] < alarm.end]
        assert len(mine) == SLICES // 3
    assert "30 min 0 s" in found.note


def test_a_quarter_of_an_hour_is_looked_at_whole():
    found = choose((0.0, LONGEST_S), [Reach(0.0, 5000.0, 5000 * 9000)])
    assert found == ([(0.0, LONGEST_S)], "")


def test_a_first_look_is_a_part_and_says_so_and_then_all_is_there(tmp_path: Path):
    plan = small("zombie_walk", stack_hertz=997, stack_nodes=200, hours=0.1)
    write(tmp_path, plan)
    view = View.open(tmp_path)
    assert view.span is not None
    first, whole = view.glimpse(*view.span), view.seen(*view.span)
    assert not first.settled
    assert first.note.startswith("a preview: 3 times ")
    assert whole.settled
    assert not whole.note
    assert 0 < first.flame.samples < whole.flame.samples
    # Whoever looks again while all of it is still known gets all of it.
    assert view.glimpse(*view.span) is whole


def test_a_span_over_a_reboot_has_the_samples_of_both(tmp_path: Path):
    plan = small("zombie_walk", stack_hertz=20, stack_nodes=200, hours=0.12, reboot_at=150.0)
    write(tmp_path, plan)
    view = View.open(tmp_path)
    assert view.span is not None
    ((asleep, awake),) = view.gaps()
    parts = view.flame(asleep - 30, asleep).samples, view.flame(awake, awake + 30).samples
    assert min(parts) > 0
    assert view.flame(asleep - 30, awake + 30).samples == pytest.approx(sum(parts), rel=0.05)
    with pytest.raises(StoreError, match="no stacks were recorded"):
        view.flame(asleep + 5, awake - 5)
