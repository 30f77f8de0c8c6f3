"""A realtime task holds a core, and nothing else gets to run there.

**What is seen.** A core busy for 85 % of the time and more, seconds in a row (`/proc/stat`), and
the one thread whose CPU time accounts for three quarters of it has a realtime policy, FIFO, RR or
DEADLINE (`/proc/PID/task/TID/stat`, fields 40 and 41). In user mode such a core looks like ordinary
load in other tools.

**Why it hurts.** A realtime task goes before every normal one. The kernel's own threads on that
core wait as well: `ksoftirqd`, workers, RCU. Grace periods do not end, so whatever waits for one
hangs: tracing, removing cgroups, mounts, network namespaces. The kernel takes 5 % away from such
tasks by default (`kernel.sched_rt_runtime_us`); with -1 it takes nothing.

**What would make it wrong.** A packet poller (DPDK) or a trading loop on an isolated core
(``isolcpus=``) does that on purpose: there it is only noted. A thread that moves between cores
inside one reading is not blamed.

**Check by hand.** ``ps -eLo cls,rtprio,psr,pcpu,pid,comm --sort=-pcpu | head`` (cls FF, RR or DLN)
and ``mpstat -P ALL 1 10``.

**What to do.** ``chrt -o -p 0 PID`` makes it a normal task at once. Then fix the program: a
realtime loop must sleep. Re-enable RT throttling: ``sysctl kernel.sched_rt_runtime_us=950000``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from sexton.detect.cpu_users import Blame, blame
from sexton.detect.findings import absent, and_more, names, not_seen, unknown, unread
from sexton.detect.registry import READS, Advice, Stage, Threshold, detector
from sexton.detect.stacks import cgroups_of
from sexton.detect.stems import unit_of
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.node import Node
from sexton.model.rows.task import Thread
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.cores import CoreSeries, Hold, bridged_series
from sexton.series.rates import BLIND_S, counts_on, lasts
from sexton.series.tasks import task_steps

NAME = "realtime_hog"

BUSY = Threshold(
    "busy",
    85,
    "% of a core",
    "the kernel leaves at most 95 % to realtime tasks by default; on a slow machine, whose timer"
    " pauses them for longer, 91 % were seen",
)
HELD = Threshold(
    "held", 5, "s in a row", "a realtime task is meant to be short; watchdogs wait 5 s"
)
ALL = Threshold(
    "all", 98, "% of a core", "then RT throttling is disabled: nothing else runs at all"
)

_POLICIES = {1: "FIFO", 2: "RR", 6: "DEADLINE"}
#: The task is looked up in the last part of a hold, which may have lasted for hours.
_LOOKED_AT_S = 60.0
_SHOWN = 8
#: Per cent of a hold that nobody saw; kernel threads like `migration/0` are realtime, too.
_SOME = 10.0
#: Per cent of a hold that were its own: with less, a thread shared the core with others. Of threads
#: that took turns, not all are read.
_MOST = 75.0
#: Ends the number of threads in evidence about a process whose threads took turns.
_THREADS = " threads"
#: Of each core, this many holds are looked at, the longest first.
_MOST_HOLDS = 8


class _Hog(NamedTuple):
    """A thread that held a core; `by` is about the longest of its holds, which comes first."""

    holds: tuple[Hold, ...]
    by: Blame
    isolated: bool

    @property
    def hold(self) -> Hold:
        return self.holds[0]

    @property
    def policy(self) -> str:
        priority = self.by.thread.rt_priority
        name = _POLICIES[self.by.thread.policy or 0]
        return f"realtime {name} {priority}" if priority else f"realtime {name}"

    @property
    def severity(self) -> Severity:
        if self.isolated:
            return Severity.INFO
        shares = self.hold.shares
        return Severity.CRITICAL if shares.busy >= ALL.value else Severity.WARNING


def _beginnings(finding: Finding, window: Window) -> list[float]:
    """When each hold of its cores began."""
    series, cores = bridged_series(window), finding.entities.get("core", ())
    if series is None:
        return []
    return [window.wall(hold.start) for hold in _holds(series) if str(hold.core) in cores]


def _calm_it(finding: Finding, _window: Window) -> list[Step]:
    task = next(iter(finding.entities.get("task", ())), "")
    if not task:
        return []
    thread = task.partition("[")[2].rstrip("]").rpartition("/")[2]
    # Of a process whose threads took turns, all of them.
    every = "-a " if any(_THREADS in evidence.what for evidence in finding.evidence) else ""
    why = "makes all its threads normal tasks" if every else "makes it a normal task"
    return [
        Step(f"chrt {every}-p {thread}", f"see the policy and priority of {task}", READS),
        Step(f"chrt {every}-o -p 0 {thread}", why, "low: it loses its precedence"),
    ]


@detector(
    needs=(CoreTimes, Thread),
    thresholds=(BUSY, HELD, ALL),
    title="realtime hog",
    story="A realtime task held the core",
    lanes=("cores", "run_queue"),
    about=("core", "task", "unit", "cgroup"),
    answers={"core": 7, "task": 7, "unit": 7},
    spells=_beginnings,
    advice=Advice(Stage.STOP, _calm_it),
)
def detect(window: Window) -> Finding:
    """Cores that a realtime thread held, the longest first."""
    series = bridged_series(window)
    if series is None or not window.read(Thread):
        what = "whether a realtime task holds a core is unknown"
        return unknown(NAME, what, unread(window, Thread))
    policies = window.distinct(Thread, ("pid", "tid", "policy"))
    if policies and all(policy is None for _, _, policy in policies):
        grant = "sudo sexton record  # not recorded by older versions"
        lacking = Missing("the threads' scheduling policy", grant)
        return unknown(NAME, "the scheduling policy of threads was not recorded", [lacking])
    realtime = {pid for pid, _, policy in policies if policy in _POLICIES}
    hogs = _hogs(window, series) if realtime else []
    if hogs:
        return _held(window, hogs)
    unseen = _unseen(window, series) if realtime and counts_on(window) else None
    return _calm(len(realtime)) if unseen is None else _cannot_tell(*unseen)


def _holds(series: CoreSeries) -> list[Hold]:
    """Long stretches. The kernel's brake leaves 50 ms of each second to others: a reading that is
    late by as much, or falls in that pause, must not end one."""
    return series.mostly_above(series.user + series.kernel, BUSY.value, HELD.value)


def _hogs(window: Window, series: CoreSeries) -> list[_Hog]:
    """Per core, the realtime thread with the longest hold, and its other holds of that core."""
    by_core: dict[int, list[Hold]] = defaultdict(list)
    for hold in sorted(_holds(series), key=lambda hold: -hold.seconds):
        by_core[hold.core].append(hold)
    isolated = {core for row in window.all(Node) or () for core in row.isolated or ()}
    blamed: dict[int, Blame] = {}
    mine: dict[int, list[Hold]] = defaultdict(list)
    for place in range(_MOST_HOLDS):
        round_ = {core: holds[place] for core, holds in by_core.items() if place < len(holds)}
        ends = {core: _end_of(hold, series) for core, hold in round_.items()}
        for core, by in blame(ends, window).items():
            shared = by.threads == 1 and by.share < _MOST
            if by.thread.policy not in _POLICIES or shared:
                continue
            first = blamed.setdefault(core, by)
            if first.name == by.name:
                mine[core].append(round_[core])
    found = [_Hog(tuple(mine[core]), by, core in isolated) for core, by in blamed.items()]
    return sorted(found, key=lambda hog: (-hog.severity.rank, -hog.hold.seconds))


def _unseen(window: Window, series: CoreSeries) -> tuple[Hold, float] | None:
    """The hold with most seconds without a reading, if those are most of it, and realtime threads
    had a part of it: whether they had most is unknown."""
    long = series.end - series.start >= BLIND_S
    found = []
    for hold in _holds(series):
        inside = long & (series.start >= hold.start) & (series.end <= hold.end)
        unread_s = float((series.end - series.start)[inside].sum())
        if 2 * unread_s >= hold.seconds and lasts(
            _realtime_s(window, hold), _SOME / 100 * unread_s
        ):
            found.append((hold, unread_s))
    return max(found, key=lambda pair: pair[1], default=None)


def _realtime_s(window: Window, hold: Hold) -> float:
    """Seconds of CPU time of realtime threads on a core while it was held, as far as it is known:
    that of a thread that ended in between is lost."""
    return sum(
        min(step.amount / 1000, step.seconds)
        for step in task_steps(window.between(Thread, hold.start, hold.end), over_gaps=True)
        if step.row.policy in _POLICIES and step.row.cpu == hold.core
    )


def _cannot_tell(hold: Hold, unread_s: float) -> Finding:
    busy = f"core {hold.core} was busy for {duration(hold.seconds)}"
    summary = f"{busy}, {duration(unread_s)} of it without a reading; by which task is unknown"
    lacking = not_seen(f"which task held core {hold.core}", unread_s)
    return unknown(NAME, summary, lacking)


def _end_of(hold: Hold, series: CoreSeries) -> Hold:
    start = max(hold.start, hold.end - _LOOKED_AT_S)
    shares = series.over(start, hold.end, (hold.core,)).get(hold.core, hold.shares)
    return hold._replace(start=start, shares=shares)


def _held(window: Window, hogs: list[_Hog]) -> Finding:
    worst = hogs[0]
    hold, thread = worst.hold, worst.by.thread
    cgroups = cgroups_of(window, [hog.by.thread.pid for hog in hogs], hold.end)
    mine = cgroups_of(window, [thread.pid], hold.end)
    place = (unit_of(mine[0]) or mine[0]) if mine else ""
    where = "in user mode" if hold.shares.user >= hold.shares.kernel else "in the kernel"
    aside = "; the core is isolated, so this may be on purpose" if worst.isolated else ""
    lasted = duration(hold.seconds)
    times = len(worst.holds)
    how_long = f"for {lasted}" if times == 1 else f"{times} times for up to {lasted}"
    return Finding(
        NAME,
        Verdict.PRESENT,
        worst.severity,
        f"core {hold.core}{and_more(hogs, 'core')} was held {where} {how_long}"
        f" by {worst.by.name}{f' of {place}' if place else ''} ({worst.policy}){aside}",
        entities={
            "core": tuple(str(hog.hold.core) for hog in hogs),
            "task": names(hog.by.name for hog in hogs),
            "unit": names(map(unit_of, cgroups)),
            "cgroup": cgroups,
        },
        start=window.wall(min(each.start for each in worst.holds)),
        end=window.wall(max(each.end for each in worst.holds)),
        evidence=tuple(piece for hog in hogs[:_SHOWN] for piece in _evidence(hog)),
    )


def _evidence(hog: _Hog) -> tuple[Evidence, Evidence]:
    core, shares = hog.hold.core, hog.hold.shares
    threads = f", {hog.by.threads}{_THREADS}" if hog.by.threads > 1 else ""
    return (
        Evidence(
            f"core {core}, held by {hog.by.name}",
            f"{shares.busy:.0f} %: user {shares.user:.0f} %, kernel {shares.kernel:.0f} %",
            f"< {BUSY.value:.0f} %",
            f"% of a core over {duration(hog.hold.seconds)}",
            "/proc/stat",
            shares.busy,
            "several tasks shared the core, and the realtime one had the most",
        ),
        Evidence(
            f"{hog.by.name}{threads} on core {core}",
            f"{hog.by.share:.0f} %, {hog.policy}",
            "normal policy, or short",
            "% of the held time",
            "/proc/PID/task/TID/stat",
            hog.by.share,
            "the thread moved to another core between two readings",
        ),
    )


def _calm(number: int) -> Finding:
    none = Evidence(
        "cores held by a realtime task",
        "0",
        f"0 for {HELD.value:.0f} s",
        "cores",
        "/proc/stat, /proc/PID/task/TID/stat",
        0,
        "there were too many threads to read, and this one was left out",
    )
    busy = count(number, "busy process", "busy processes")
    summary = f"no core held by a realtime task; {busy} with a realtime thread"
    return absent(NAME, summary, [none])
