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
cannot tell a spike from a stall, and readings far apart average a stall away. The kernel time of
the steps right before and after counts as the same stall, so its length can be too long by less
than two steps. The task is named only where one thread's time accounts for it. Under a hypervisor
that takes time away without telling (no steal time), a core's parts do not add up to the clock: its
shares are then of what it was given, as mpstat has them, and the evidence says how little that was.

**Check by hand.** ``mpstat -P ALL 1 10``, then ``pidstat -t -u 1`` and its CPU column.

**What to do.** Find out what that task asks of the kernel: ``sudo perf top -g -C CORE``. If the
stack walks memory cgroups, look at `zombie_memcgs` and `slow_memcg_stats`; if it is reclaim, at
the limits of its cgroup; if it is softirq, at the traffic of that core's NIC queue. Moving the
task or the interrupt elsewhere (``taskset``, ``/proc/irq/N/smp_affinity_list``) buys time only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sexton.detect.core_steps import WHOLE, core_steps, share_of
from sexton.detect.registry import detector, missing, unknown
from sexton.detect.stacks import hottest, on_cores
from sexton.detect.threshold import Threshold
from sexton.detect.witness import remembered
from sexton.model.cpu import CoreTimes
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.task import Thread
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Batch, Window
from sexton.series.steps import Step, steps

KERNEL_SHARE = Threshold(
    "kernel share", 90, "% of a core", "the walk of the incident held its core at 100 % system"
)
HELD = Threshold(
    "held", 2, "s in a row", "shorter bursts are ordinary; drivers lose patience after 5 s"
)
GRAVE = Threshold("grave", 5, "s in a row", "the transmit watchdogs of ENA and others fire at 5 s")
BLAME = Threshold(
    "blame", 50, "% of the held time", "a task that used less than half of it did not hold the core"
)
#: Readings come a little early or late: nine tenths of a limit is that limit.
_SLACK = 0.9
#: The evidence that tells system time from softirq ends so; its number is the system's share.
BY_KIND = "by kind"
_SHOWN = 8


class _Slice(NamedTuple):
    """One core between two readings, in milliseconds."""

    core: int
    start: float
    end: float
    user_ms: int
    system_ms: int
    irq_ms: int
    #: In the kernel, in per cent of what the core was given.
    share: float

    @property
    def kernel_ms(self) -> int:
        return self.system_ms + self.irq_ms

    @property
    def given_s(self) -> float:
        """Seconds the core had; all of them unless ticks were lost."""
        return self.kernel_ms / 10 / self.share if self.share else self.end - self.start


@dataclass(slots=True)
class _Run:
    """Neighbouring slices of one core above the limit; `before` and `after` are what the kernel
    took of the slices at its edges, in seconds."""

    slices: list[_Slice]
    before: float = 0.0
    after: float = 0.0

    @property
    def core(self) -> int:
        return self.slices[0].core

    @property
    def start(self) -> float:
        return self.slices[0].start - self.before

    @property
    def end(self) -> float:
        return self.slices[-1].end + self.after

    @property
    def full(self) -> float:
        """Seconds that were surely held."""
        return self.slices[-1].end - self.slices[0].start

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def share(self, field: str) -> float:
        """Of the surely held time that the core was given, in per cent."""
        spent: int = sum(getattr(each, field) for each in self.slices)
        return spent / 10 / self.given_s

    @property
    def given_s(self) -> float:
        """Of the surely held seconds those that the core was given."""
        return sum(each.given_s for each in self.slices)

    @property
    def is_softirq(self) -> bool:
        return self.share("irq_ms") > self.share("system_ms")


class _Blame(NamedTuple):
    """A thread and its share of a run's time."""

    name: str
    share: float


@detector(needs=(CoreTimes,), thresholds=(KERNEL_SHARE, HELD, GRAVE, BLAME))
@remembered
def detect(window: Window) -> Finding:
    """The longest time any core was held in the kernel."""
    batches = window.batches(CoreTimes) or ()
    watched = batches[-1].mono_s - batches[0].mono_s
    if watched < HELD.value * _SLACK:
        lacking = Missing(
            f"readings at least {HELD.value:.0f} s apart", "sexton diagnose --seconds 10"
        )
        summary = f"{duration(watched)} of readings cannot tell a stall from a spike"
        return unknown("saturated_core", summary, (lacking,))
    slices = [made for step in core_steps(window) if (made := _slice(step)) is not None]
    if not slices:
        lacking = Missing("two readings of one core in order", "sexton diagnose --seconds 10")
        return unknown("saturated_core", "every core's counters went backwards", (lacking,))
    held = sorted(
        (run for run in _runs(slices) if run.full >= HELD.value * _SLACK),
        key=lambda run: -run.seconds,
    )
    return _held(held, window) if held else _calm(slices, watched)


