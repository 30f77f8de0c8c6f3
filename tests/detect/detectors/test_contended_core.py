"""Tasks that wait for one core: how many, how long, who they are, and whether they are pinned."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.cpu.contended_core import NAME, detect
from sexton.detect.registry import detector_of
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes, ReadyTasks, RunQueue
from sexton.model.rows.task import Process, Thread
from sexton.model.window import Window
from tests.support.windows import make_window

SECOND = 1_000_000_000
CORES = 4


def core(cpu: int, at: float, busy: float) -> CoreTimes:
    user = round(1000 * at * busy)
    return CoreTimes(cpu, user, 0, 0, round(1000 * at) - user, 0, 0, 0, 0)


def process(pid: int, at: float, share: float, comm: str = "hog", cpu: int = 1) -> Process:
    return Process(pid, 1, comm, "R", 5, round(1000 * at * share), 0, cpu, 1, False)


def watched(
    seconds: int, waiting: float, busy: tuple[float, float] = (1.0, 0.1), more=lambda _: ()
) -> Window:
    """A reading a second; so many wait for core 1, which is busy to the first part, others to the
    second."""

    def rows(at: int) -> list[Row]:
        found: list[Row] = [core(cpu, at, busy[cpu != 1]) for cpu in range(CORES)]
        waits = [waiting if cpu == 1 else 0.0 for cpu in range(CORES)]
        found += [RunQueue(cpu, 0, round(waits[cpu] * at * SECOND), 0) for cpu in range(CORES)]
        return [*found, *more(at)]

    return make_window([(float(at), rows(at)) for at in range(seconds + 1)])


@pytest.mark.parametrize(
    ("waiting", "seconds", "busy", "verdict", "severity"),
    [
        (5, 12, (1.0, 0.1), Verdict.PRESENT, Severity.WARNING),
        (4, 12, (1.0, 0.1), Verdict.PRESENT, Severity.WARNING),
        (3.9, 12, (1.0, 0.1), Verdict.ABSENT, Severity.INFO),
        (5, 12, (0.91, 0.1), Verdict.PRESENT, Severity.WARNING),
        (5, 12, (0.89, 0.1), Verdict.ABSENT, Severity.INFO),
        (5, 12, (1.0, 0.89), Verdict.PRESENT, Severity.WARNING),
        (5, 12, (1.0, 0.91), Verdict.ABSENT, Severity.INFO),
        (5, 9, (1.0, 0.1), Verdict.PRESENT, Severity.WARNING),
        (5, 8, (1.0, 0.1), Verdict.UNKNOWN, Severity.INFO),
        (3, 8, (1.0, 0.1), Verdict.ABSENT, Severity.INFO),
    ],
)
def test_the_limits(waiting, seconds, busy, verdict, severity):
    finding = detect(watched(seconds, waiting, busy))
    assert (finding.verdict, finding.severity) == (verdict, severity), finding.summary


def test_a_burst_is_over_before_it_counts():
    def rows(at: int) -> list[Row]:
        waited = 9 * min(max(at - 20, 0), 5)
        return [core(0, at, 1.0), core(1, at, 0.0), RunQueue(0, 0, waited * SECOND, 0)]

    finding = detect(make_window([(float(at), rows(at)) for at in range(60)]))
    assert finding.verdict is Verdict.ABSENT
    assert "4.5 tasks waited for one (core 0)" in finding.summary


def test_tasks_that_a_quota_stopped_do_not_wait_for_the_core():
    """The kernel counts them as waiting, but not among the ready tasks of the node."""
    few = watched(12, 5, more=lambda _: [ReadyTasks(2, 0)])
    many = watched(12, 5, more=lambda _: [ReadyTasks(7, 0)])
    assert detect(few).verdict is Verdict.ABSENT
    assert detect(many).verdict is Verdict.PRESENT


def named(*tasks: tuple[int, float, str, int]) -> Finding:
    return detect(watched(12, 5, more=lambda at: [process(pid, at, *task) for pid, *task in tasks]))


def test_who_takes_it_and_who_waits():
    finding = named((10, 0.9, "hog", 1), (11, 0.02, "sshd", 1), (12, 0.5, "far", 2))
    assert "hog[10] took 98 % of it; all stayed there, likely pinned" in finding.summary
    assert finding.entities["task"] == ("hog[10]", "sshd[11]")
    assert any(item.what == "sshd[11] got" for item in finding.evidence)
    assert not any("far" in item.what for item in finding.evidence)


def test_a_task_that_runs_elsewhere_too_is_not_pinned():
    def rows(at: int) -> list[Row]:
        return [process(10, at, 0.2), process(11, at, 0.2, "guest", 2 if at == 6 else 1)]

    finding = detect(watched(12, 5, more=rows))
    assert "1 of 2 stayed there, likely pinned" in finding.summary
    evidence = next(item for item in finding.evidence if "never seen off" in item.what)
    assert (evidence.value, evidence.number) == ("1 of 2", 1.0)
    assert "taskset" in evidence.wrong_if


@pytest.mark.parametrize(
    ("others", "stay", "verdict", "severity"),
    [
        (0.1, 3, Verdict.PRESENT, Severity.WARNING),
        (0.1, 2, Verdict.ABSENT, Severity.INFO),
        (0.95, 4, Verdict.PRESENT, Severity.INFO),
        (0.95, 3, Verdict.ABSENT, Severity.INFO),
    ],
)
def test_how_many_of_six_must_stay(others, stay, verdict, severity):
    """More where the other cores are full: tasks that come and go are not bound to it."""

    def rows(at: int) -> list[Row]:
        moved = 2 if at in (4, 8) else 1
        return [process(pid, at, 0.16, cpu=1 if pid < stay else moved) for pid in range(6)]

    finding = detect(watched(12, 5, (1.0, others), more=rows))
    assert (finding.verdict, finding.severity) == (verdict, severity)


def test_threads_are_named_where_a_process_has_several():
    """Its leader sleeps on another core."""

    def rows(at: int) -> list[Row]:
        leader = Process(10, 1, "train", "S", 5, round(1000 * at), 0, 0, 6, False)
        threads = [
            Thread(10, tid, "omp", "R", 5, round(200 * at), 0, 1, 0, 0) for tid in range(11, 16)
        ]
        return [leader, *threads]

    finding = detect(watched(12, 4, more=rows))
    assert "omp (5 tasks) took 100 % of it" in finding.summary
    assert finding.entities["task"][0] == "omp[10/11]"


def test_sleepers_are_not_named():
    def rows(at: int) -> list[Row]:
        return [Process(10, 1, "idle", "S", 5, 0, 0, 1, 1, False)]

    finding = detect(watched(12, 5, more=rows))
    assert "task" not in finding.entities or not finding.entities["task"]
    assert "pinned" not in finding.summary


def test_without_processes_the_core_is_named_alone():
    finding = detect(watched(12, 5))
    assert finding.entities["core"] == ("1",)
    assert finding.missing


def uncounted(ready: int, hogs: int, seconds: int = 12, period: int = 2) -> Window:
    """A kernel without /proc/schedstat; tasks are read every two seconds."""

    def rows(at: int) -> list[Row]:
        found: list[Row] = [core(cpu, at, 1.0 if cpu == 1 else 0.1) for cpu in range(CORES)]
        found.append(ReadyTasks(ready, 0))
        if at % period == 0:
            found += [process(pid, at, 0.9 / hogs) for pid in range(10, 10 + hogs)]
            found.append(process(9, at, 0.3, "sexton", 0))
        return found

    return make_window([(float(at), rows(at)) for at in range(seconds + 1)])


def test_without_schedstat_the_tasks_themselves_are_counted():
    finding = detect(uncounted(ready=8, hogs=6))
    assert finding.severity is Severity.WARNING
    assert "5 tasks waited for core 1 for 12.0 s while 3 other cores were 90 %" in finding.summary
    assert "hog (6 tasks) took 100 % of it; all stayed there, likely pinned" in finding.summary
    assert finding.evidence[0].source == "/proc/PID/stat, /proc/stat"


@pytest.mark.parametrize(
    ("ready", "hogs", "words"),
    [
        (6, 4, "3.0 tasks waited for one (core 1)"),
        (2, 1, "0.7 tasks waited for all cores together"),
        (3, 6, "1.7 tasks waited for all cores together"),
    ],
    ids=["too few", "one alone", "stopped by a quota"],
)
def test_without_schedstat_too_few_ready_tasks_are_no_queue(ready, hogs, words):
    finding = detect(uncounted(ready, hogs))
    assert finding.verdict is Verdict.ABSENT
    assert words in finding.summary


def test_without_schedstat_and_tasks_it_is_unknown():
    finding = detect(watched_without(RunQueue, more=lambda _: [ReadyTasks(8, 0)]))
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.missing


def watched_without(kind: type[Row], more) -> Window:
    """Twelve seconds of a crowded core in which one kind of rows was not read."""
    whole = watched(12, 5, more=more)
    kinds = [name for name in (CoreTimes, RunQueue, ReadyTasks) if name is not kind]
    read = [(batch.mono_s, batch.rows) for name in kinds for batch in whole.batches(name) or ()]
    return make_window(read)


def test_a_counter_that_went_backwards_is_unknown():
    readings = [(0.0, 9), (9.0, 1)]
    rows = [(at, [core(0, at, 1.0), RunQueue(0, 0, waited, 0)]) for at, waited in readings]
    assert detect(make_window(rows)).verdict is Verdict.UNKNOWN


def test_a_node_with_one_core_has_no_other():
    rows = [(float(at), [core(0, at, 1.0), RunQueue(0, 0, at * 9 * SECOND, 0)]) for at in range(13)]
    assert detect(make_window(rows)).verdict is Verdict.ABSENT


def test_the_steps_to_look_further():
    declared = detector_of(NAME)
    assert declared is not None
    assert declared.advice is not None
    window = watched(12, 5, more=lambda at: [process(10, at, 0.2, "a[1]/b")])
    steps = declared.advice.steps(declared.run(window), window)
    assert [step.do for step in steps] == [
        "ps -eLo psr,stat,pcpu,pid,comm | awk '$1 == 1 && $2 ~ /^R/'",
        "taskset -acp 10",
    ]


def test_a_hostile_name_is_escaped():
    finding = named((10, 0.9, "\x1b[2J", 1))
    assert finding.entities["task"] == ("\\x1b[2J[10]",)
    assert "\x1b" not in finding.summary
