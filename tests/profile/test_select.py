"""The mask agrees with checking the conditions sample by sample."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import CommandError
from sexton.profile.select import ALL, Selection, below, mask, matching_frames
from tests.profile.naive import chosen, lists
from tests.support.profiles import SECOND, Sample, profile_of

times = st.none() | st.integers(-1, 3 * SECOND + 1)
selections = st.builds(
    Selection,
    start_ns=times,
    end_ns=times,
    cpus=st.none() | st.frozensets(st.integers(-1, 4)),
    pids=st.none() | st.frozensets(st.integers(0, 4)),
    task=st.none() | st.sampled_from([re.compile("swapper"), re.compile("^k.*d/1$")]),
    cgroup=st.none() | st.sampled_from([re.compile("a"), re.compile("^/kube"), re.compile("")]),
    stack=st.none()
    | st.sampled_from([re.compile(text) for text in ("read", "^net_", "app", "idle", "")]),
    event=st.none() | st.sampled_from(["cpu-clock", "cycles:P", "none such"]),
    idle=st.booleans(),
)


@given(lists, selections)
def test_the_mask_is_what_asking_every_sample_gives(samples, selection):
    ordered = sorted(samples, key=lambda sample: sample.time_ns)
    found = mask(profile_of(samples), selection).tolist()
    assert found == [chosen(sample, selection) for sample in ordered]


@given(lists)
def test_without_conditions_all_but_idle_samples_are_chosen(samples):
    profile = profile_of(samples)
    assert mask(profile, ALL._replace(idle=True)).all()
    assert mask(profile, ALL).tolist() == mask(profile, Selection(idle=False)).tolist()


def test_a_pattern_finds_a_function_anywhere_on_the_stack_but_not_the_task():
    profile = profile_of(
        [
            Sample(0, stack=("main", "read", "work")),
            Sample(1, stack=("main",), comm="read"),
            Sample(2, stack=("read", "read")),
        ]
    )
    assert mask(profile, Selection(stack=re.compile("read"))).tolist() == [True, False, True]
    found = below(profile.tree, matching_frames(profile.tree, re.compile("nothing")))
    assert not found.any()


def test_the_end_of_a_range_is_not_in_it():
    profile = profile_of([Sample(10), Sample(20), Sample(30)])
    assert mask(profile, Selection(10, 30)).tolist() == [True, True, False]
    assert mask(profile, Selection(30, 10)).tolist() == [False, False, False]


def test_a_range_of_samples_without_times_is_refused_in_one_line():
    profile = profile_of([Sample(10)], timed=False)
    with pytest.raises(CommandError, match=r"^made: no timestamps"):
        mask(profile, Selection(start_ns=5))
    assert mask(profile, ALL).all()
