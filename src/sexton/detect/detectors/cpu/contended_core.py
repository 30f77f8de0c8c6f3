"""Many tasks wait for one core while the rest of the node does not.

**What is seen.** Per core, how many tasks waited in its run queue on average over ten seconds and
more (`/proc/schedstat`; without it, tasks that were ready with that core as their last, while the
node had more ready tasks than busy cores), on a core that had nothing left to give, while other
cores were idle or at least had no such queue. By name: which processes and threads were ready
there, what they got, who took the most, and whether they ever ran elsewhere (`/proc/PID/stat`,
`/proc/PID/task/TID/stat`).

**Why it hurts.** With four tasks waiting each gets a fifth of the core, on a node whose load,
pressure and averages look idle. The scheduler moves waiting tasks to an idle core within
milliseconds, so tasks that stay are not allowed to move: by their affinity (``taskset``, an
OpenMP or MPI runtime that binds every process to the same core), by a cpuset, or on an isolated
core (``isolcpus=``), where nothing balances.

**What would make it wrong.** The allowed cores are not read: that tasks are pinned is inferred from
their never being seen on another core while some were idle; where most of them were, nothing is
reported. Tasks at a low priority (``nice``) count like others; where all other cores are busy it is
only noted, since the scheduler may pack such tasks on one core on purpose. A container with a
cpuset of its own that starts too many workers hurts only itself. Tasks that their cgroup's quota
stopped count as waiting in the kernel: that is why the core must be busy and the node have ready
tasks. Where every core has such a queue it is `cpu_pressure`. A realtime task that lets nothing run
leaves no waits to count: see `realtime_hog`. Threads are read of busy processes only, so a waiting
thread may go unnamed; on kernels without CONFIG_SCHEDSTATS it is not counted either.

**Check by hand.** ``cat /proc/schedstat`` twice: the second last number of a `cpu` line, in
nanoseconds. ``ps -eLo psr,stat,pcpu,pid,comm | awk '$1 == CORE && $2 ~ /^R/'``; ``taskset -cp
PID``; ``cat /proc/PID/cpuset``; ``cat /sys/devices/system/cpu/isolated``.

**What to do.** ``taskset -acp 0-95 PID`` frees a process at once, if its cpuset allows it. Then fix
what binds it: two jobs that both start at core 0 need different offsets or no binding
(``OMP_PROC_BIND=false``, ``--bind-to none``). In Kubernetes and Slurm look at the cpuset of the pod
or the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from sexton.detect.detectors.cpu.cpu_pressure import got_little
from sexton.detect.findings import AGAIN, absent, and_more, names, too_few_readings, unknown, unread
from sexton.detect.registry import READS, Advice, Stage, Threshold, detector
from sexton.detect.stacks import cgroups_of, thread_name
from sexton.detect.stems import unit_of
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cpu import CoreTimes, ReadyTasks, RunQueue
from sexton.model.rows.node import Node
from sexton.model.rows.task import Process, Thread
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.catalogue import READY_TASKS
from sexton.series.cores import CoreSeries, core_series, together
from sexton.series.load import Means, Queues, Stretch, high, queues, threads
from sexton.series.meter import series
from sexton.series.rates import CLOSE_S, Series, lasts
from sexton.series.tasks import Task, key, task_steps, used

NAME = "contended_core"

CROWDED = Threshold(
    "crowded", 4, "tasks waiting for a core", "each gets a fifth of it, while others idle"
)
LASTING = Threshold("lasting", 10, "s", "a parallel start or a burst of requests is over by then")
FULL = Threshold(
    "full", 90, "% of a core busy", "tasks that wait for an idle core are stopped by their quota"
)
READY = Threshold(
    "ready", 50, "% of the readings", "a task that is runnable so often waits or runs there"
)
_TASKS = "/proc/PID/stat, /proc/PID/task/TID/stat"
_SHOWN = 3
_CORES_SHOWN = 8
#: Fewer readings of a task do not show where it stays.
_READINGS = 3
#: Of a core; a task that got more than this did not starve.
_LITTLE = 25.0


class _Crowd(NamedTuple):
    """A core that tasks waited for; `busy` is per cent of the core."""

    core: int
    over: Stretch
    busy: float
    source: str


class _Others(NamedTuple):
    """The other cores at that time: how many, per cent of them idle, tasks waiting for each."""

    number: int
    idle: float
    waiting: float
    source: str

    @property
    def full(self) -> bool:
        return 100 - self.idle >= FULL.value


class _Task(NamedTuple):
    """A task that was ready on a crowded core; `stayed` if it was never seen elsewhere."""

    name: str
    comm: str
    pid: int
    used_ms: float
    percent: float
    ready: float
    stayed: bool


class _Program(NamedTuple):
    """Tasks of one name, and their share of the CPU time that ready tasks got there."""

    name: str
    comm: str
    number: int
    share: float


def _look(finding: Finding, _window: Window) -> list[Step]:
    core = finding.entities["core"][0]
    found = [
        Step(
            f"ps -eLo psr,stat,pcpu,pid,comm | awk '$1 == {core} && $2 ~ /^R/'",
            f"see which tasks share core {core}",
            READS,
        )
    ]
    task = next(iter(finding.entities.get("task", ())), "")
    pid = task.rpartition("[")[2].rstrip("]").partition("/")[0]
    if pid.isdecimal():
        found.append(Step(f"taskset -acp {pid}", f"see which cores {task} may use", READS))
    return found


@detector(
    needs=(CoreTimes,),
    thresholds=(CROWDED, LASTING, FULL, READY),
    title="contended core",
    story="Tasks waited for one core",
    lanes=("run_queue", "cores"),
    about=("core", "task", "unit", "cgroup"),
    answers={"core": 9, "task": 10, "unit": 8, "cgroup": 7},
    advice=Advice(Stage.LOOK, _look),
)
def detect(window: Window) -> Finding:
    """The core that tasks waited for most, and who they were."""
    cores = core_series(window)
    if cores is None or np.isnan(cores.system).all():
        what = "two readings of /proc/stat"
        return too_few_readings(NAME, "one reading does not show how long tasks waited", what)
    watched = float(cores.end[-1] - cores.start[0])
    short = not lasts(watched, LASTING.value)
    lasting = watched if short else LASTING.value
    found = queues(window, CROWDED.value, lasting)
    if found is None:
        return unknown(
            NAME, "no counter here shows how many tasks wait for each core", _lacking(window)
        )
    crowds = _crowds(found, cores, lasting)
    crowds = [crowd for crowd in crowds if not _stopped(window, crowd.over, cores)]
    for worst in crowds[:_CORES_SHOWN]:  # the first that stands out
        mine = [crowd for crowd in crowds if _meet(crowd.over, worst.over)]
        others = _others(found, cores, worst.over, {crowd.core for crowd in mine})
        if others is None or (others.full and others.waiting >= CROWDED.value / 2):
            continue
        tasks = _ready(window, worst.over, {crowd.core for crowd in mine})
        if not _held_there(tasks, others):
            continue
        if not short:
            mine.sort(key=lambda crowd: crowd is not worst)
            return _contended(window, mine, others, tasks)
        words = f"{worst.over.mean:.1f} tasks waited for core {worst.core}; {duration(watched)}"
        words += " is too short to show that it lasts"
        return too_few_readings(NAME, words, f"a window of {duration(LASTING.value)}")
    return _calm(found, lasting)


def _lacking(window: Window) -> tuple[Missing, ...]:
    if not window.read(ReadyTasks) and not window.read(RunQueue):
        what = "the number of runnable tasks, or /proc/schedstat"
        return (Missing(what, "sudo sexton record  # not recorded by older versions"),)
    if not window.read(Process) and not window.read(RunQueue):
        return unread(window, Process)
    return (Missing("two readings of each core", AGAIN),)


def _crowds(counted: Queues, cores: CoreSeries, lasting: float) -> list[_Crowd]:
    """By core, the stretch in which most waited for it and it was busy; the worst first."""
    found: dict[int, _Crowd] = {}
    waiting = counted.waiting
    peaks = np.nan_to_num(np.fmax.reduce(waiting.values, axis=1))
    for row in np.flatnonzero(peaks >= CROWDED.value).tolist():
        core = _core(waiting, row)
        values = waiting.values[row]
        for stretch in high(waiting.start, waiting.end, values, CROWDED.value, lasting):
            shares = cores.over(stretch.start, stretch.end, (core,)).get(core)
            busy = min(shares.busy + shares.wait, 100.0) if shares is not None else 0.0
            crowd = _Crowd(core, stretch, busy, counted.source)
            if busy >= FULL.value and (core not in found or _size(crowd) > _size(found[core])):
                found[core] = crowd
    return sorted(found.values(), key=lambda crowd: (-_size(crowd), crowd.core))


def _core(waiting: Series, row: int) -> int:
    """The core of a row; -1 if the row is for all cores."""
    thing = waiting.things[row]
    return int(str(thing[0])) if thing else -1


def _size(crowd: _Crowd) -> float:
    return crowd.over.mean * crowd.over.seconds


def _meet(one: Stretch, other: Stretch) -> bool:
    return one.start < other.end and other.start < one.end


def _stopped(window: Window, over: Stretch, cores: CoreSeries) -> bool:
    """Whether the node had too few ready tasks for such a queue: a quota stopped the others."""
    ready = series(window, READY_TASKS)
    if ready is None or not len(ready.values):
        return False
    counted = ready.values[0, ready.inside(over.start, over.end)]
    if np.isnan(counted).all():
        return False
    running = sum(shares.busy / 100 for shares in cores.over(over.start, over.end).values())
    return float(np.nanmean(counted)) < running + CROWDED.value / 2


def _others(
    counted: Queues, cores: CoreSeries, over: Stretch, crowded: Collection[int]
) -> _Others | None:
    waiting = counted.waiting
    rows = [row for row in range(len(waiting.things)) if _core(waiting, row) not in crowded]
    inside = waiting.values[rows, waiting.inside(over.start, over.end)]
    found = cores.over(over.start, over.end).items()
    others = [shares for core, shares in found if core not in crowded]
    if not others or np.isnan(inside).all():
        return None
    every = together(others)
    idle = 100 - min(every.busy + every.wait, 100.0)
    return _Others(len(others), idle, float(np.nanmean(inside)), counted.source)


def _held_there(tasks: Sequence[_Task], others: _Others) -> bool:
    """Whether the tasks are bound to the core: at least half of them were never seen elsewhere. If
    the other cores are full as well, as many as make a queue must have stayed."""
    stay = sum(task.stayed for task in tasks)
    return stay >= CROWDED.value if others.full else 2 * stay >= len(tasks)


def _contended(
    window: Window, crowds: Sequence[_Crowd], others: _Others, tasks: Sequence[_Task]
) -> Finding:
    worst, cores = crowds[0], [crowd.core for crowd in crowds]
    over = worst.over
    programs = _programs(tasks)
    waiters = _waiters(tasks, programs)
    shown = [task for task in tasks if programs and task.comm == programs[0].comm][:_SHOWN]
    shown += waiters[:_SHOWN]
    isolated = {core for row in window.all(Node) or () for core in row.isolated or ()} & {*cores}
    cgroups = cgroups_of(window, [task.pid for task in shown], over.end)
    evidence = [_queue(crowd) for crowd in crowds[:_CORES_SHOWN]]
    evidence += [_busy(worst), _elsewhere(others)]
    evidence += [_stayed(tasks, cores)] if tasks else []
    evidence += [_isolated(isolated)] if isolated else []
    evidence += [_used(program) for program in programs[:_SHOWN]]
    evidence += [
        got_little(task.name, task.percent, task.ready, _TASKS) for task in waiters[:_SHOWN]
    ]
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.INFO if others.full else Severity.WARNING,
        _summary(crowds, others, tasks, programs),
        entities={
            "core": tuple(map(str, cores)),
            "task": names(task.name for task in shown),
            "unit": names(map(unit_of, cgroups)),
            "cgroup": cgroups,
        },
        start=window.wall(over.start),
        end=window.wall(over.end),
        evidence=tuple(evidence),
        missing=unread(window, Process),
    )


def _summary(
    crowds: Sequence[_Crowd], others: _Others, tasks: Sequence[_Task], programs: Sequence[_Program]
) -> str:
    worst = crowds[0]
    words = f"{worst.over.mean:.0f} tasks waited for core {worst.core}{and_more(crowds, 'core')}"
    words += f" for {duration(worst.over.seconds)}"
    if not others.full:
        rest, were = count(others.number, "other core"), "was" if others.number == 1 else "were"
        words += f" while {rest} {were} {others.idle:.0f} % idle"
    if programs:
        top = programs[0]
        many = f" ({top.number} tasks)" if top.number > 1 else ""
        words += f"; {top.name}{many} took {top.share:.0f} % of it"
    stay = sum(task.stayed for task in tasks)
    if stay and not others.full:
        who = "all" if stay == len(tasks) else f"{stay} of {len(tasks)}"
        words += f"; {who} stayed there, likely pinned"
    return words


def _ready(window: Window, over: Stretch, cores: Collection[int]) -> list[_Task]:
    """Tasks that were ready on these cores, those with the most CPU time first."""
    read = threads(window, over.start, min(over.end, over.start + CLOSE_S))
    ran = used(task_steps(read))
    seen: dict[Task, list[Thread]] = defaultdict(list)
    for batch in read:
        for row in batch.rows:
            seen[key(row)].append(row)
    found = []
    for task, rows in seen.items():
        here = sum(row.cpu in cores for row in rows)
        ready = 100 * sum(row.state == "R" for row in rows) / len(rows)
        if len(rows) < _READINGS or 2 * here < len(rows) or ready < READY.value or task not in ran:
            continue
        last = rows[-1]
        name = thread_name(last.pid, last.tid, last.comm)
        _, amount, _ = mine = ran[task]
        stayed = here == len(rows)
        found.append(_Task(name, last.comm, last.pid, amount, mine.percent, ready, stayed))
    return sorted(found, key=lambda task: (-task.percent, task.name))


def _programs(tasks: Sequence[_Task]) -> list[_Program]:
    """By name: a program with many workers is one."""
    total = sum(task.used_ms for task in tasks)
    by_name: dict[str, list[_Task]] = defaultdict(list)
    for task in tasks:
        by_name[task.comm].append(task)
    made = [
        _Program(
            comm if len(mine) > 1 else mine[0].name,
            comm,
            len(mine),
            100 * sum(task.used_ms for task in mine) / total,
        )
        for comm, mine in by_name.items()
        if total > 0
    ]
    return sorted(made, key=lambda program: (-program.share, program.name))


def _waiters(tasks: Sequence[_Task], programs: Sequence[_Program]) -> list[_Task]:
    """Tasks that got little, those of the program that took most last."""
    top = programs[0].comm if programs else ""
    found = [task for task in tasks if task.percent <= _LITTLE]
    return sorted(found, key=lambda task: (task.comm == top, task.percent, task.name))


def _calm(counted: Queues, lasting: float) -> Finding:
    waiting = counted.waiting
    peaks = np.nan_to_num(np.fmax.reduce(waiting.values, axis=1))
    most, core = 0.0, _core(waiting, 0)
    means = Means(waiting.start, waiting.end, LASTING.value)
    for row in np.argsort(-peaks).tolist():
        if peaks[row] < most:  # a mean is at most its largest step
            break
        mean = means.highest(waiting.values[row]) or 0.0
        most, core = max((most, core), (mean, _core(waiting, row)), key=lambda pair: pair[0])
    where = f"one (core {core})" if core >= 0 else "all cores together"
    evidence = _queue(_Crowd(core, Stretch(0.0, lasting, most), 0.0, counted.source))
    summary = f"no tasks bound to a crowded core; at most {most:.1f} tasks waited for {where}"
    return absent(NAME, summary, [evidence])


def _queue(crowd: _Crowd) -> Evidence:
    return Evidence(
        f"tasks waiting for {f'core {crowd.core}' if crowd.core >= 0 else 'all cores'}",
        f"{crowd.over.mean:.1f}",
        f"< {CROWDED.value:.0f}",
        f"tasks, mean over {duration(crowd.over.seconds)}",
        crowd.source,
        round(crowd.over.mean, 2),  # a recording keeps less than all digits
        "they have low priority and delay nothing else",
    )


def _busy(crowd: _Crowd) -> Evidence:
    return Evidence(
        f"core {crowd.core}, busy",
        f"{crowd.busy:.0f} %",
        f"< {FULL.value:.0f} %",
        f"% of a core over {duration(crowd.over.seconds)}",
        "/proc/stat",
        crowd.busy,
        "one task holds it, and the others were stopped by their cgroup's quota",
    )


def _elsewhere(others: _Others) -> Evidence:
    return Evidence(
        f"{count(others.number, 'other core')}, idle",
        f"{others.idle:.0f} %, {others.waiting:.1f} tasks waiting for each",
        "as busy as this one",
        "% of the other cores",
        ", ".join(sorted({"/proc/stat", *others.source.split(", ")})),
        others.idle,
        "they are isolated or reserved, and nothing else may run there",
    )


def _stayed(tasks: Sequence[_Task], cores: Sequence[int]) -> Evidence:
    stay = sum(task.stayed for task in tasks)
    where = f"core {cores[0]}" if len(cores) == 1 else "these cores"
    return Evidence(
        f"runnable tasks never seen off {where}",
        f"{stay} of {len(tasks)}",
        "few: waiting tasks are moved to idle cores",
        "tasks, at every reading",
        _TASKS,
        float(stay),
        "their affinity was not read: taskset -acp PID shows whether they are pinned",
    )


def _isolated(cores: Collection[int]) -> Evidence:
    return Evidence(
        "isolated cores among them",
        ", ".join(map(str, sorted(cores))),
        "one task each",
        "cores",
        "/sys/devices/system/cpu/isolated",
        float(len(cores)),
        "the tasks were placed there on purpose",
    )


def _used(program: _Program) -> Evidence:
    many = f", {program.number} tasks" if program.number > 1 else ""
    return Evidence(
        f"CPU time of {program.name}{many}",
        f"{program.share:.0f} %",
        "a fair part",
        "% of what runnable tasks got there",
        _TASKS,
        program.share,
        "it is what this core is reserved for",
    )
