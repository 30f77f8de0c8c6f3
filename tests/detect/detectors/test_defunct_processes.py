"""Zombie processes: how many stay, and who does not reap them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sexton.detect.detectors.jobs.defunct_processes import detect
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.task import Process
from sexton.model.window import Window
from tests.support.windows import make_window

INIT = Process(1, 0, "init", "S", 0, 0, 0, 0, 1, False)


def process(pid: int, ppid: int = 1, state: str = "Z", start_ms: int = 5) -> Process:
    return Process(pid, ppid, "sh", state, start_ms, 0, 0, 0, 1, False)


def window(*readings: Iterable[Process]) -> Window:
    return make_window([(2.0 * turn, [INIT, *rows]) for turn, rows in enumerate(readings)])


@pytest.mark.parametrize(
    ("number", "verdict", "severity"),
    [
        (0, Verdict.ABSENT, Severity.INFO),
        (19, Verdict.ABSENT, Severity.INFO),
        (20, Verdict.PRESENT, Severity.INFO),
        (99, Verdict.PRESENT, Severity.INFO),
        (100, Verdict.PRESENT, Severity.WARNING),
    ],
)
def test_the_limits(number, verdict, severity):
    rows = [process(pid) for pid in range(100, 100 + number)]
    finding = detect(window(rows, rows))
    assert (finding.verdict, finding.severity) == (verdict, severity)
    assert finding.evidence[0].number == number


def test_the_parent_that_reaps_least_is_named_first():
    parent = Process(40, 1, "leaky", "S", 1, 0, 0, 0, 3, False)
    rows = [parent, *(process(pid, 40) for pid in range(100, 190))]
    rows += [process(pid, 1) for pid in range(300, 320)]
    finding = detect(window(rows, rows))
    assert finding.entities["task"] == ("leaky[40]", "init[1]")
    assert "110 defunct processes (not dying cgroups), 90 of them not reaped by leaky[40]" in (
        finding.summary
    )


def test_those_that_are_reaped_between_readings_do_not_count():
    first = [process(pid) for pid in range(100, 250)]
    last = [process(pid) for pid in range(400, 550)]
    assert detect(window(first, last)).verdict is Verdict.ABSENT


def test_a_reused_process_id_is_another_process():
    first = [process(pid, start_ms=5) for pid in range(100, 250)]
    last = [process(pid, start_ms=9) for pid in range(100, 250)]
    assert detect(window(first, last)).verdict is Verdict.ABSENT


def test_one_reading_counts_and_says_what_it_cannot_tell():
    finding = detect(window([process(pid) for pid in range(100, 250)]))
    assert finding.severity is Severity.WARNING
    assert "about to be reaped" in finding.evidence[0].wrong_if


def test_a_leader_whose_threads_still_run_is_not_defunct():
    rows = [Process(pid, 1, "java", "Z", 1, 0, 0, 0, 8, False) for pid in range(100, 250)]
    assert detect(window(rows, rows)).verdict is Verdict.ABSENT


def test_a_parent_that_is_hidden_is_named_by_its_id():
    rows = [process(pid, 777) for pid in range(100, 250)]
    assert detect(window(rows, rows)).entities["task"] == ("?[777]",)


def test_a_hostile_parent_name_is_escaped():
    parent = Process(40, 1, "a) R 1\nx", "S", 1, 0, 0, 0, 1, False)
    rows = [parent, *(process(pid, 40) for pid in range(100, 250))]
    assert detect(window(rows, rows)).entities["task"] == ("a) R 1\\nx[40]",)
