"""Job deaths that were marked in the recording."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.jobs.job_deaths import detect
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.recorder import Mark
from sexton.model.window import Batch, Bounds, Window
from tests.support.windows import EPOCH, make_window


def run(*texts: str) -> Finding:
    """Each mark a minute after the one before."""
    marks = [(60.0 * (number + 1), [Mark(text)]) for number, text in enumerate(texts)]
    return detect(make_window([(0.0, []), *marks, (3600.0, [])], empty=(Mark,)))


@pytest.mark.parametrize(
    "text",
    [
        "job 17 died",
        "Job 17 DIED at step 4000",
        "ray: ActorDiedError",
        "ray.exceptions.ObjectFetchTimedOutError",
        "trainer killed by SIGKILL",
        "rank 3 crashed",
        "run failed",
        "worker lost",
        "pod evicted",
        "NCCL timeout on rank 12",
        "node unreachable",
        "pod trainer-0 OOMKilled",
    ],
)
def test_words_for_an_end_are_a_death(text):
    finding = run(text)
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)
    assert not finding.is_problem, "a remark makes no node sick"
    assert finding.entities == {"job": (text,)}
    assert (finding.start, finding.end) == (EPOCH + 60, EPOCH + 60)


@pytest.mark.parametrize("text", ["new image", "kernel updated", "deadline moved", "no job died"])
def test_other_remarks_are_none(text):
    assert run(text).verdict is Verdict.ABSENT


@pytest.mark.parametrize("text", ["job 17 started", "training looks slow", "pod trainer-0"])
def test_a_job_without_its_end_leaves_it_open(text):
    finding = run(text)
    assert finding.verdict is Verdict.UNKNOWN
    assert 'sexton recording mark DIR "job 17 died"' in finding.missing[0].grant


def test_several_are_counted_and_the_last_leads():
    finding = run("job 1 died", "new image", "job 2 died")
    assert finding.summary == '"job 2 died" (marked by hand) (and 1 more before)'
    assert finding.entities["job"] == ("job 1 died", "job 2 died")
    assert (finding.start, finding.end) == (EPOCH + 60, EPOCH + 180)
    assert "(and 2 more before)" in run("job 1 died", "job 2 died", "job 3 died").summary


def test_nobody_said_anything_is_not_applicable_live_and_recorded():
    assert run().verdict is Verdict.NOT_APPLICABLE
    assert detect(make_window([(0.0, [])], empty=(CoreTimes,))).verdict is Verdict.NOT_APPLICABLE


def test_a_remark_from_outside_the_window_is_not_of_it():
    batches = {Mark: [Batch(10.0, EPOCH + 10, (Mark("job 1 died"),))]}
    window = Window(batches, bounds=Bounds(EPOCH + 100, EPOCH + 200, 100.0, 200.0))
    assert detect(window).verdict is Verdict.NOT_APPLICABLE


def test_a_long_hostile_remark_is_cut_and_escaped():
    finding = run("job \x1b[2J died " + "x" * 400)
    (job,) = finding.entities["job"]
    assert len(job) < 140
    assert "\x1b" not in job + finding.summary