def _slice(step: Step[CoreTimes]) -> _Slice | None:
    user, nice = step.delta("user_ms"), step.delta("nice_ms")
    system, irq, softirq = step.delta("system_ms"), step.delta("irq_ms"), step.delta("softirq_ms")
    if user is None or nice is None or system is None or irq is None or softirq is None:
        return None  # the core went offline and came back: its counters started again
    share = share_of(step, system + irq + softirq)
    return _Slice(
        step.after.cpu, step.start_mono, step.end_mono, user + nice, system, irq + softirq, share
    )


def _runs(slices: Iterable[_Slice]) -> Iterator[_Run]:
    """Per core, slices above the limit that touch each other."""
    open_runs: dict[int, _Run] = {}
    previous: dict[int, _Slice] = {}
    for each in slices:
        last = previous.get(each.core)
        touches = last is not None and last.end == each.start
        run = open_runs.get(each.core)
        if run is not None and not touches:  # it was offline, or one reading of it was lost
            yield open_runs.pop(each.core)
            run = None
        if each.share >= KERNEL_SHARE.value:
            if run is None:
                edge = last.kernel_ms / 1000 if last is not None and touches else 0.0
                run = open_runs[each.core] = _Run([], before=edge)
            run.slices.append(each)
        elif run is not None:
            run.after = each.kernel_ms / 1000
            yield open_runs.pop(each.core)
        previous[each.core] = each
    yield from open_runs.values()


def _calm(slices: Sequence[_Slice], watched: float) -> Finding:
    worst = max(slices, key=lambda each: each.share)
    coarse = max(each.end - each.start for each in slices)
    blurred = max((each.kernel_ms for each in slices), default=0) / 1000
    lacking: tuple[Missing, ...] = ()
    if coarse > 2 * HELD.value and blurred >= HELD.value:
        what = f"readings {duration(coarse)} apart average away a stall that is shorter"
        lacking = (Missing(what, "sexton diagnose --seconds 10"),)
    share = min(worst.share, 100.0)
    return Finding(
        "saturated_core",
        Verdict.ABSENT,
        Severity.INFO,
        f"no core held in the kernel; busiest there: core {worst.core}, {share:.0f} % "
        f"over {duration(worst.end - worst.start)}",
        evidence=(
            Evidence(
                "worst core in the kernel, one step",
                f"{share:.0f} %",
                f"< {KERNEL_SHARE.value:.0f} % for {HELD.value:.0f} s",
                "% of a core",
                "/proc/stat",
                share,
                f"the stall was outside these {duration(watched)}",
            ),
        ),
        missing=lacking,
    )


def _held(held: Sequence[_Run], window: Window) -> Finding:
    by_core: dict[int, list[_Run]] = defaultdict(list)
    for run in held:  # longest first, so the first of each core is its worst
        by_core[run.core].append(run)
    worst = held[0]
    longest = {core: runs[0] for core, runs in by_core.items()}
    threads = window.batches(Thread)
    blamed = _blame(longest, threads) if threads is not None else {}
    evidence = [_seconds_held(runs) for runs in list(by_core.values())[:_SHOWN]]
    evidence.append(_by_kind(worst))
    if worst.given_s < WHOLE * worst.full:
        evidence.append(_given(worst))
    evidence += [_task_share(core, blamed[core]) for core in list(blamed)[:_SHOWN]]
    span = (window.wall(worst.start), window.wall(worst.end))
    if (function := hottest(on_cores(window, {str(worst.core)}, span))) is not None:
        evidence.append(_function(worst.core, *function))
    lacking: list[Missing] = []
    if threads is None:
        lacking.append(missing(window.why_missing(Thread)))
    elif worst.core not in blamed:
        what = f"no single thread accounts for core {worst.core}"
        lacking.append(Missing(what, f"sudo perf top -g -C {worst.core}"))
    by = f" by {blamed[worst.core].name}" if worst.core in blamed else ""
    where = "in softirq" if worst.is_softirq else "in the kernel"
    others = f" (and {count(len(longest) - 1, 'more core')})" if len(longest) > 1 else ""
    return Finding(
        "saturated_core",
        Verdict.PRESENT,
        Severity.CRITICAL if worst.seconds >= GRAVE.value * _SLACK else Severity.WARNING,
        f"core {worst.core}{others} was held {where} for {duration(worst.seconds)}{by}",
        entities={
            "core": tuple(str(core) for core in longest),
            "task": tuple(dict.fromkeys(each.name for each in blamed.values())),
        },
        start=span[0],
        end=span[1],
        evidence=tuple(evidence),
        missing=tuple(lacking),
    )


