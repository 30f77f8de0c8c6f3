"""Two flame graphs over one tree; only a change that chance does not make is significant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sexton.model.profile import Flame, FlameDifference, Profile
from sexton.profile import difference as differ
from sexton.profile.difference import Cut, Items, Side, block_counts, difference, difference_of
from sexton.profile.flame import flame_of, merge_flames
from sexton.profile.select import ALL, Selection, mask
from tests.profile.naive import by_path, lists, paths_of
from tests.profile.test_select import selections
from tests.profile.test_timeline import Held
from tests.support.profiles import SECOND, Sample, profile_of

EVERY = ALL._replace(idle=True)


class Capture(Held):
    """And its flame graph."""

    def flame(self, selection: Selection) -> Flame:
        return merge_flames([flame_of(profile, selection) for profile in self.profiles()])

    def profiles(self, start_ns: int | None = None, end_ns: int | None = None) -> Iterator[Profile]:
        yield from self._profiles


@given(lists, lists)
def test_both_sides_keep_their_counts(before, after):
    flames = [flame_of(profile_of(side), EVERY) for side in (before, after)]
    found = difference_of(*flames)
    for own, side in ((found.before, before), (found.after, after)):
        assert paths_of(Flame(found.tree, own, "")) == by_path(side)
    assert np.isnan(found.q).all()
    for share, side in zip(shares(found), (before, after), strict=True):
        assert share[0] == (1 if side else 0)
        assert ((share >= 0) & (share <= 1)).all()


@given(lists, selections, st.integers(1, SECOND), st.data())
def test_block_counts_are_what_counting_under_each_node_gives(samples, selection, block, data):
    profile = profile_of(samples)
    nodes = data.draw(st.sets(st.integers(0, len(profile.tree) - 1), min_size=1))
    chosen_nodes = np.array(sorted(nodes), np.int32)
    cut = Cut(SECOND // 4, block, 5)
    same = np.arange(len(profile.tree), dtype=np.int32)
    found = block_counts(profile, selection, Items(profile.tree, chosen_nodes, same), cut)
    expected: Counter[tuple[int, int]] = Counter()
    for at in np.flatnonzero(mask(profile, selection)).tolist():
        number = (int(profile.time_ns[at]) - cut.start_ns) // block
        if 0 <= number < cut.number:
            expected[number, -1] += 1
            for column, node in enumerate(chosen_nodes.tolist()):
                if node <= profile.node[at] < profile.tree.end[node]:
                    expected[number, column] += 1
    for number in range(cut.number):
        assert found.samples[number] == expected[number, -1]
        assert [expected[number, column] for column in range(len(nodes))] == found.counts[
            number
        ].tolist()


def shares(found: FlameDifference) -> list[np.ndarray]:
    """Each node's share of its side, with everything below it; zeros for an empty side."""
    sides = (found.before, found.after)
    return [found.tree.totals(own) / max(int(own.sum()), 1) for own in sides]


def share_of(found: FlameDifference, name: str) -> tuple[float, float, float]:
    """The shares and the q of the one node that is called so."""
    (node,) = [
        at
        for at, frame in enumerate(found.tree.frame.tolist())
        if found.tree.frames.names[frame] == name
    ]
    before, after = shares(found)
    return float(before[node]), float(after[node]), float(found.q[node])


def steady(seconds: Sequence[int], each: int, hot: float, seed: int) -> list[Sample]:
    """So many samples a second, a share of them in `hot`."""
    random = np.random.default_rng(seed)
    return [
        Sample(
            second * SECOND + at * SECOND // each,
            stack=("main", "hot" if random.random() < hot else "cold"),
        )
        for second in seconds
        for at in range(each)
    ]


def test_a_change_that_lasts_is_significant_and_sameness_is_not():
    samples = steady(range(20), 100, 0.2, 1) + steady(range(20, 40), 100, 0.5, 2)
    held = Capture(profile_of(samples[:1500]), profile_of(samples[1500:]))
    before, after = Selection(0, 20 * SECOND), Selection(20 * SECOND, 40 * SECOND)
    found = difference(Side(held, before), Side(held, after))
    was, now, q = share_of(found, "hot")
    assert was < 0.25 < 0.45 < now
    assert q < 1e-6
    same = difference(
        Side(held, before._replace(end_ns=10 * SECOND)),
        Side(held, before._replace(start_ns=10 * SECOND)),
    )
    assert share_of(same, "hot")[2] > 0.05


def test_one_burst_is_one_event_however_many_samples_it_has():
    calm = steady(range(30), 50, 0.0, 3)
    burst = [Sample(35 * SECOND + at, stack=("main", "hot")) for at in range(150)]
    held = Capture(profile_of(calm + steady(range(30, 60), 50, 0.0, 4) + burst))
    found = difference(
        Side(held, Selection(0, 30 * SECOND)), Side(held, Selection(30 * SECOND, 60 * SECOND))
    )
    was, now, q = share_of(found, "hot")
    assert (was, round(now, 2)) == (0, 0.09)
    assert q > 0.05


def test_a_new_task_of_a_few_seconds_is_not_significant_and_how_much_was_compared_is_kept():
    calm = steady(range(6), 50, 0.0, 3)
    new = [Sample(4 * SECOND + at * SECOND // 25, stack=("main", "new")) for at in range(37)]
    held = Capture(profile_of(calm + new))
    found = difference(
        Side(held, Selection(0, 3 * SECOND)), Side(held, Selection(3 * SECOND, 6 * SECOND))
    )
    was, now, q = share_of(found, "new")
    assert (was, round(now, 1)) == (0, 0.2)
    assert q > 0.05
    assert found.blocks == (8, 8)
    few = difference(
        Side(held, Selection(0, SECOND // 5)), Side(held, Selection(3 * SECOND, 6 * SECOND))
    )
    assert few.blocks == (2, 8)
    assert np.isnan(few.q).all()


def test_rare_nodes_and_captures_without_timestamps_are_not_tested():
    samples = [*steady(range(20), 10, 0.5, 5), Sample(1, stack=("main", "once"))]
    held = Capture(profile_of(samples))
    halves = Selection(end_ns=10 * SECOND), Selection(start_ns=10 * SECOND)
    found = difference(*(Side(held, half) for half in halves))
    assert np.isnan(share_of(found, "once")[2])
    assert not np.isnan(share_of(found, "hot")[2])
    bare = Capture(profile_of(samples, timed=False))
    assert np.isnan(difference(Side(bare, ALL), Side(bare, ALL)).q).all()


def test_only_so_many_nodes_are_tested_the_largest_with_all_above_them(monkeypatch):
    monkeypatch.setattr(differ, "MOST_TESTED", 3)
    held = Capture(profile_of(steady(range(20), 20, 0.2, 6)))
    halves = Selection(end_ns=10 * SECOND), Selection(start_ns=10 * SECOND)
    found = difference(*(Side(held, half) for half in halves))
    tested = np.flatnonzero(~np.isnan(found.q)).tolist()
    assert len(tested) == 3
    parents = found.tree.parents()
    assert all(parents[node] in (-1, *tested) for node in tested)


def test_an_empty_side_is_no_error():
    held = Capture(profile_of(steady(range(5), 20, 0.2, 7)))
    found = difference(Side(held, ALL), Side(held, Selection(pids=frozenset({99}))))
    assert found.after.sum() == 0
    assert np.isnan(found.q).all()
