"""Heat is an exact count."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sexton.model.profile import CELL_NS, CELLS, Heat, empty_heat
from sexton.profile import heat as module
from sexton.profile.heat import add_heat, disjoint, heat_of, heat_of_choice, of_cores, within
from sexton.profile.select import Selection
from tests.profile.naive import chosen, idle, lists, samples
from tests.profile.test_select import selections
from tests.support.profiles import SECOND, Sample, function, profile_of

WORK = ("main", "k:read")
SLEEP = ("k:do_idle",)


def counted(given_samples, weighted=False, hot=lambda sample: not idle(sample)):
    """samples, busy, kernel per (second, cpu), and busy per (second, cpu, cell)."""
    found = {}
    for sample in given_samples:
        row = found.setdefault((sample.time_ns // SECOND, sample.cpu), [0, 0, 0, Counter()])
        number = sample.weight if weighted else 1
        row[0] += number
        if hot(sample):
            row[1] += number
            kernel = bool(sample.stack) and function(sample.stack[-1])[2].name == "KERNEL"
            row[2] += number if kernel else 0
            row[3][sample.time_ns % SECOND // CELL_NS] += number
    return found


def shown(heat: Heat):
    """A heat in the same shape."""
    return {
        (second, cpu): [count, busy, kernel, Counter({i: n for i, n in enumerate(cells) if n})]
        for second, cpu, count, busy, kernel, cells in zip(
            *(array.tolist() for array in (heat.second, heat.cpu, heat.samples)),
            *(array.tolist() for array in (heat.busy, heat.kernel, heat.cells)),
            strict=True,
        )
    }


@given(lists, st.booleans())
def test_heat_is_what_counting_sample_by_sample_gives(given_samples, weighted):
    heat = heat_of(profile_of(given_samples, weighted=weighted))
    assert shown(heat) == counted(given_samples, weighted)
    keys = list(zip(heat.second.tolist(), heat.cpu.tolist(), strict=True))
    assert keys == sorted(set(keys))
    assert heat.cells.dtype == np.uint16


@given(lists)
def test_the_heat_of_one_event_leaves_the_others_out(given_samples):
    heat = heat_of(profile_of(given_samples), "cycles:P")
    assert shown(heat) == counted(
        [sample for sample in given_samples if sample.event == "cycles:P"]
    )


@given(lists, selections)
def test_the_heat_of_a_choice_is_zero_where_sampled_and_absent_elsewhere(given_samples, selection):
    profile = profile_of(given_samples)
    taken = Selection(
        selection.start_ns, selection.end_ns, selection.cpus, event=selection.event, idle=True
    )
    expected = counted(
        [sample for sample in given_samples if chosen(sample, taken)],
        hot=lambda each: chosen(each, selection),
    )
    assert shown(heat_of_choice(profile, selection)) == expected


@given(st.lists(lists, max_size=4))
def test_adding_heats_is_the_heat_of_everything(groups):
    whole = [item for group in groups for item in group]
    parts = [heat_of(profile_of(group)) for group in groups]
    assert shown(add_heat(parts)) == counted(whole)


@given(st.lists(lists, max_size=4))
def test_disjoint_parts_share_no_second_and_lose_nothing(groups):
    parts = [heat_of(profile_of(group)) for group in groups]
    parts = sorted((part for part in parts if len(part)), key=lambda part: int(part.second[0]))
    found = list(disjoint(parts))
    seconds = [set(part.second.tolist()) for part in found]
    assert sum(map(len, seconds)) == len(set().union(*seconds))
    assert shown(add_heat(found)) == counted([item for group in groups for item in group])


@given(st.lists(samples, max_size=30), st.integers(1, 5))
def test_cells_counted_in_parts_are_the_same(given_samples, rows):
    before = module._ROWS_AT_ONCE
    module._ROWS_AT_ONCE = rows
    try:
        assert shown(heat_of(profile_of(given_samples))) == counted(given_samples)
    finally:
        module._ROWS_AT_ONCE = before


def test_far_apart_times_and_noise_for_core_numbers_are_counted_as_well():
    wild = [
        Sample(index * 10**17 - 10**17, cpu=(-1) ** index * (2**31 - 1 - index), stack=WORK)
        for index in range(3000)
    ]
    assert shown(heat_of(profile_of(wild[:90]))) == counted(wild[:90])
    many = [Sample(index * SECOND, cpu=index * 700_000, stack=WORK) for index in range(3000)]
    heat = heat_of(profile_of(many))
    assert len(heat) == 3000
    assert heat.cpu.tolist() == [sample.cpu for sample in many]


def test_a_count_that_does_not_fit_stays_at_the_most():
    many = [Sample(0, stack=WORK, weight=3 * 10**9), Sample(1, stack=WORK, weight=2)]
    heat = heat_of(profile_of(many, weighted=True))
    assert heat.samples.tolist() == heat.busy.tolist() == [2**31 - 1]
    assert heat.cells[0, 0] == 2**16 - 1
    twice = add_heat([heat, heat])
    assert twice.busy.tolist() == [2**31 - 1]
    assert twice.cells[0, 0] == 2**16 - 1


def test_samples_without_times_have_no_heat():
    assert len(heat_of(profile_of([Sample(5, stack=WORK)], timed=False))) == 0
    assert len(add_heat([])) == len(add_heat([empty_heat()])) == 0


def test_a_range_keeps_the_seconds_it_touches_and_cores_are_chosen():
    heat = heat_of(profile_of([Sample(t * SECOND + 5, cpu=t % 2, stack=WORK) for t in range(6)]))
    assert within(heat, 2 * SECOND + 9, 4 * SECOND).second.tolist() == [2, 3]
    assert within(heat, 2 * SECOND, 4 * SECOND + 1).second.tolist() == [2, 3, 4]
    assert within(heat, None, None).second.tolist() == list(range(6))
    assert within(heat, 4 * SECOND, 2 * SECOND).second.tolist() == []
    assert of_cores(heat, {1, 7}).second.tolist() == [1, 3, 5]


def test_an_idle_core_is_sampled_and_not_busy():
    heat = heat_of(profile_of([Sample(0, stack=SLEEP, comm="swapper")]))
    assert (heat.samples.tolist(), heat.busy.tolist()) == ([1], [0])
    assert heat.cells.shape == (1, CELLS)
    assert not heat.cells.any()
