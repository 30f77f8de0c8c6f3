"""Far more tasks are ready to run than the node has cores, and they wait for each other.

**What is seen.** Tasks that are ready to run beyond the number of cores (`procs_running` in
`/proc/stat`, else the waiting time in `/proc/schedstat`), on average over ten seconds and more,
while the cores have nothing left to give. Beside it pressure stall information
(`/proc/pressure/cpu`), and by name: which cgroups and processes used the time, and which were ready
and got little of it, with their cgroups (`cpu.pressure` of each cgroup on v2). A node can be so
short of CPU time that Sexton itself reads nothing for ten seconds: then the counters before and
after show it.

**Why it hurts.** With four tasks waiting per core each gets a fifth of it: a heartbeat, a health
check or a barrier that needs 0.2 s takes a second, and one slow rank holds up a whole job.

**What would make it wrong.** A node that is full on purpose is no problem: a batch job with a
worker per core, or a build with some more, stays below the limit however high its PSI is. A build
with ``-j`` many times the cores is reported: to its neighbours it is starvation. Tasks at a low
priority (``nice``) count too, though they delay nothing. Tasks throttled by their cgroup's quota
are not short of cores: see `quota_throttling`; that is why idle cores rule it out. One core that is
crowded by pinned tasks while others are idle is `contended_core`. `procs_running` is a sample: the
mean of ten is good to a task or so.

**Check by hand.** ``vmstat 1`` (column r against the number of cores), ``cat /proc/pressure/cpu``
twice, ``pidstat -u 1 5`` or ``systemd-cgtop -c``.

**What to do.** Give the neighbour that takes the time a smaller weight (``systemctl set-property
UNIT CPUWeight=20``), a quota, fewer threads, or a node of its own. A runtime that counts the node's
cores starts that many workers in every container.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import NamedTuple

import numpy as np

from sexton.detect import cpu_users
from sexton.detect.cpu_users import User
from sexton.detect.findings import (
    absent,
    and_more,
    missing,
    names,
    not_seen,
    too_few_readings,
    unknown,
    unread,
)
from sexton.detect.registry import READS, Advice, Averages, Stage, Threshold, detector
from sexton.detect.stacks import cgroup_by_pid
from sexton.detect.stems import unit_of
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.cgroup import CgroupCpu
from sexton.model.rows.cpu import CoreTimes, ReadyTasks, RunQueue
from sexton.model.rows.memory import Pressure
from sexton.model.rows.task import Process, Thread
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series import pressure
from sexton.series.cores import CoreSeries, all_cores, bridged_series, core_series
from sexton.series.load import Stretch, Waiting, across, high, highest, lapses, threads, waiting
from sexton.series.rates import BLIND_S, CLOSE_S, Amount, hidden_s, lasts
from sexton.series.tasks import Task, Used, key, task_steps, used

NAME = "cpu_pressure"

CROWDED = Threshold(
    "crowded", 4, "waiting tasks per core", "each gets a fifth of a core; builds stay below"
)
GRAVE = Threshold("grave", 8, "waiting tasks per core", "a second of work takes nine")
LASTING = Threshold("lasting", 10, "s", "a parallel start or a burst of requests is over by then")
BRIEF = Threshold(
    "brief", 3, "s", "a shorter run may just catch a burst; above the grave limit this is enough"
)
FULL = Threshold(
    "full", 90, "% of all cores busy", "where cores are idle, tasks wait for something else"
)
STALLED = Threshold("stalled", 90, "% some", "only noted: PSI does not count the waiting tasks")
NOISY = Threshold("noisy", 50, "% of the time used", "whatever takes most of the CPU time is named")
READY = Threshold(
    "ready", 50, "% of the readings", "a task that is runnable so often and hardly runs is waiting"
)
_ALL = (CROWDED, GRAVE, LASTING, BRIEF, FULL, STALLED, NOISY, READY)
_SHOWN = 3
#: A node can run a thousand workers of one program.
_MOST_TAKERS = 20
#: Fewer readings of processes do not show who waits.
_READINGS = 3
#: Of a core; a task that got more than this did not starve.
_LITTLE = 25.0


class _Stood(NamedTuple):
    """A cgroup in which a task waited for a `share` (per cent) of the known `seconds`."""

    path: str
    share: float
    seconds: float


class _Task(NamedTuple):
    name: str
    comm: str
    pid: int
    used_ms: float
    percent: float
    ready: float
    kernel: bool


def _hidden_s(window: Window) -> float:
    """Seconds without a reading in which all cores were busy, and tasks waited, for long enough."""
    cores = bridged_series(window)
    if cores is None:
        return 0.0
    every = all_cores(cores)
    busy = np.nan_to_num((every.user + every.kernel + every.stolen)[0])
    full = 100 * busy / FULL.value / np.maximum(every.given[0], 1e-9) * (every.end - every.start)
    levels = pressure.levels(window, "cpu")
    for at in np.flatnonzero(every.end - every.start >= BLIND_S).tolist():
        stall = pressure.over(levels, float(every.start[at]), float(every.end[at]))
        if stall is not None:
            full[at] = min(full[at], stall.some / STALLED.value * stall.seconds)
    return hidden_s(window, (cores.start, cores.end), full, LASTING.value)


def _ruled_out(window: Window) -> str:
    return "" if waiting(window) is None or _hidden_s(window) else "CPU starvation"


def _look(finding: Finding, _window: Window) -> list[Step]:
    units = finding.entities.get("unit", ())
    why = "see which processes use the cores"
    found = [Step("ps -eo pcpu,ni,pid,comm --sort -pcpu | head", why, READS)]
    if units:
        found.append(
            Step(
                f"systemctl set-property --runtime {quote(units[0])} CPUWeight=20",
                "lowers its CPU weight; undo with CPUWeight=100",
                f"{units[0]} becomes slower while others have work",
            )
        )
    return found


@detector(
    needs=(CoreTimes,),
    thresholds=_ALL,
    title="CPU starvation",
    story="Tasks waited for a core",
    lanes=("run_queue", "pressure", "cores"),
    about=("core", "task", "unit", "cgroup"),
    answers={"core": 5, "task": 5, "unit": 6, "cgroup": 6},
    ruled_out=_ruled_out,
    advice=Advice(Stage.LOOK, _look),
    averages=Averages((CoreTimes, RunQueue, Pressure), LASTING, "tasks that wait for a core"),
)
def detect(window: Window) -> Finding:
    """The stretch in which most tasks waited, and who took the time."""
    cores = bridged_series(window)
    found = waiting(window)
    stalls = pressure.levels(window, "cpu").stalls
    if cores is None or np.isnan(cores.system).all():
        what = "two readings of /proc/stat"
        return too_few_readings(NAME, "one reading does not show who waited", what)
    watched = float(cores.end[-1] - cores.start[0])
    short = not lasts(watched, LASTING.value)
    lasting = watched if short else LASTING.value
    if found is not None:
        limit = GRAVE if short else CROWDED
        crowded = high(found.start, found.end, found.tasks, limit.value, lasting)
    elif stalls:
        crowded = (
            [] if short else high(stalls.start, stalls.end, stalls.some, STALLED.value, lasting)
        )
    else:
        uncounted = tuple(missing(window.why_missing(kind)) for kind in (ReadyTasks, Pressure))
        return unknown(NAME, "nothing counts the tasks that wait for a core", uncounted)
    full = [stretch for stretch in crowded if lasts(stretch.seconds, BRIEF.value)]
    full = [stretch for stretch in full if _busy(cores, stretch) >= FULL.value]
    if not full:
        lost = lapses(window, STALLED.value, LASTING.value)
        # PSI also counts tasks that their quota stopped, and those behind one held core.
        lost = [lapse for lapse in lost if _busy_across(cores, lapse) >= FULL.value]
        if lost:
            return _unread(window, max(lost, key=lambda lapse: lapse.seconds), cores)
        calm = _calm(core_series(window) or cores, found, stalls)
        lacking = not_seen("whether tasks waited for a core", _hidden_s(window))
        calm = replace(calm, missing=(*calm.missing, *lacking))
        return _too_short(watched, calm, found) if short else calm
    worst = max(full, key=lambda stretch: stretch.mean * stretch.seconds)
    return _starved(window, worst, cores, found)


def _busy(cores: CoreSeries, over: Stretch) -> float:
    """Per cent of the time given to all cores that they were busy, or taken by the hypervisor."""
    inside = cores.part(cores.times.inside(over.start, over.end))
    shares = all_cores(inside).shares(0, slice(None))
    return 0.0 if shares is None else min(shares.busy + shares.wait, 100.0)


def _busy_across(cores: CoreSeries, over: Stretch) -> float:
    """The same by the steps that lie mostly in a time without readings: the tables are read a
    moment apart, and the step beside it was read."""
    middle = (cores.start + cores.end) / 2
    first, last = np.searchsorted(middle, (over.start, over.end)).tolist()
    if first >= last:
        return 0.0
    return _busy(cores, Stretch(float(middle[first]), float(middle[last - 1]), over.mean))


def _starved(window: Window, worst: Stretch, cores: CoreSeries, found: Waiting | None) -> Finding:
    shares = cores.over(worst.start, worst.end)
    span = (worst.start, min(worst.end, worst.start + CLOSE_S))
    tasks = _tasks(window, span)
    users = max(cpu_users.cgroups(window, span), _programs(tasks), key=_accounted)
    places = cgroup_by_pid(window, worst.end)
    waiters = _waiters(tasks, users, places)
    homes = [places.get(waiter.pid, "/") for waiter in waiters[:_SHOWN]]
    severity = Severity.INFO
    if found is not None:
        grave = worst.mean >= GRAVE.value and lasts(worst.seconds, LASTING.value)
        severity = Severity.CRITICAL if grave else Severity.WARNING
    evidence = [_how_many(worst, found), *_psi(window, worst)]
    evidence.append(_busy_evidence(_busy(cores, worst), duration(worst.seconds)))
    evidence += [_used(user) for user in users[:_SHOWN]]
    stood = _stalled(window, span)[:_SHOWN]
    evidence += [_stood(one) for one in stood]
    evidence += [
        got_little(_placed(waiter, home), waiter.percent, waiter.ready, "/proc/PID/stat")
        for waiter, home in zip(waiters, homes, strict=False)
    ]
    return Finding(
        NAME,
        Verdict.PRESENT,
        severity,
        _summary(worst, len(shares), found, users) + _waited(waiters, homes),
        entities={
            "core": tuple(str(core) for core in sorted(shares)),
            "task": names([*_takers(tasks), *(task.name for task in waiters[:_SHOWN])]),
            "unit": names(user.unit for user in users[:1]),
            # Those that waited, too, but not as units: the advice is about the first unit.
            "cgroup": names(
                [
                    *(user.cgroup for user in users[:1]),
                    *(one.path for one in stood),
                    *(home for home in homes if home != "/"),
                ]
            ),
        },
        start=window.wall(worst.start),
        end=window.wall(worst.end),
        evidence=tuple(evidence),
        missing=unread(window, Process),
    )


def _unread(window: Window, lapse: Stretch, cores: CoreSeries) -> Finding:
    """Sexton itself got no time to read, while tasks waited for a core."""
    used = across(window, CgroupCpu, "used_us", lapse)
    tasks = _over_gaps(window, (lapse.start, lapse.end))
    users = cpu_users.users({str(key[0]): amount for key, amount in used.items()})
    users = max(users, _programs(tasks), key=_accounted)
    words = f"nothing could be read for {duration(lapse.seconds)}, while tasks waited for a core"
    words += f" {lapse.mean:.0f} % of the time"
    if users:
        words += f"; {users[0].name} took {users[0].share:.0f} % of the CPU time"
    waits = {
        str(key[0]): each for key, each in across(window, CgroupCpu, "waited_us", lapse).items()
    }
    # The tasks of one that takes most of the time wait for each other.
    noisy = {user.name for user in users if user.share >= NOISY.value}
    named = {one: unit_of(one.path) or one.path for one in _waited_longest(waits)}
    stood = [one for one, name in named.items() if name not in noisy][:_SHOWN]
    if stood:
        words += f"; {named[stood[0]]} waited {stood[0].share:.0f} % of the time"
    silent = Evidence(
        "time without a reading",
        duration(lapse.seconds),
        "< 2 s",
        "between two readings of one recorder",
        "/proc/pressure/cpu",
        round(lapse.seconds, 2),
        "Sexton was stopped, or waited for a disk",
    )
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING,
        words,
        entities={
            "core": tuple(str(core) for core in sorted(cores.cores)),
            "task": names(_takers(tasks)),
            "unit": names(user.unit for user in users[:1]),
            "cgroup": names([*(user.cgroup for user in users[:1]), *(one.path for one in stood)]),
        },
        start=window.wall(lapse.start),
        end=window.wall(lapse.end),
        evidence=(
            silent,
            _some(lapse.mean, duration(lapse.seconds)),
            *(_used(user) for user in users[:_SHOWN]),
            *(_stood(one) for one in stood),
        ),
    )


def _too_short(watched: float, calm: Finding, found: Waiting | None) -> Finding:
    """*Unknown* if many tasks waited for all of a window too short to show that it lasts."""
    waited, busy = calm.evidence[0], calm.evidence[-1]
    if found is None or (waited.number or 0) < CROWDED.value or (busy.number or 0) < FULL.value:
        return calm
    summary = f"{calm.summary}; {duration(watched)} is too short to show that it lasts"
    return too_few_readings(NAME, summary, f"a window of {duration(LASTING.value)}")


def _summary(worst: Stretch, cores: int, found: Waiting | None, users: Sequence[User]) -> str:
    words = f"tasks waited for a core {worst.mean:.0f} % of the time"
    if found is not None:
        number = worst.mean * cores
        words = f"{number:.0f} tasks waited for {count(cores, 'core')}"
    words += f", for {duration(worst.seconds)}"
    if found is None:
        words += "; how many is unknown"
    if users:
        most = users[0]
        many = f" ({most.number} processes)" if most.number > 1 else ""
        words += f"; {most.name}{many} took {most.share:.0f} % of the CPU time"
    return words


def _accounted(users: Sequence[User]) -> float:
    """Per cent of the CPU time accounted for, at most 50: by it cgroups are preferred to processes,
    unless only some cgroups could be read."""
    return min(sum(user.share for user in users), 50.0) if users else -1.0


def _tasks(window: Window, span: tuple[float, float]) -> list[_Task]:
    """Processes over a span: their CPU time, and the share of readings in which they were ready."""
    read = window.between(Process, *span) if window.read(Process) else ()
    ready: dict[Task, int] = defaultdict(int)
    for batch in read:
        for row in batch.rows:
            ready[key(row)] += row.state == "R"
    enough = len(read) >= _READINGS
    steps = used(task_steps(read))
    if not steps:  # too slow to read one step in the span
        return _over_gaps(window, span)
    return [
        _Task(
            f"{mine.row.comm}[{mine.row.pid}]",
            mine.row.comm,
            mine.row.pid,
            mine.amount,
            mine.percent,
            100 * ready[task] / len(read) if enough else 0.0,
            mine.row.kernel,
        )
        for task, mine in steps.items()
    ]


def _over_gaps(window: Window, span: tuple[float, float]) -> list[_Task]:
    """Processes from the last reading before a span to the first after it: their CPU time alone.

    One that is in no reading of all processes may be in one of threads.
    """
    by_pid: dict[int, list[Used[Thread]]] = defaultdict(list)
    for mine in used(task_steps(threads(window, *span), over_gaps=True)).values():
        by_pid[mine.row.pid].append(mine)
    found = []
    for pid, parts in by_pid.items():
        main = max(parts, key=lambda part: part.row.tid == pid)
        used_ms = sum(part.amount for part in parts)
        percent = sum(part.percent for part in parts)
        comm = main.row.comm
        found.append(_Task(f"{comm}[{pid}]", comm, pid, used_ms, percent, 0.0, kernel=False))
    return found


def _takers(tasks: Sequence[_Task]) -> list[str]:
    """Tasks that used the most CPU time, and their like: workers use about as much each."""
    top = sorted(tasks, key=lambda task: -task.percent)
    alike = [task for task in top if 2 * task.percent >= top[0].percent > 0]
    return [task.name for task in top[: max(_SHOWN, min(len(alike), _MOST_TAKERS))]]


def _programs(tasks: Sequence[_Task]) -> list[User]:
    """By name: a program with many workers counts as one."""
    total = sum(task.used_ms for task in tasks)
    by_name: dict[str, list[_Task]] = defaultdict(list)
    for task in tasks:
        if task.used_ms > 0:
            by_name[task.comm].append(task)
    made = []
    for comm, mine in by_name.items():
        share = 100 * sum(task.used_ms for task in mine) / total
        name = comm if len(mine) > 1 else mine[0].name
        made.append(User(name, share, number=len(mine)))
    return sorted(made, key=lambda part: -part.share)


def _stalled(window: Window, span: tuple[float, float]) -> list[_Stood]:
    """Cgroups in which tasks waited (v2), the worst first."""
    return _waited_longest(cpu_users.moved(window, span, "waited_us")[0])


def _waited_longest(waits: Mapping[str, Amount]) -> list[_Stood]:
    found = (
        _Stood(path, float(pressure.percent(*waits[path])), waits[path].seconds)
        for path in cpu_users.leaves(waits)
    )
    return sorted((one for one in found if one.share >= READY.value), key=lambda one: -one.share)


def _waiters(
    tasks: Sequence[_Task], users: Sequence[User], places: Mapping[int, str]
) -> list[_Task]:
    """Processes that were ready and hardly ran. Those of a user of most of the time are left out,
    those of other large users come last: they waited for each other. So do the kernel's threads,
    which are runnable often and need next to nothing."""

    def is_of(user: User, task: _Task) -> bool:
        path = places.get(task.pid, "/")
        return user.name in (task.comm, task.name, path, unit_of(path))

    noisy = [user for user in users if user.share >= NOISY.value]
    found = [
        task
        for task in tasks
        if task.ready >= READY.value
        and task.percent <= _LITTLE
        and not any(is_of(user, task) for user in noisy)
    ]
    large = users[:_SHOWN]
    return sorted(
        found,
        key=lambda task: (
            task.kernel,
            any(is_of(user, task) for user in large),
            -task.ready,
            task.percent,
        ),
    )


def _waited(waiters: Sequence[_Task], homes: Sequence[str]) -> str:
    """Who got little, for the end of the summary."""
    if not waiters:
        return ""
    first = waiters[0]
    return (
        f"; {_placed(first, homes[0])} got {first.percent:.0f} % of a core"
        f"{and_more(waiters, 'waiting task')}"
    )


def _placed(task: _Task, home: str) -> str:
    """A task with its unit, or else its cgroup."""
    return task.name if home == "/" else f"{task.name} in {unit_of(home) or home}"


def _calm(cores: CoreSeries, found: Waiting | None, stalls: pressure.Stalls) -> Finding:
    whole = Stretch(float(cores.start[0]), float(cores.end[-1]), 0.0)
    busy = _busy(cores, whole)
    evidence = [_busy_evidence(busy, duration(whole.seconds))]
    words = ""
    if found is not None:
        most = highest(found.start, found.end, found.tasks, LASTING.value) or 0.0
        words = f"at most {most:.1f} tasks per core waited"
        long = min(LASTING.value, whole.seconds)
        evidence.insert(0, _how_many(Stretch(0.0, long, most), found))
    elif stalls:
        most = highest(stalls.start, stalls.end, stalls.some, LASTING.value) or 0.0
        words = f"tasks waited for a core at most {most:.0f} % of {duration(LASTING.value)}"
        evidence.insert(0, _some(most, duration(LASTING.value)))
    return absent(NAME, f"{words}; cores {busy:.0f} % busy", evidence)


def _how_many(worst: Stretch, found: Waiting | None) -> Evidence:
    if found is None:
        return _some(worst.mean, duration(worst.seconds))
    return Evidence(
        "tasks waiting, per core",
        f"{worst.mean:.1f}",
        f"< {CROWDED.value:.0f}",
        f"tasks per core, mean over {duration(worst.seconds)}",
        found.source,
        round(worst.mean, 2),  # a recording keeps less than all digits
        "they have low priority and delay nothing else",
    )


def _some(share: float, when: str) -> Evidence:
    return Evidence(
        "time in which some task waited",
        f"{share:.0f} %",
        f"< {STALLED.value:.0f} %",
        f"% of {when}",
        "/proc/pressure/cpu",
        round(share, 2),
        "one task more than cores makes 100 %, and tasks stopped by a quota count as waiting",
    )


def _psi(window: Window, worst: Stretch) -> list[Evidence]:
    stall = pressure.over(pressure.levels(window, "cpu"), worst.start, worst.end)
    return [] if stall is None else [_some(stall.some, duration(stall.seconds))]


def _busy_evidence(busy: float, when: str) -> Evidence:
    return Evidence(
        "all cores busy",
        f"{busy:.0f} %",
        f"< {FULL.value:.0f} %",
        f"% of all cores over {when}",
        "/proc/stat",
        busy,
        "a batch job is meant to use them all",
    )


def _used(user: User) -> Evidence:
    many = f", {user.number} processes" if user.number > 1 else ""
    return Evidence(
        f"CPU time of {user.name}{many}",
        f"{user.share:.0f} %",
        f"< {NOISY.value:.0f} %",
        "% of the CPU time used",
        "cpuacct.usage, cpu.stat" if user.cgroup else "/proc/PID/stat",
        user.share,
        "it is what this node is for",
    )


def _stood(stood: _Stood) -> Evidence:
    return Evidence(
        f"{stood.path} waited",
        f"{stood.share:.0f} %",
        f"< {READY.value:.0f} %",
        f"% of {duration(stood.seconds)}, at least one of its tasks",
        "cpu.pressure",
        stood.share,
        "its own tasks wait for each other",
    )


def got_little(name: str, percent: float, ready: float, source: str) -> Evidence:
    """A task that was runnable in `ready` per cent of the readings, and its share of a core."""
    return Evidence(
        f"{name} got",
        f"{percent:.0f} % of a core",
        "as much as it needs",
        f"% of a core; runnable in {ready:.0f} % of the readings",
        source,
        percent,
        "it was runnable only at sampling times",
    )
