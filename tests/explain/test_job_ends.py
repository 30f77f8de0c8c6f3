"""From what breaks on a node to the job that dies of it: order in time, words, and doubt."""

from __future__ import annotations

import pytest

from sexton.explain.links.jobs import fabric_error_ends_job
from sexton.explain.registry import all_rules, rule_of
from sexton.model.chain import Strength
from sexton.model.finding import Severity
from sexton.model.rows.recorder import Mark
from tests.explain.making import finding, window

#: Link, its cause, a mark that names it, and how sure a mark is that names nothing.
LINKS = [
    ("full_filesystem_ends_job", "full_filesystem", "No space left on device", Strength.POSSIBLE),
    ("filesystem_error_ends_job", "filesystem_errors", "Read-only file system", Strength.LIKELY),
    ("stuck_io_ends_job", "stuck_io", "Input/output error", Strength.LIKELY),
    ("memory_error_ends_job", "memory_errors", "Bus error (core dumped)", Strength.LIKELY),
    ("gpu_error_ends_job", "gpu_errors", "CUDA error: an illegal access", Strength.LIKELY),
    ("fabric_error_ends_job", "fabric_errors", "NCCL remote error", Strength.LIKELY),
    ("clock_step_ends_job", "clock_steps", "lease expired", Strength.POSSIBLE),
    ("heat_slows_job", "thermal_throttling", "heartbeat missed", Strength.POSSIBLE),
]
every = pytest.mark.parametrize(("name", "cause", "words", "soon"), LINKS)


def join(name: str, cause: str, text: str, at: float, **entities):
    """The death of a job, marked at that second; the cause lasted from 100 to 130."""
    rule = rule_of(name)
    death = finding("job_deaths", (at, at), job=(text,))
    return rule.join(finding(cause, (100.0, 130.0), **entities), death, window({at: [Mark(text)]}))


@every
def test_a_death_whose_mark_names_it_is_as_sure_as_it_gets(name, cause, words, soon):
    for at in (101.0, 130.0, 190.0):
        link = join(name, cause, f"job 17 died: {words}", at)
        assert link.strength.rank >= Strength.LIKELY.rank
        assert not link.against


@every
def test_without_words_it_depends_on_how_soon(name, cause, words, soon):
    assert join(name, cause, "job 17 died", 105.0).strength is soon
    assert join(name, cause, "job 17 died", 161.0).strength is Strength.POSSIBLE
    assert join(name, cause, "job 17 died", 729.0).strength is Strength.POSSIBLE


@every
def test_no_link_where_the_job_died_before_or_much_later(name, cause, words, soon):
    assert join(name, cause, f"job 17 died: {words}", 97.0) is None
    assert join(name, cause, f"job 17 died: {words}", 731.0) is None


@every
def test_a_mark_that_names_another_cause_speaks_against_it(name, cause, words, soon):
    link = join(name, cause, "job 17 was preempted", 105.0)
    assert link.against == ('"job 17 was preempted" names another cause of death',)


def test_a_mark_that_names_the_thing_names_the_cause():
    link = join("full_filesystem_ends_job", "full_filesystem", "job died writing /data", 110.0,
                mount=("/data",))  # fmt: skip
    assert link.strength is Strength.PROVEN


@pytest.mark.parametrize(
    ("name", "cause", "severity"),
    [
        ("memory_error_ends_job", "memory_errors", Severity.WARNING),
        ("gpu_error_ends_job", "gpu_errors", Severity.INFO),
        ("fabric_error_ends_job", "fabric_errors", Severity.INFO),
        ("heat_slows_job", "thermal_throttling", Severity.INFO),
    ],
)
def test_what_ends_no_job_is_not_linked_to_one(name, cause, severity):
    """Corrected errors, a program's own faults, single dropped packets."""
    rule = rule_of(name)
    death = finding("job_deaths", (105.0, 105.0), job=("job 17 died",))
    noted = finding(cause, (100.0, 130.0), severity=severity)
    assert rule.join(noted, death, window({105.0: [Mark("job 17 died")]})) is None


def test_packet_errors_alone_are_possible_at_most():
    death = finding("job_deaths", (105.0, 105.0), job=("job died: NCCL time-out",))
    noted = finding("fabric_errors", (100.0, 130.0), severity=Severity.WARNING)
    seen = window({105.0: [Mark("job died: NCCL time-out")]})
    assert fabric_error_ends_job.join(noted, death, seen).strength is Strength.POSSIBLE


def test_every_link_of_this_kind_is_tested_here():
    by_rule = {
        rule.id for rule in all_rules() if rule.join.__globals__.get("ended") is not None
    }  # fmt: skip
    assert by_rule == {name for name, *_ in LINKS}