def _seconds_held(runs: Sequence[_Run]) -> Evidence:
    run = runs[0]
    times = f", {len(runs)} times" if len(runs) > 1 else ""
    return Evidence(
        f"core {run.core} in the kernel{times}",
        f"{run.seconds:.1f} s",
        "< 0.1 s",
        "seconds in a row",
        "/proc/stat",
        run.seconds,
        "a debugger, a virtual machine's boot or a benchmark was meant to do that",
    )


def _by_kind(run: _Run) -> Evidence:
    return Evidence(
        f"core {run.core} {BY_KIND}",
        f"user {run.share('user_ms'):.0f} % · system {run.share('system_ms'):.0f} %"
        f" · softirq {run.share('irq_ms'):.0f} %",
        "mostly idle or user",
        "% of a core",
        "/proc/stat",
        run.share("system_ms"),
        "a flood of packets shows as softirq, a walk or reclaim as system",
    )


def _given(run: _Run) -> Evidence:
    share = 100 * run.given_s / run.full
    return Evidence(
        f"core {run.core} had the time",
        f"{share:.0f} %",
        "all of it",
        "% of the held time",
        "/proc/stat: its parts, against the clock",
        share,
        "interrupts were off, not the core away: the kernel counts no ticks then either",
    )


def _task_share(core: int, blame: _Blame) -> Evidence:
    return Evidence(
        f"{blame.name} on core {core}",
        f"{blame.share:.0f} %",
        "< 10 %",
        "% of the held time",
        "/proc/PID/task/TID/stat",
        blame.share,
        "the thread moved between cores inside one step",
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


def _blame(runs: Mapping[int, _Run], batches: Sequence[Batch[Thread]]) -> dict[int, _Blame]:
    """Per held core, the thread whose own time moved most on it while it was held.

    Threads are read a moment after the cores, and a thread is first seen when its process has
    already moved: of a step counts what fits into its overlap with the run, and a thread is
    measured against the time it was seen, which must be half of the run at least.
    """
    spent: dict[int, dict[tuple[int, int], float]] = defaultdict(lambda: defaultdict(float))
    seen: dict[tuple[int, tuple[int, int]], float] = defaultdict(float)
    names: dict[tuple[int, int], str] = {}
    for _, step in steps(batches, lambda row: (row.pid, row.tid, row.start_ms)):
        task = (step.after.pid, step.after.tid)
        used = ((step.delta("user_ms") or 0) + (step.delta("system_ms") or 0)) / 1000
        for core in {step.before.cpu, step.after.cpu}:
            run = runs.get(core) if core is not None else None
            if run is None:
                continue
            overlap = min(step.end_mono, run.end) - max(step.start_mono, run.start)
            if overlap <= 0:
                continue
            # A thread that came or went inside the step spent an unknown part of it here.
            here = 1.0 if step.before.cpu == step.after.cpu else 0.5
            spent[run.core][task] += min(used * here, overlap)
            seen[run.core, task] += overlap
            names[task] = step.after.comm
    blamed = {}
    for core, run in runs.items():
        tasks = spent.get(core)
        if not tasks:
            continue
        task = max(tasks, key=lambda each: tasks[each])
        watched = seen[core, task]
        share = min(100 * tasks[task] / watched, 100.0)
        if share >= BLAME.value and watched >= BLAME.value / 100 * run.full * _SLACK:
            pid, tid = task
            suffix = f"{pid}" if pid == tid else f"{pid}/{tid}"
            blamed[core] = _Blame(f"{names[task]}[{suffix}]", share)
    return blamed
