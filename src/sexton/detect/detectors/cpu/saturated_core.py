"""A core is held at 100 % in the kernel while the machine's average looks idle.

**What is seen.** Per core, from two or more readings of `/proc/stat`: the share of each step spent
in user, system, hard and soft interrupt time, and how many seconds in a row it stayed above the
limit. The task that held it is the thread whose own CPU time moved on that core in those seconds
(`/proc/PID/task/TID/stat`), found in two steps: processes whose time moved, then their threads.
Kernel threads (kworker, ksoftirqd) are blamed like any other.

**Why it hurts.** Work bound to that core waits: its NIC queues' NAPI poll, its timers, whatever is
pinned there. A 96-core machine with one core at 100 % shows 1 % more on every dashboard.

**What would make it wrong.** A core that is busy in *user* mode is doing its job and is not
reported as a problem; steal time belongs to the hypervisor. A window shorter than two seconds
cannot separate a spike from a stall, and readings far apart average a stall away. The kernel time
of the steps right before and after is not counted, since it is unknown when in a step it was spent:
the stall lasted at least that long, and less than a step longer at either end. Where readings are
missing, or far apart because the recorder itself had to wait for a core, the kernel's counters
before and after show how much of that time the core was in the kernel, not when: above the limit it
counts as held all that time, and the summary says how much of it was not read; at half of it or
more, whether the core was held is *unknown*. The task is named only if one thread's time accounts
for it, or that of one process's threads together. Under a hypervisor that takes time away without
reporting steal time, a core's parts do not add up to the clock: its shares are then shares of the
time it got, as in mpstat, and the evidence says how little that was.

**Check by hand.** ``mpstat -P ALL 1 10``, then ``pidstat -t -u 1`` and its CPU column.

**What to do.** Find out what that task does in the kernel: ``sudo perf top -g -C CORE``. If the
stack walks memory cgroups, look at `zombie_memcgs` and `slow_memcg_stats`; if it is reclaim, at
the limits of its cgroup; if it is softirq, at the traffic of that core's NIC queue. Moving the
task or the interrupt elsewhere (``taskset``, ``/proc/irq/N/smp_affinity_list``) buys time only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sexton.detect.cpu_users import BLAME, Blame, blame
from sexton.detect.findings import AGAIN, absent, and_more, names, too_few_readings, unknown, unread
from sexton.detect.registry import Advice, Averages, Stage, Threshold, detector
from sexton.detect.rows_read import remembered
from sexton.detect.stacks import hottest, on_cores
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.task import Thread
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.cores import WHOLE, CoreSeries, Hold, bridged_series
from sexton.series.rates import BLIND_S, F32, Run, counts_on, lasts, runs

NAME = "saturated_core"

KERNEL_SHARE = Threshold(
    "kernel share", 90, "% of a core", "the walk of the incident held its core at 100 % system"
)
HELD = Threshold("held", 2, "s in a row", "shorter bursts are ordinary; drivers reset after 5 s")
GRAVE = Threshold("grave", 5, "s in a row", "the transmit watchdogs of ENA and others fire at 5 s")
UNSEEN = Threshold(
    "unseen",
    50,
    "% of a core",
    "in ten seconds or more without a reading, so much kernel time may well include a stall",
)
#: Suffix of the evidence that separates system time from softirq; its number is system time.
BY_KIND = "by kind"
_SHOWN = 8
#: Cores are read a moment before or after the readings that a span comes from.
_AROUND_S = 1.5


def _record_stacks(finding: Finding, _window: Window) -> list[Step]:
    if not finding.entities.get("core") or any(
        "perf" in evidence.source for evidence in finding.evidence
    ):
        return []
    core = finding.entities["core"][0]
    return [
        Step(
            f"perf record -C {core} -g -- sleep 10 && perf report --stdio | head -50",
            f"find the kernel function that holds core {core}",
            "negligible: samples one core",
        )
    ]


def _beginnings(finding: Finding, window: Window) -> list[float]:
    """When each hold of its cores began."""
    cores = finding.entities.get("core", ())
    return [window.wall(hold.start) for hold in holds(window) if str(hold.core) in cores]


@detector(
    needs=(CoreTimes,),
    thresholds=(KERNEL_SHARE, HELD, GRAVE, BLAME, UNSEEN),
    title="saturated core",
    story="That core was held in the kernel",
    lanes=("cores", "stacks"),
    about=("core", "task"),
    answers={"core": 1, "task": 1, "function": 1},
    essential=2,
    advice=Advice(Stage.PROVE, _record_stacks),
    events=("held_core",),
    spells=_beginnings,
    holds_core=True,
    averages=Averages((CoreTimes,), HELD, "a core held in the kernel"),
)
@remembered
def detect(window: Window) -> Finding:
    """The longest time any core was held in the kernel."""
    batches = window.bounds_of(CoreTimes)
    watched = batches[1] - batches[0] if batches is not None else 0.0
    if not lasts(watched, HELD.value):
        what = f"readings at least {HELD.value:.0f} s apart"
        summary = f"{duration(watched)} of readings cannot separate a stall from a spike"
        return too_few_readings(NAME, summary, what)
    series = bridged_series(window)
    if series is None or np.isnan(series.system).all():
        what = "two readings of one core in order"
        return too_few_readings(NAME, "every core's counters went backwards or lost ticks", what)
    held = sorted(holds(window), key=lambda hold: -hold.seconds)
    if held:
        return _held(held, window)
    hidden = _hidden(window)
    return _cannot_tell(hidden) if hidden else _calm(series, watched)


def holds(window: Window) -> list[Hold]:
    """Every hold of a core in the kernel that lasted long enough to count, also by the counters
    before and after missing readings."""
    limits = (KERNEL_SHARE.value, HELD.value)
    series = bridged_series(window)
    return window.keep(("holds", limits), lambda: [] if series is None else series.held(*limits))


def held_meanwhile(
    window: Window, cores: Collection[int], span: tuple[float, float]
) -> dict[int, Hold]:
    """Those of these cores that were held long enough during a span (monotonic seconds), each with
    its longest hold, even beyond the span."""
    start, end = span[0] - _AROUND_S, span[1] + _AROUND_S
    found: dict[int, Hold] = {}
    for hold in holds(window):
        if hold.core in cores and lasts(hold.overlap(start, end), HELD.value):
            found[hold.core] = max(found.get(hold.core, hold), hold, key=lambda one: one.seconds)
    return found


def busiest_step(
    series: CoreSeries, spent: F32, where: str, normal: str, wrong_if: str
) -> tuple[str, Evidence]:
    """The step in which a core spent the largest share somewhere, for a summary and as evidence."""
    percent = series.percent(spent)
    row, step = np.unravel_index(int(np.nanargmax(percent)), percent.shape)
    share = float(percent[row, step])
    lasted = float(series.end[step] - series.start[step])
    worst = Evidence(
        f"worst core {where}, between two readings",
        f"{share:.0f} %",
        normal,
        "% of a core",
        "/proc/stat",
        share,
        wrong_if,
    )
    return f"core {series.cores[row]}, {share:.0f} % over {duration(lasted)}", worst


class _Blind(NamedTuple):
    """A core in a long step without a reading, and its share in the kernel; NaN if unknown."""

    core: int
    start: float
    end: float
    share: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def _blind(window: Window) -> list[_Blind]:
    """Every core in every step in which nobody looked."""
    series = bridged_series(window)
    if series is None or not counts_on(window):
        return []
    percent = series.percent(series.kernel)
    return [
        _Blind(core, float(series.start[at]), float(series.end[at]), float(percent[row, at]))
        for at in np.flatnonzero(series.end - series.start >= BLIND_S).tolist()
        for row, core in enumerate(series.cores)
    ]


def _hidden(window: Window) -> list[_Blind]:
    """Of each core the one with the highest share, if that may include a stall, but is not one."""
    worst: dict[int, _Blind] = {}
    for blind in _blind(window):
        if UNSEEN.value <= blind.share < KERNEL_SHARE.value:
            worst[blind.core] = max(worst.get(blind.core, blind), blind, key=lambda one: one.share)
    return sorted(worst.values(), key=lambda blind: -blind.share)


def _not_seen(blind: _Blind) -> str:
    return (
        f"nothing was read for {duration(blind.seconds)}, and core {blind.core} spent"
        f" {blind.share:.0f} % of it in the kernel"
    )


def _cannot_tell(hidden: Sequence[_Blind]) -> Finding:
    lacking = [Missing(_whether_held(blind), AGAIN) for blind in hidden[:_SHOWN]]
    summary = f"{_not_seen(hidden[0])}; whether that was a stall is unknown"
    return unknown(NAME, summary, lacking)


def _whether_held(blind: _Blind) -> str:
    return f"whether core {blind.core} was held: {_not_seen(blind)}"


def _calm(series: CoreSeries, watched: float) -> Finding:
    known = ~np.isnan(series.system).all(axis=0)
    coarse = float((series.end - series.start)[known].max())
    blurred = float(np.nanmax(series.kernel))
    lacking = []
    if coarse > 2 * HELD.value and blurred >= HELD.value:
        what = f"readings {duration(coarse)} apart average away shorter stalls"
        lacking.append(Missing(what, AGAIN))
    normal = f"< {KERNEL_SHARE.value:.0f} % for {HELD.value:.0f} s"
    wrong_if = f"the stall was outside these {duration(watched)}"
    core, worst = busiest_step(series, series.kernel, "in the kernel", normal, wrong_if)
    return absent(NAME, f"no core held in the kernel; peak: {core}", [worst], lacking)


def _held(held: Sequence[Hold], window: Window) -> Finding:
    by_core: dict[int, list[Hold]] = defaultdict(list)
    for run in held:  # longest first, so the first of each core is its worst
        by_core[run.core].append(run)
    worst = held[0]
    longest = {core: mine[0] for core, mine in by_core.items()}
    unread_s = _unread_s(worst, window)
    threads = window.read(Thread)
    blamed = blame(longest, window) if threads else {}
    evidence = [_seconds_held(mine, window) for mine in list(by_core.values())[:_SHOWN]]
    if unread_s:
        evidence.append(_without_reading(worst, unread_s))
    evidence.append(_by_kind(worst))
    if worst.shares.given_s < WHOLE * worst.shares.seconds:
        evidence.append(_given(worst))
    evidence += [_task_share(core, blamed[core]) for core in list(blamed)[:_SHOWN]]
    span = (window.wall(worst.start), window.wall(worst.end))
    if (function := hottest(on_cores(window, {str(worst.core)}, span))) is not None:
        evidence.append(_function(worst.core, *function))
    lacking = unread(window, Thread)
    if threads and worst.core not in blamed:
        what = f"which thread held core {worst.core} (no single one accounts for it)"
        lacking = (Missing(what, f"sudo perf top -g -C {worst.core}"),)
    lacking = (*lacking, *_not_known(by_core[worst.core], window))
    hidden = [blind for blind in _hidden(window) if not _is_in(blind, by_core[blind.core])]
    lacking = (*lacking, *(Missing(_whether_held(blind), AGAIN) for blind in hidden[:_SHOWN]))
    without = f" (no reading in {duration(unread_s)} of it)" if unread_s else ""
    by = f" by {blamed[worst.core].name}" if worst.core in blamed else ""
    where = "in softirq" if worst.is_softirq else "in the kernel"
    others = and_more(longest, "core")
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.CRITICAL if worst.lasts(GRAVE.value) else Severity.WARNING,
        f"core {worst.core}{others} was held {where} for {duration(worst.seconds)}{without}{by}",
        entities={
            "core": tuple(str(core) for core in longest),
            "task": names(mine.name for mine in blamed.values()),
        },
        start=span[0],
        end=span[1],
        evidence=tuple(evidence),
        missing=lacking,
    )


def _unread_s(hold: Hold, window: Window) -> float:
    """For how many of its seconds only the counters before and after tell that it was held."""
    return sum(blind.seconds for blind in _blind(window) if _is_in(blind, [hold]))


def _is_in(blind: _Blind, held: Sequence[Hold]) -> bool:
    return any(
        hold.core == blind.core and hold.start <= blind.start and blind.end <= hold.end
        for hold in held
    )


def _beside(held: Sequence[Hold], window: Window) -> list[Run]:
    """The unknown times right before or after these holds of one core."""
    series = bridged_series(window)
    if series is None:
        return []
    row = series.cores.index(held[0].core)
    edges = {edge for hold in held for edge in (hold.start, hold.end)}
    unknown = runs(series.times, np.isnan(series.system[row : row + 1]))
    return [run for run in unknown if {run.start, run.end} & edges]


def _not_known(held: Sequence[Hold], window: Window) -> Iterator[Missing]:
    """Where the holds of one core may have been longer."""
    seconds = sum(run.seconds for run in _beside(held, window))
    if lasts(seconds, HELD.value):
        yield Missing(
            f"whether core {held[0].core} was held for up to {duration(seconds)} more:"
            " readings are missing or too far apart",
            AGAIN,
        )


def _seconds_held(held: Sequence[Hold], window: Window) -> Evidence:
    run = held[0]
    starts, ends = {hold.start for hold in held}, {hold.end for hold in held}
    # Nobody knows whether it was released in between.
    bridged = sum(gap.start in ends and gap.end in starts for gap in _beside(held, window))
    number = len(held) - bridged
    times = f", {number} times" if number > 1 else ""
    return Evidence(
        f"core {run.core} in the kernel{times}",
        f"{run.seconds:.1f} s",
        "< 0.1 s",
        "seconds in a row",
        "/proc/stat",
        run.seconds,
        "a debugger, a virtual machine's boot or a benchmark did that on purpose",
    )


def _without_reading(run: Hold, unread_s: float) -> Evidence:
    return Evidence(
        f"core {run.core}, time without a reading",
        f"{unread_s:.1f} s of it",
        "< 2 s",
        "s between two readings of one recorder",
        "/proc/stat",
        round(unread_s, 2),
        "it was in the kernel most of that time, and free for a moment in between",
    )


def _by_kind(run: Hold) -> Evidence:
    return Evidence(
        f"core {run.core} {BY_KIND}",
        f"user {run.shares.user:.0f} % · system {run.shares.system:.0f} %"
        f" · softirq {run.shares.softirq:.0f} %",
        "mostly idle or user",
        "% of a core",
        "/proc/stat",
        run.shares.system,
        "a flood of packets shows as softirq, a walk or reclaim as system",
    )


def _given(run: Hold) -> Evidence:
    share = 100 * run.shares.given_s / run.shares.seconds
    return Evidence(
        f"core {run.core}, time accounted for",
        f"{share:.0f} %",
        "all of it",
        "% of the held time",
        "/proc/stat, against the clock",
        share,
        "interrupts were off, and the kernel counted no ticks",
    )


def _task_share(core: int, by: Blame) -> Evidence:
    together = f", {by.threads} threads" if by.threads > 1 else ""
    return Evidence(
        f"{by.name}{together} on core {core}",
        f"{by.share:.0f} %",
        "< 10 %",
        "% of the held time",
        "/proc/PID/task/TID/stat",
        by.share,
        "the thread moved to another core between two readings",
    )


def _function(core: int, name: str, share: float) -> Evidence:
    return Evidence(
        f"hottest kernel function on core {core}",
        f"{name} {share:.0f} %",
        "none stands out",
        "% of samples",
        "perf record",
        share,
        "inlining and interrupts-off stretches move samples to a neighbour",
    )
