"""The yardstick itself: what counts as overreach when a source is hidden, and what as weaker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.hidden_source import WithoutTables, decisive_tables, effect, overreach, trials
from lab.incident import Expected, top_cause
from sexton.explain.diagnosis import diagnose
from sexton.model.chain import Chain, Link, Strength
from sexton.model.finding import Verdict
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.unit import Unit
from sexton.model.window import SourceState, Window
from tests.support.incident import incident

EXPECTED = Expected(
    "crash_looping_unit", ("crash_looping_unit", "zombie_memcgs"), (), ("soft_lockups",), 1
)


@pytest.fixture(scope="module")
def window():
    return incident()


@pytest.fixture(scope="module")
def whole(window):
    return diagnose(window)


def blaming(diagnosis, root, strength):
    """The same diagnosis with one more chain."""
    link = Link("x_y", root, "nic_resets", strength, "because")
    return replace(diagnosis, chains=(Chain((link,)), *diagnosis.chains))


def test_a_hidden_table_was_never_read(window):
    seen = WithoutTables(window, CoreTimes)
    assert seen.batches(CoreTimes) is None
    assert seen.batches(Unit) == window.batches(Unit)
    assert window.batches(CoreTimes) is not None


def test_the_incident_without_its_census_is_unknown_and_blames_nobody_else(window, whole):
    after = diagnose(WithoutTables(window, CgroupCensus))
    assert after.by_id["zombie_memcgs"].verdict is Verdict.UNKNOWN
    assert [*overreach(whole, after, EXPECTED)] == []
    assert effect(whole, after) in ("unknown", "gone", "shorter", "weaker")


def test_every_decisive_table_is_tried_and_then_every_source_that_gives_several(window, whole):
    hidden = decisive_tables(whole, window)
    assert CgroupCensus in hidden
    known = Window(
        {kind: window.batches(kind) for kind in (CgroupCensus, CgroupDir, CoreTimes)},
        providers={CgroupCensus: "census", CgroupDir: "census", CoreTimes: "stat"},
        states=[SourceState(name, "/x", "ok") for name in ("census", "stat")],
    )
    tried = [trial.hidden for trial in trials(known, [CgroupCensus, CoreTimes])]
    assert tried == ["cgroup_census", "core_times", "census"]


def test_another_confident_cause_is_overreach_and_a_possible_one_is_not(whole):
    sure = blaming(whole, "soft_lockups", Strength.LIKELY)
    unsure = blaming(whole, "soft_lockups", Strength.POSSIBLE)
    assert [*overreach(whole, sure, EXPECTED)] == ["blames soft_lockups (likely)"]
    assert [*overreach(whole, unsure, EXPECTED)] == []


def test_a_later_beginning_of_the_same_story_is_no_other_cause(whole):
    later = replace(whole, chains=(Chain(whole.chains[0].links[1:]),))
    assert [*overreach(whole, later, EXPECTED)] == []
    assert effect(whole, later) == "gone"


def test_a_link_that_is_surer_for_knowing_less_is_overreach(whole):
    links = whole.chains[0].links
    doubtful = tuple(replace(link, strength=Strength.POSSIBLE) for link in links)
    before = replace(whole, chains=(Chain(doubtful),))
    told = [*overreach(before, whole, EXPECTED)]
    assert any("became" in entry and "was possible" in entry for entry in told)


def test_a_new_problem_is_overreach(whole):
    healthy = diagnose(incident(zombies=False, burning=False, resets=False, looping=False))
    nothing = Expected(None, (), (), ("zombie_memcgs",), 0)
    told = [*overreach(healthy, whole, nothing)]
    assert any(entry.startswith("finds zombie_memcgs") for entry in told)
    assert top_cause(healthy) is None
