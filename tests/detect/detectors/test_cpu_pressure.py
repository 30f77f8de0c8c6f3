"""Tasks that wait for a core: how many, how long, who takes it and who does not get it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.detect.detectors.cpu.cpu_pressure import detect
from sexton.explain.diagnosis import ruled_out
from sexton.explain.subject import concerns
from sexton.model.finding import Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCpu
from sexton.model.rows.cpu import CoreTimes, ReadyTasks, RunQueue
from sexton.model.rows.memory import Pressure
from sexton.model.rows.task import Process, ProcessCgroup
from sexton.model.why import Subject
from sexton.model.window import Window
from tests.support.windows import make_window

CORES = 2


def core(cpu: int, at: float, busy: float) -> CoreTimes:
    user = round(1000 * at * busy)
    return CoreTimes(cpu, user, 0, 0, round(1000 * at) - user, 0, 0, 0, 0)


def process(pid: int, at: float, share: float, comm: str = "hog", state: str = "R") -> Process:
    return Process(pid, 1, comm, state, 5, round(1000 * at * share), 0, 0, 1, False)


def psi(at: float, some: float) -> Pressure:
    return Pressure("cpu", "some", 0.0, 0.0, 0.0, round(1e6 * at * some))


def seen(seconds: int, ready: float | None, busy: float = 1.0, *, more=lambda _: ()):
    """A reading a second; `ready` tasks are running or ready at each."""

    def rows(at: int) -> list[Row]:
        found: list[Row] = [core(cpu, at, busy) for cpu in range(CORES)]
        if ready is not None:
            found.append(ReadyTasks(round(ready), 0))
        return [*found, *more(at)]

    return make_window([(float(at), rows(at)) for at in range(seconds + 1)])


@pytest.mark.parametrize(
    ("ready", "seconds", "busy", "verdict", "severity"),
    [
        (25, 12, 1.0, Verdict.PRESENT, Severity.CRITICAL),
        (18, 12, 1.0, Verdict.PRESENT, Severity.CRITICAL),
        (17, 12, 1.0, Verdict.PRESENT, Severity.WARNING),
        (10, 12, 1.0, Verdict.PRESENT, Severity.WARNING),
        (9, 12, 1.0, Verdict.ABSENT, Severity.INFO),
        (2, 60, 1.0, Verdict.ABSENT, Severity.INFO),
        (25, 12, 0.85, Verdict.ABSENT, Severity.INFO),
        (25, 5, 1.0, Verdict.PRESENT, Severity.WARNING),
        (12, 5, 1.0, Verdict.UNKNOWN, Severity.INFO),
        (4, 5, 1.0, Verdict.ABSENT, Severity.INFO),
        (25, 2, 1.0, Verdict.UNKNOWN, Severity.INFO),
    ],
)
def test_the_limits(ready, seconds, busy, verdict, severity):
    finding = detect(seen(seconds, ready, busy))
    assert (finding.verdict, finding.severity) == (verdict, severity), finding.summary


def test_a_full_batch_node_is_well_however_high_its_pressure_is():
    """A worker per core and a few more: PSI is near 100 %, and nobody waits for long."""
    finding = detect(seen(60, 5, more=lambda at: [psi(at, 0.99)]))
    assert finding.verdict is Verdict.ABSENT
    assert "1.5 tasks per core waited" in finding.summary


def test_a_burst_in_a_quiet_minute_is_over_before_it_counts():
    def burst(at: int) -> list[Row]:
        return [ReadyTasks(40 if 20 <= at < 25 else 1, 0)]

    assert detect(seen(60, None, more=burst)).verdict is Verdict.ABSENT


def test_the_neighbour_is_named_by_its_program():
    def tasks(at: int) -> list[Row]:
        hogs = [process(pid, at, 0.15) for pid in range(10, 22)]
        return [*hogs, process(99, at, 0.05, "sshd"), process(98, at, 0.1, "idle", "S")]

    finding = detect(seen(12, 25, more=tasks))
    assert "hog (12 processes) took 92 % of the CPU time" in finding.summary
    assert "sshd[99]" in finding.entities["task"]
    assert any(each.what == "sshd[99] got" for each in finding.evidence)
    assert not any(each.what == "idle[98] got" for each in finding.evidence)
    assert finding.entities["core"] == ("0", "1")


def test_a_program_that_ran_for_two_seconds_did_not_take_all_of_them():
    """Half a core for twelve seconds is more than a whole one for two."""

    def tasks(at: int) -> list[Row]:
        brief = [process(20, at - 4, 1.0, "brief")] if 4 <= at <= 6 else []
        return [process(10, at, 0.5, "long"), *brief]

    finding = detect(seen(12, 25, more=tasks))
    assert "long[10] took 75 % of the CPU time" in finding.summary


def test_the_neighbour_is_named_by_its_unit_and_those_who_wait_by_their_cgroups():
    def cgroups(at: int) -> list[Row]:
        def used(path: str, share: float, waited: float) -> CgroupCpu:
            return CgroupCpu(path, round(1e6 * at * share), round(1e6 * at * waited))

        return [
            used("/system.slice", 2.0, 1.0),
            used("/system.slice/noisy.service", 1.8, 0.2),
            used("/system.slice/noisy.service/inner", 1.7, 0.2),
            used("/system.slice/web.service", 0.1, 0.93),
        ]

    finding = detect(seen(12, 25, more=cgroups))
    assert "noisy.service took 85 % of the CPU time" in finding.summary
    assert finding.entities["unit"] == ("noisy.service",)
    assert "/system.slice/web.service waited" in {each.what for each in finding.evidence}
    assert concerns(finding, Subject("unit", "web.service"))


def test_who_waited_is_named_with_its_unit_and_is_found_by_it():
    def rows(at: int) -> list[Row]:
        every = [
            CgroupCpu("/system.slice", round(1e6 * at * 2.0), None),
            CgroupCpu("/system.slice/noisy.service", round(1e6 * at * 1.8), None),
            CgroupCpu("/system.slice/web.service", round(1e6 * at * 0.2), None),
            *(process(pid, at, 0.09) for pid in range(10, 30)),
            process(99, at, 0.05, "web"),
        ]
        if at == 5:
            every += [
                *(
                    ProcessCgroup(pid, "/system.slice/noisy.service", False)
                    for pid in range(10, 30)
                ),
                ProcessCgroup(99, "/system.slice/web.service", False),
            ]
        return every

    finding = detect(seen(12, 25, more=rows))
    assert "noisy.service took 90 % of the CPU time; web[99] in web.service got 5 % of a core" in (
        finding.summary
    )
    assert finding.entities["unit"] == ("noisy.service",)  # whose weight the advice lowers
    assert concerns(finding, Subject("unit", "web.service"))
    assert "web[99] in web.service got" in {each.what for each in finding.evidence}
    assert not any(each.what.startswith("hog[") for each in finding.evidence)


def test_a_task_that_waited_is_named_before_the_kernels_threads():
    """rcu_preempt is runnable often under load, and needs next to nothing of a core."""

    def rows(at: int) -> list[Row]:
        thread = Process(15, 2, "rcu_preempt", "R", 0, 0, 0, 0, 1, True)
        waits = process(7, float(at), 0.1, comm="trainer")
        return [thread, waits, *(process(100 + each, float(at), 0.3) for each in range(6))]

    finding = detect(seen(12, 12, more=rows))
    assert "; trainer[7] got 10 % of a core" in finding.summary


def test_a_core_that_was_given_little_time_counts_as_little():
    """One core is 82 % busy, the other lost three quarters of its ticks and had none to spare."""

    def cores(at: int) -> list[Row]:
        lost = CoreTimes(1, 250 * at, 0, 0, 0, 0, 0, 0, 0)
        return [core(0, at, 0.82), lost, ReadyTasks(25, 0)]

    window = make_window([(float(at), cores(at)) for at in range(13)])
    finding = detect(window)
    assert finding.verdict is Verdict.ABSENT
    assert finding.evidence[-1].number == pytest.approx(100 * (0.82 + 0.25) / 1.25, abs=0.01)


def test_pressure_is_that_of_the_whole_stretch():
    """Its first second was full, and the other eleven half: no mean of the two steps."""

    def pressed(at: int) -> list[Row]:
        some = {0: 0, 1: 1_000_000, 12: 6_500_000}
        return [Pressure("cpu", "some", 0.0, 0.0, 0.0, some[at])] if at in some else []

    finding = detect(seen(12, 25, more=pressed))
    (line,) = (each for each in finding.evidence if each.what == "time in which some task waited")
    assert line.number == pytest.approx(100 * 6.5 / 12, abs=0.01)


def test_a_cgroup_waited_for_a_share_of_the_seconds_that_are_known():
    def cgroups(at: int) -> list[Row]:
        waited = None if 3 <= at <= 9 else round(9.3e5 * at)
        return [CgroupCpu("/web", round(5e5 * at), waited)]

    finding = detect(seen(12, 25, more=cgroups))
    (line,) = (each for each in finding.evidence if each.what == "/web waited")
    assert line.number == pytest.approx(93, abs=0.1)
    assert line.unit.startswith("% of 4.0 s,")


def test_time_outside_of_every_cgroup_is_not_the_neighbours():
    """All cgroups together used a quarter of the time: nobody in them took half of it."""
    finding = detect(seen(12, 25, more=lambda at: [CgroupCpu("/a", round(5e5 * at), None)]))
    assert "/a took 25 % of the CPU time" in finding.summary


def test_schedstat_counts_where_nothing_else_does():
    def queues(at: int) -> list[Row]:
        return [RunQueue(cpu, 0, at * 5_000_000_000, 0) for cpu in range(CORES)]

    finding = detect(seen(12, None, more=queues))
    assert finding.severity is Severity.WARNING
    assert "10 tasks waited for 2 cores" in finding.summary
    stopped = detect(seen(12, None, 0.4, more=queues))  # by a quota: the cores are idle
    assert stopped.verdict is Verdict.ABSENT


@pytest.mark.parametrize(
    ("some", "busy", "verdict"),
    [(0.97, 1.0, Verdict.PRESENT), (0.97, 0.5, Verdict.ABSENT), (0.6, 1.0, Verdict.ABSENT)],
)
def test_pressure_alone_is_noted_and_no_more(some, busy, verdict):
    finding = detect(seen(12, None, busy, more=lambda at: [psi(at, some)]))
    assert (finding.verdict, finding.severity) == (verdict, Severity.INFO)


def test_without_any_count_it_is_unknown():
    finding = detect(seen(12, None))
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.missing


def test_counters_that_went_backwards_are_unknown():
    rows = [
        (0.0, [core(0, 9, 1.0), ReadyTasks(25, 0)]),
        (9.0, [core(0, 1, 1.0), ReadyTasks(25, 0)]),
    ]
    assert detect(make_window(rows)).verdict is Verdict.UNKNOWN


def test_a_hostile_name_is_escaped():
    finding = detect(seen(12, 25, more=lambda at: [process(7, at, 0.9, "x\x1b[2J")]))
    assert "\x1b" not in finding.summary + "".join(each.what for each in finding.evidence)


def lapsed(waited_s: float, *more: CgroupCpu, busy: float = 1.0):
    """A reading a second, none for 17 s in between; tasks waited for so long of those, the cores
    had so much to do, and `more` was read after it."""

    def rows(at: int) -> list[Row]:
        late = at >= 47
        used = [CgroupCpu("/batch.slice", 30_000_000 * late, None), CgroupCpu("/sshd", 1000, None)]
        used += more if late else [replace(row, used_us=0, waited_us=0) for row in more]
        some = Pressure("cpu", "some", 0.0, 0.0, 0.0, round(1e6 * waited_s) * late)
        idle = [core(cpu, at - 17 * late, 0.1) for cpu in range(CORES)]
        gone = core(0, 17 * late, busy)
        cores = [
            replace(row, user_ms=row.user_ms + gone.user_ms, idle_ms=row.idle_ms + gone.idle_ms)
            for row in idle
        ]
        return [*cores, ReadyTasks(1, 0), some, *used]

    return make_window([(float(at), rows(at)) for at in (*range(31), *range(47, 70))])


def test_a_node_too_short_of_cpu_time_to_be_read_is_told_by_its_counters():
    finding = detect(lapsed(15.9))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.WARNING)
    assert "nothing could be read for 17.0 s" in finding.summary
    assert "/batch.slice took 100 % of the CPU time" in finding.summary
    assert finding.entities["cgroup"] == ("/batch.slice",)


def test_who_waited_is_told_by_the_counters_too_but_not_the_one_that_took_the_time():
    job = CgroupCpu("/system.slice/job.service", 400_000, 15_300_000)
    calm = CgroupCpu("/calm.slice", 100_000, 500_000)
    workers = CgroupCpu("/workers.slice", 60_000_000, 16_900_000)
    finding = detect(lapsed(15.9, job, calm, workers))
    assert finding.summary.endswith(
        "/workers.slice took 67 % of the CPU time; job.service waited 90 % of the time"
    )
    assert finding.entities["cgroup"] == ("/workers.slice", "/system.slice/job.service")
    (stood,) = (each for each in finding.evidence if each.source == "cpu.pressure")
    assert (stood.what, stood.number) == ("/system.slice/job.service waited", pytest.approx(90))


def test_a_gap_in_which_nobody_waited_is_only_a_gap():
    finding = detect(lapsed(1.0))
    assert (finding.verdict, finding.missing) == (Verdict.ABSENT, ())


def test_tasks_that_their_quota_stopped_wait_on_idle_cores():
    finding = detect(lapsed(15.9, busy=0.4))
    assert (finding.verdict, finding.missing) == (Verdict.ABSENT, ())


def test_a_gap_that_may_hide_ten_busy_seconds_is_not_ruled_out():
    window = lapsed(13.0, busy=0.8)
    finding = detect(window)
    assert finding.verdict is Verdict.ABSENT
    assert finding.missing[0].what == "whether tasks waited for a core in 17.0 s without a reading"
    assert ruled_out([finding], window) == ()


def test_every_worker_of_the_neighbour_is_named_and_a_task_that_used_little_is_not():
    def tasks(at: int) -> list[Row]:
        hogs = [process(pid, at, 0.15) for pid in range(10, 22)]
        return [*hogs, process(99, at, 0.05, "sshd")]

    finding = detect(seen(12, 25, more=tasks))
    for pid in range(10, 22):
        assert concerns(finding, Subject("task", f"hog[{pid}]"))
    named = detect(seen(12, 25, more=lambda at: [process(n, at, 0.02) for n in range(10, 99)]))
    assert len(named.entities["task"]) <= 20 + 3


def test_the_neighbour_is_named_though_tasks_were_not_read_in_between():
    """The recorder itself got too little time: one reading before, and one after."""

    def tasks(at: int) -> list[Row]:
        if at not in (2, 20):
            return []
        started = [replace(process(pid, at, 0.15), start_ms=3_000) for pid in range(10, 22)]
        hogs = started if at == 20 else []
        return [*hogs, process(99, at, 0.05, "sshd")]

    window = seen(24, 25, more=tasks)
    kinds = (CoreTimes, ReadyTasks)
    read = [replace(batch, follows=False) for batch in window.batches(Process) or ()]
    window = Window({**{kind: window.batches(kind) or () for kind in kinds}, Process: read})
    finding = detect(window)
    assert "hog (12 processes) took 98 % of the CPU time" in finding.summary
    assert concerns(finding, Subject("task", "hog[21]"))
    assert not concerns(finding, Subject("task", "sshd"))
