"""Page faults are so frequent that the kernel does little else.

**What is seen.** Faults a second from `/proc/vmstat` (`pgfault`, and `pgmajfault` for those that
waited for a disk), per core; the processes that caused them (`/proc/PID/stat`); and, with stacks,
the cores on which fault handlers were sampled, and whether such a core was held in the kernel. A
held core that mostly handles faults is a storm at any rate: the cost of a fault differs a
hundredfold between machines, and under software emulation a tenth of the rate fills a core.

**Why it hurts.** A minor fault costs about a microsecond in the kernel, more if threads contend
for the lock of one address space: at hundreds of thousands a second a core does nothing else, and
work bound to it waits. A major fault blocks its task until the disk read completes.

**What would make it wrong.** Every program faults as it starts and grows: a healthy compiler causes
tens of thousands per second and core, so a high rate alone is only *info*. It is a warning if
faults held a core (stacks and `/proc/stat` agree), or if major faults came with memory pressure:
pages that were still needed had been evicted. Major faults alone are a cold start. Faults inside
reclaim count as *direct_reclaim*. Without stacks, one process on a large machine disappears in the
average; if it also held a core, that is noted, since its faults may be the reason. In the original
incident, page faults were a red herring.

**Check by hand.** ``sar -B 1 10`` (fault/s, majflt/s); ``pidstat -r 1``; ``sudo perf trace -F all
--no-syscalls sleep 2``.

**What to do.** Find out why that process maps and unmaps: an allocator that returns memory at
once (``MALLOC_TRIM_THRESHOLD_``, jemalloc's ``dirty_decay_ms``), a loop of short-lived processes, a
garbage collector. Huge pages need fewer faults for the same memory. With pressure: see
*memory_pressure*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from sexton.detect.detectors.cpu import saturated_core
from sexton.detect.detectors.cpu.saturated_core import HELD, KERNEL_SHARE, held_meanwhile
from sexton.detect.detectors.memory import memory_pressure
from sexton.detect.detectors.memory.memory_pressure import HURTS, LASTS
from sexton.detect.families import is_fault
from sexton.detect.findings import AGAIN, absent, missing, names, not_seen, unknown, unread
from sexton.detect.registry import Averages, Threshold, detector, look
from sexton.detect.runs import AROUND_S, StepRun, step_runs
from sexton.detect.stacks import Caught, caught, cgroups_of, thread_name
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.task import Process
from sexton.model.rows.trace import StackCount
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series import paging
from sexton.series.paging import PagingStep, PagingSteps
from sexton.series.pressure import Stall
from sexton.series.rates import hidden_s
from sexton.series.tasks import Task, Used, task_steps, used

NAME = "page_fault_storm"

MINOR = Threshold(
    "faults",
    100_000,
    "a second and core",
    "measured on 6.18: small compilations 54,000, a shell loop 50,000, nothing but faults 380,000",
)
MAJOR = Threshold(
    "major faults", 500, "a second", "where node_exporter's own alert rules begin to warn"
)
LASTING = Threshold("for", 2, "s in a row", "the start of one large program is over by then")
MOSTLY = Threshold(
    "of a held core", 50, "% of its kernel samples", "less, and something else held it"
)
CAUGHT = Threshold(
    "caught", 20, "samples/s and core", "a fifth of a core at 97 Hz; fewer prove nothing"
)
HOLDER = Threshold(
    "of a held core's task",
    10_000,
    "faults a second",
    "at 0.1 ms each, as under emulation, they fill a core; only stacks can confirm it",
)
BLAME = Threshold("blame", 20, "% of the faults", "processes with fewer did not cause the storm")
_LIMITS = (MINOR, MAJOR, LASTING, KERNEL_SHARE, HELD, MOSTLY, CAUGHT, HOLDER, BLAME, HURTS, LASTS)

WITH_STACKS = "sudo sexton diagnose --stacks"
_SHOWN = 8


Faults = Mapping[Task, Used[Process]]


class Tally(NamedTuple):
    """Minor and major page faults of every process that is known to have had some."""

    minor: Faults
    major: Faults


def tally(window: Window, span: tuple[float, float]) -> Tally | None:
    """Faults by process in the readings around a span; `None` with fewer than two readings.

    A process that started meanwhile has counted from zero; one that exited is unknown.
    """
    start, end = span[0] - AROUND_S, span[1] + AROUND_S
    read = [batch for batch in window.between(Process, *span) if start <= batch.mono_s <= end]
    if len(read) < 2:
        return None
    return Tally(
        used(task_steps(read, lambda row: row.minor_faults)),
        used(task_steps(read, lambda row: row.major_faults)),
    )


def holder(window: Window, held: Finding, least: float) -> tuple[Used[Process], Tally] | None:
    """The process that held a core with at least `least` minor faults a second, if any."""
    if held.start is None or held.end is None:
        return None
    since = window.start_mono - window.start
    counted = tally(window, (held.start + since, held.end + since))
    if counted is None:
        return None
    threads = [name.rpartition("[")[2] for name in held.entities.get("task", ())]
    pids = {thread.partition("/")[0].rstrip("]") for thread in threads}
    mine = [
        process
        for process in counted.minor.values()
        if str(process.row.pid) in pids and process.rate >= least
    ]
    return (max(mine, key=lambda process: process.amount), counted) if mine else None


class Storm(NamedTuple):
    """The stretch with the highest rate. `stalled` is how many of its seconds had memory pressure,
    for major faults."""

    run: StepRun[PagingStep]
    is_major: bool
    stalled: float


class _Second(NamedTuple):
    """A second in which one core mostly handled faults, and its samples there."""

    start: float
    end: float
    core: int
    samples: int


class _Seen(NamedTuple):
    """A stretch, the cores it held (seconds each), and the processes that faulted."""

    run: StepRun[PagingStep] | StepRun[_Second]
    is_major: bool
    stalled: float
    held: dict[int, float]
    stacks: Caught | None
    moved: PagingStep | None
    tally: Tally | None

    @property
    def is_warning(self) -> bool:
        return bool(self.stalled or self.held)


def _hidden_s(window: Window) -> float:
    """Seconds without a reading in which there were enough faults for a storm."""
    moved, cores = paging.readings(window).steps, cores_of(window)
    storms = moved.moved("major") / MAJOR.value
    if cores:
        storms = np.maximum(storms, moved.moved("faults") / (MINOR.value * cores))
    return hidden_s(window, (moved.start, moved.end), storms, LASTING.value)


def _ruled_out(window: Window) -> str:
    over = paging.whole(window)
    faults = None if over is None or _hidden_s(window) else over.rate("major")
    return "" if faults is None else f"page faults ({faults:,.0f} major/s)"


def _is_major(finding: Finding) -> bool:
    """Minor faults are ordinary work; only faults that read from disk go with a shortage."""
    rates = (
        evidence.number for evidence in finding.evidence if evidence.what == "major page faults"
    )
    return any(rate is not None and rate >= MAJOR.value for rate in rates)


@detector(
    thresholds=_LIMITS,
    title="page fault storm",
    story="Pages were faulted in, again and again",
    lanes=("cores", "pressure"),
    about=("core", "task", "cgroup"),
    answers={"task": 4},
    ruled_out=_ruled_out,
    advice=look(
        "pidstat -r 1 5",
        "see which process maps and unmaps: an allocator that returns memory at once, or a loop of "
        "short-lived processes",
    ),
    mimics=saturated_core.NAME,
    rises_with=memory_pressure.SHORTAGE,
    rises_if=_is_major,
    averages=Averages((VmCounter, CoreTimes, Pressure), 0, "a process whose faults hold a core"),
)
def detect(window: Window) -> Finding:
    """Major faults with pressure, a core that was held by faults, or the highest rate."""
    found = paging.readings(window)
    moved = found.steps
    cores = cores_of(window)
    storm = worst(moved, cores, memory_pressure.stalled(window))
    burnt = None if storm is not None and storm.stalled else _burnt(window)
    if burnt is not None:
        run, held_cores = burnt
        span = run.start, run.end
        stacks = caught(window, is_fault, span)
        over = paging.over(found, *span)
        both = storm is not None and storm.run.overlap(run) > 0
        counted = tally(window, storm.run.close_up) if storm is not None and both else None
        seen = _Seen(run, False, 0.0, held_cores, stacks, over, counted)
    elif storm is not None:
        span = storm.run.close_up
        edges = storm.run.start, storm.run.end
        stacks = caught(window, is_fault, span)
        over, counted = paging.over(found, *edges), tally(window, span)
        seen = _Seen(storm.run, storm.is_major, storm.stalled, {}, stacks, over, counted)
    else:
        return _by_the_holder(window) or _calm(window, cores)
    return _storming(window, seen, cores)


def cores_of(window: Window) -> int | None:
    """The number of cores: a rate means nothing without it."""
    rows = window.latest(CoreTimes)
    if rows:
        return len(rows)
    return window.node.cores if window.node else None


def worst(moved: PagingSteps, cores: int | None, stalls: Sequence[StepRun[Stall]]) -> Storm | None:
    """Major faults under memory pressure, else the kind that is furthest above its limit."""
    best: tuple[float, float, Storm] | None = None
    for is_major, limit in ((True, MAJOR.value), (False, MINOR.value * cores if cores else None)):
        if limit is None:
            continue
        group = "major" if is_major else "faults"
        for run in step_runs(moved, moved.rate(group) >= limit, LASTING.value):
            stalled = memory_pressure.stalled_seconds(run, stalls) if is_major else 0.0
            times = sum(step.moved.get(group, 0) for step in run.steps) / limit
            if best is None or (stalled, times) > best[:2]:
                best = stalled, times, Storm(run, is_major, stalled)
    return best[2] if best else None


def _burnt(window: Window) -> tuple[StepRun[_Second], dict[int, float]] | None:
    """The core with the most samples of faults that was held in the kernel by them, and all cores
    so held in the same seconds."""
    stacks = caught(window, is_fault)
    if stacks is None or not stacks.samples:
        return None
    every: Counter[tuple[int, int]] = Counter()
    for row in window.latest(StackCount) or ():
        every[row.cpu, row.second_mono] += row.samples
    mine: Counter[tuple[int, int]] = Counter()
    for row in stacks.rows:
        mine[row.cpu, row.second_mono] += row.samples
    mostly: dict[int, list[_Second]] = {}
    for (core, second), samples in sorted(mine.items()):
        if samples >= CAUGHT.value and 100 * samples >= MOSTLY.value * every[core, second]:
            made = _Second(float(second), float(second + 1), core, samples)
            mostly.setdefault(core, []).append(made)
    found = (step_runs(group, [True] * len(group), LASTING.value) for group in mostly.values())
    long = sorted(chain.from_iterable(found), key=_heaviest)
    for run in long[:_SHOWN]:
        together = {other.steps[0].core for other in long if other.overlap(run) >= LASTING.value}
        held = held_meanwhile(window, together | {run.steps[0].core}, run.close_up)
        if run.steps[0].core in held:
            return run, {core: held[core].seconds for core in sorted(held)}
    return None


def _heaviest(run: StepRun[_Second]) -> tuple[int, float, int]:
    return -sum(step.samples for step in run.steps), run.start, run.steps[0].core


def _by_the_holder(window: Window) -> Finding | None:
    """Without stacks: a core was held by a process that faulted meanwhile. Only *info*."""
    if window.read(StackCount) or not window.read(CoreTimes):
        return None
    core = saturated_core.detect(window)
    found = holder(window, core, HOLDER.value)
    if found is None:
        return None
    who, _ = found
    share = _share(who, is_major=False)
    held = core.entities["core"]
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.INFO,
        f"{share.value} page faults a second by {_name(who)}, which held core {held[0]}; only"
        " stacks can show whether its faults held it",
        entities={"core": held, "task": (_name(who),)},
        start=core.start,
        end=core.end,
        evidence=(share,),
        missing=(Missing("on which core the faults are handled", WITH_STACKS),),
    )


def _calm(window: Window, cores: int | None) -> Finding:
    whole = paging.whole(window)
    if whole is None or (rate := whole.rate("faults")) is None:
        lacks = unread(window, VmCounter) or [Missing("two readings of /proc/vmstat", AGAIN)]
        return unknown(NAME, "fewer than two readings of /proc/vmstat that count faults", lacks)
    lacking = [] if cores else [missing(window.why_missing(CoreTimes))]
    lacking += not_seen("whether page faults came in a storm", _hidden_s(window))
    summary = f"{rate:,.0f} page faults a second"
    if (major := whole.rate("major")) is not None:
        summary += f", {major:,.0f} of them major"
    return absent(NAME, summary, _rates(whole, cores), lacking)


def _storming(window: Window, seen: _Seen, cores: int | None) -> Finding:
    run, stacks = seen.run, seen.stacks
    # The evidence that it was found by comes first: a held core, else the rate.
    evidence = [_of_core(seen, core) for core in list(seen.held)[:_SHOWN]]
    evidence += list(_rates(seen.moved, cores)) if seen.moved is not None else []
    blamed = _blamed(seen)
    if seen.tally is not None:
        evidence += [_share(process, is_major=seen.is_major) for process in blamed]
    tasks = [_name(process) for process in blamed]
    pids = [process.row.pid for process in blamed]
    if stacks is not None and stacks.samples:
        wrong_if = "a task that waits for the disk is not sampled"
        what, normal = "that handle page faults", f"< {MOSTLY.value:.0f} %"
        evidence.append(stacks.evidence(what, normal, wrong_if))
        leading = stacks.leading(BLAME.value)
        tasks = [*(thread_name(*thread) for thread in leading), *tasks]
        pids = [*(pid for pid, _, _ in leading), *pids]
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if seen.is_warning else Severity.INFO,
        _summary(seen, tasks),
        entities={
            "core": tuple(map(str, _cores(seen))),
            "task": names(tasks)[:_SHOWN],
            "cgroup": cgroups_of(window, pids, run.close_up[1]),
        },
        start=window.wall(run.start),
        end=window.wall(run.end),
        evidence=tuple(evidence),
        missing=tuple(_lacking(window, cores)),
    )


def _cores(seen: _Seen) -> list[int]:
    """Cores held by faults; else sampled cores that mostly handled faults."""
    if seen.held or seen.stacks is None:
        return list(seen.held)
    cores = seen.stacks.cores
    mostly = [core for core in cores if seen.stacks.share(core) >= MOSTLY.value]
    return sorted(mostly, key=lambda core: (-cores[core], core))[:_SHOWN]


def _summary(seen: _Seen, tasks: Sequence[str]) -> str:
    rate = seen.moved.rate("major" if seen.is_major else "faults") if seen.moved else None
    kind = "major page faults" if seen.is_major else "page faults"
    many = f"{rate:,.0f} {kind} a second" if rate is not None else kind
    by = f" by {tasks[0]}" if tasks else ""
    what = f"{many} for {duration(seen.run.seconds)}{by}"
    if seen.held:
        core, longest = max(seen.held.items(), key=lambda key: (key[1], -key[0]))
        return f"{what}; they held core {core} in the kernel for {duration(longest)}"
    if seen.stalled:
        return f"{what}; for {duration(seen.stalled)} of it tasks waited for memory"
    return f"{what}; no core is seen to be held by it"


def _blamed(seen: _Seen) -> list[Used[Process]]:
    if seen.tally is None:
        return []
    faults = (seen.tally.major if seen.is_major else seen.tally.minor).values()
    least = BLAME.value / 100 * sum(process.amount for process in faults)
    found = [process for process in faults if process.amount and process.amount >= least]
    return sorted(found, key=lambda process: (-process.amount, process.row.pid))


def _name(process: Used[Process]) -> str:
    return f"{process.row.comm}[{process.row.pid}]"


def _lacking(window: Window, cores: int | None) -> list[Missing]:
    lacking = []
    if not window.read(StackCount):
        lacking.append(Missing("on which core the faults are handled", WITH_STACKS))
    lacking += unread(window, Process)
    if cores is None:
        lacking.append(missing(window.why_missing(CoreTimes)))
    return lacking


def _rates(moved: PagingStep, cores: int | None) -> list[Evidence]:
    unit, source = f"a second over {duration(moved.seconds)}", "/proc/vmstat"
    made = []
    if (rate := moved.rate("faults")) is not None:
        text = f" ({rate / cores:,.0f} per core)" if cores else ""
        limit = f"< {MINOR.value * cores:,.0f}" if cores else f"< {MINOR.value:,.0f} per core"
        limit += ", and no core held by them"
        wrong_if = "compilers, shells and anything that starts many programs do that"
        made.append(
            Evidence("page faults", f"{rate:,.0f}{text}", limit, unit, source, rate, wrong_if)
        )
    if (rate := moved.rate("major")) is not None:
        wrong_if = "programs that start with a cold cache are read from disk"
        limit = f"< {MAJOR.value:,.0f}"
        made.append(
            Evidence("major page faults", f"{rate:,.0f}", limit, unit, source, rate, wrong_if)
        )
    return made


def _share(who: Used[Process], *, is_major: bool) -> Evidence:
    return Evidence(
        f"{'major ' if is_major else ''}page faults of {_name(who)}",
        f"{who.rate:,.0f}",
        "some hundreds",
        f"a second over {duration(who.seconds)}",
        "/proc/PID/stat",
        who.rate,
        "processes that exited in this time are not counted",
    )


def _of_core(seen: _Seen, core: int) -> Evidence:
    assert seen.stacks is not None
    return Evidence(
        f"core {core} held by page faults",
        f"{seen.held[core]:.1f} s, {seen.stacks.share(core):.0f} % of its samples",
        f"< {HELD.value:.0f} s",
        "seconds in a row",
        "/proc/stat, perf record",
        seen.held[core],
        "samples and times are a moment apart",
    )
