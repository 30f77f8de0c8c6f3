"""Samples of a selection, column by column."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import CommandError
from sexton.model.profile import Profile
from sexton.profile.select import ALL, Selection
from sexton.profile.timeline import MOST_COLUMNS, timeline
from tests.profile.naive import chosen, lists
from tests.profile.test_select import selections
from tests.support.profiles import SECOND, Sample, profile_of


class Held:
    """Profiles as an opened capture gives them."""

    def __init__(self, *profiles: Profile) -> None:
        self._profiles = profiles

    @property
    def span_ns(self) -> tuple[int, int] | None:
        spans = [profile.span_ns for profile in self._profiles if profile.span_ns is not None]
        return (min(spans)[0], max(end for _, end in spans)) if spans else None

    def profiles(self, start_ns: int | None = None, end_ns: int | None = None) -> Iterator[Profile]:
        yield from self._profiles


@given(
    st.lists(lists.filter(bool), min_size=1, max_size=3),
    selections,
    st.integers(SECOND // 50, SECOND),
    st.booleans(),
)
def test_a_timeline_is_what_counting_sample_by_sample_gives(groups, selection, column_ns, by_core):
    whole = [item for group in groups for item in group]
    found = timeline(Held(*map(profile_of, groups)), selection, column_ns, by_core)
    start = min(e.time_ns for e in whole) if selection.start_ns is None else selection.start_ns
    end = max(e.time_ns for e in whole) + 1 if selection.end_ns is None else selection.end_ns
    ranged = selection._replace(start_ns=start, end_ns=max(end, start + 1))
    taken = Selection(*ranged[:3], event=selection.event, idle=True)

    def counted(asked: Selection) -> Counter[tuple[int, int]]:
        return Counter(
            (item.cpu if by_core else 0, (item.time_ns - start) // column_ns)
            for item in whole
            if chosen(item, asked)
        )

    matched, sampled = counted(ranged), counted(taken)
    assert found.start_ns == start
    assert found.cpus == (tuple(sorted({cpu for cpu, _ in sampled})) if by_core else None)
    for row, cpu in enumerate(found.cpus if found.cpus is not None else (0,)):
        for column in range(found.matched.shape[1]):
            key = cpu, column
            assert found.sampled[row, column] == sampled[key]
            assert found.matched[row, column] == (matched[key] if sampled[key] else -1)
    assert found.sampled.sum() == sum(sampled.values())


def test_a_share_is_of_all_samples_and_unknown_without_samples():
    held = Held(
        profile_of(
            [
                Sample(0, stack=("main", "read")),
                Sample(1, stack=("main",)),
                Sample(2 * SECOND, stack=("k:do_idle",), comm="swapper"),
            ]
        )
    )
    found = timeline(held, Selection(stack=re.compile("^read$")), SECOND)
    assert found.matched.tolist() == [[1, -1, 0]]
    np.testing.assert_array_equal(found.shares, [[0.5, np.nan, 0.0]])


def test_weights_are_added():
    held = Held(profile_of([Sample(0, stack=("a",), weight=3), Sample(1, weight=4)], weighted=True))
    assert timeline(held, ALL, SECOND).matched.tolist() == [[7]]


def test_samples_without_times_and_too_many_columns_are_refused():
    with pytest.raises(CommandError, match="samples have no timestamps"):
        timeline(Held(profile_of([Sample(0)], timed=False)), ALL, SECOND)
    long = Held(profile_of([Sample(0), Sample(MOST_COLUMNS * 10)]))
    with pytest.raises(CommandError, match="are too many: use wider columns or a shorter range"):
        timeline(long, ALL, 1)
    many = Held(profile_of([Sample(t, cpu=t % 50) for t in range(900_000, 900_050)]))
    with pytest.raises(CommandError, match="for each of 50 cores are too many"):
        timeline(many, Selection(start_ns=0), 9, by_core=True)
