"""From stolen time to tasks that wait, and from those to a dead job."""

from __future__ import annotations

import pytest

from sexton.explain.links.cpu import stolen_time_starves_tasks
from sexton.explain.links.jobs import contended_core_ends_job, starved_tasks_end_job
from sexton.model.chain import Strength
from sexton.model.rows.recorder import Mark
from tests.explain.making import EMPTY, evidence, finding, window


@pytest.mark.parametrize(
    ("share", "waiting", "core", "start", "expected"),
    [
        (60, 5, "1", 101.0, Strength.LIKELY),
        (30, 5, "1", 101.0, Strength.POSSIBLE),
        (60, 30, "1", 101.0, Strength.POSSIBLE),
        (60, 5, "3", 101.0, None),
        (60, 5, "1", 500.0, None),
        (60, 5, "1", 20.0, None),
    ],
)
def test_stolen_time_starves_the_same_core_in_the_same_seconds(
    share, waiting, core, start, expected
):
    steal = finding("cpu_steal", (100.0, 120.0), [evidence("core 1, stolen", share)], core=("1",))
    crowd = finding(
        "cpu_pressure", (start, start + 10), [evidence("tasks waiting", waiting)], core=("0", core)
    )
    link = stolen_time_starves_tasks.join(steal, crowd, EMPTY)
    assert (link.strength if link else None) is expected
    if link is not None:
        assert bool(link.against) is (waiting == 30)


@pytest.mark.parametrize(
    ("died", "job", "expected"),
    [
        (130.0, "job 17 died", Strength.POSSIBLE),
        (130.0, "job 17: heartbeat timed out", Strength.LIKELY),
        (400.0, "job 17: heartbeat timed out", Strength.POSSIBLE),
        (90.0, "job 17: heartbeat timed out", None),
        (2_000.0, "job 17 died", None),
    ],
)
@pytest.mark.parametrize(
    ("cause", "rule"),
    [("cpu_pressure", starved_tasks_end_job), ("contended_core", contended_core_ends_job)],
)
def test_a_job_dies_after_its_tasks_waited_and_not_before(died, job, expected, cause, rule):
    crowd = finding(cause, (100.0, 110.0), core=("0",))
    view = window({0: [], died: [Mark(job)]})
    death = finding("job_deaths", (died, died), job=(job,))
    link = rule.join(crowd, death, view)
    assert (link.strength if link else None) is expected


def test_a_mark_that_names_memory_speaks_against_it():
    job = "job 17: OOMKilled"
    crowd = finding("cpu_pressure", (100.0, 110.0), core=("0",))
    death = finding("job_deaths", (120.0, 120.0), job=(job,))
    link = starved_tasks_end_job.join(crowd, death, window({120: [Mark(job)]}))
    assert "names another cause" in link.against[0]
