from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.synthetic import write
from sexton.errors import StoreError
from sexton.explorer.tiles.flames import Who
from sexton.explorer.tiles.view import View
from sexton.model.profile import Kind
from sexton.profile.captures import open_profile
from sexton.profile.flame import functions
from sexton.profile.select import Selection
from tests.support.synthetic import small

INCIDENT = Path(__file__).parents[2] / "incidents" / "whole_chain-6.18-v1" / "recording"


@pytest.fixture(scope="module")
def view() -> View:
    return View.open(INCIDENT)


def test_a_flame_graph_is_that_of_the_profile_engine(view: View):
    assert view.span is not None
    start, end = view.span[0] + 40, view.span[0] + 60
    opened = open_profile([INCIDENT])
    chosen = [opened.time_ns(value) for value in (start, end)]
    expected = opened.flame(Selection(*chosen))
    found = view.flame(start, end)
    assert found.samples == expected.samples > 100
    assert found.core_seconds == expected.core_seconds
    assert found is view.flame(start, end)


def test_a_flame_graph_of_a_core_a_task_or_a_cgroup_is_a_part_of_it(view: View):
    assert view.span is not None
    every = view.flame(*view.span).samples
    cores = [view.flame(*view.span, Who(cpu=cpu)).samples for cpu in (0, 1)]
    assert sum(cores) == every
    walker = view.flame(*view.span, Who(task="lab-walker"))
    assert 0 < walker.samples < every
    names, kinds = walker.tree.frames.names, walker.tree.frames.kinds
    assert {name for name, kind in zip(names, kinds, strict=True) if kind == Kind.TASK} == {
        "lab-walker"
    }


def test_words_from_a_page_are_no_patterns(view: View):
    assert view.span is not None
    assert view.flame(*view.span, Who(task="(a+)+$")).samples == 0
    assert view.flame(*view.span, Who(task=".*")).samples == 0


def test_the_functions_are_those_with_most_samples_first(view: View):
    assert view.span is not None
    found = functions(view.flame(*view.span))[:5]
    assert len(found) == 5
    assert [function.own for function in found] == sorted(
        (function.own for function in found), reverse=True
    )


def test_the_difference_names_what_grew(view: View):
    assert view.span is not None
    spike = view.found("spike", view.span[0])
    assert spike is not None
    assert spike.end is not None
    calm = (view.span[0], view.span[0] + 40)
    found = view.difference((spike.time, spike.end), calm)
    after = found.tree.totals(found.after) / max(int(found.after.sum()), 1)
    before = found.tree.totals(found.before) / max(int(found.before.sum()), 1)
    grown = int(np.argmax((after - before) * (found.tree.depth > 1)))
    assert found.tree.frames.kinds[found.tree.frame[grown]] == Kind.KERNEL


def test_where_no_stacks_were_recorded_it_says_so(view: View):
    with pytest.raises(StoreError, match="no stacks were recorded"):
        view.flame(0.0, 10.0)


def test_the_stacks_of_an_earlier_boot_are_found_by_their_time(tmp_path: Path):
    plan = small("zombie_walk", stack_hertz=20, stack_nodes=200, hours=0.12, reboot_at=150.0)
    write(tmp_path, plan)
    view = View.open(tmp_path)
    assert view.span is not None
    early = view.flame(plan.start + 20, plan.start + 40)
    late = view.flame(view.span[1] - 40, view.span[1] - 20)
    # 4 cores, 20 samples a second each: idle ones are not in it.
    assert 0 < early.samples <= 4 * 20 * 20
    assert 0 < late.samples <= 4 * 20 * 20
    assert early.core_seconds == pytest.approx(80, rel=0.1)
    ((asleep, awake),) = view.gaps()
    assert awake - asleep > 60
    with pytest.raises(StoreError):
        view.flame(asleep + 5, awake - 5)
