"""Several cores flush cgroup statistics at once and wait for each other.

**What is seen.** Kernel stacks (``--stacks``): seconds in which two cores or more were caught in
the functions that flush cgroup statistics (`cgroup_rstat_*`, `css_rstat_*`,
`mem_cgroup_flush_stats`), how many of those samples only spun for the lock, which tasks, and
whether those cores were held in the kernel. Without stacks only absence can be shown: if no two
cores were busy in the kernel at the same time, there was no contention.

**Why it hurts.** Since 4.18 cgroups keep their counters per core and add them up when they are
read; there is one lock per machine (or per controller) for that. Readers of `memory.stat`
on many cores, reclaim and dirty throttling queue up there, each with its core at 100 % in the
kernel. One reader alone that takes long is a different problem: *slow_memcg_stats*.

**What would make it wrong.** One core that flushes is the ordinary price of reading statistics.
Two that flush in the same second need not have met: it is a warning only where two cores were held
mostly by that. Where the lock sleeps instead of spinning, waiting costs time and no samples.

**Check by hand.** ``sudo perf record -ag sleep 10; sudo perf report --no-children`` and look for
``cgroup_rstat_flush`` or ``css_rstat_flush``; on 6.10 and newer ``sudo perf trace -e
cgroup:cgroup_rstat_lock_contended sleep 10``.

**What to do.** Have fewer readers, less often: one agent that reads `memory.stat` for all, longer
intervals in cAdvisor (``--housekeeping-interval``) and node agents. Newer kernels skip flushes
that would change little (6.8) and have a lock per controller (6.16).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sexton.detect.detectors.cpu.saturated_core import HELD, KERNEL_SHARE, held_meanwhile
from sexton.detect.families import is_rstat, is_spinning
from sexton.detect.findings import AGAIN, absent, not_applicable, reason, unknown
from sexton.detect.registry import Averages, Threshold, detector
from sexton.detect.runs import StepRun, step_runs
from sexton.detect.stacks import Caught, caught, cgroups_of, thread_name
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.trace import StackCount
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.cores import CoreSeries, Hold, bridged_series

NAME = "rstat_contention"

SEVERAL = Threshold("cores", 2, "in one second", "one core that flushes waits for no other")
CAUGHT = Threshold("caught", 10, "samples/s and core", "a tenth of a core at 97 Hz")
LASTING = Threshold("for", 2, "s in a row", "as long as a core must be held to be reported")
MOSTLY = Threshold(
    "of a held core", 50, "% of its kernel samples", "less, and something else held it"
)
TOGETHER = Threshold(
    "together",
    50,
    "% in the kernel",
    "a core that spins on a lock spends more than half its time there",
)

WITH_STACKS = "sudo sexton diagnose --stacks  # recorded: sexton record --stacks"
_SHOWN = 8


class _Second(NamedTuple):
    """One second with its cores that were caught flushing, and how often each."""

    start: float
    end: float
    cores: Counter[int]


class Pair(NamedTuple):
    """Two cores in one step, and the share in the kernel of the one that had less."""

    cores: tuple[int, int]
    share: float


@detector(
    thresholds=(SEVERAL, CAUGHT, LASTING, MOSTLY, KERNEL_SHARE, HELD, TOGETHER),
    title="rstat contention",
    story="Cores waited for each other to update cgroup statistics",
    lanes=("cores", "stacks"),
    about=("core", "task", "cgroup"),
    answers={"core": 4},
    averages=Averages((CoreTimes,), LASTING, "two cores in the kernel at once"),
)
def detect(window: Window) -> Finding:
    """The stretch in which most samples of several cores flushed."""
    rows = window.latest(CoreTimes)
    if rows is not None and len(rows) == 1:
        return not_applicable(NAME, "one core cannot contend with itself")
    stacks = caught(window, is_rstat)
    if stacks is None:
        return _without_stacks(window)
    every = _seconds(stacks)
    several = [len(second.cores) >= SEVERAL.value for second in every]
    found = step_runs(every, several, LASTING.value)
    if not found:
        return _none(stacks)
    return _contended(window, max(found, key=_samples))


def busiest_pair(series: CoreSeries) -> Pair | None:
    """The step in which two cores spent the most time in the kernel at once."""
    percent = np.nan_to_num(series.percent(series.kernel), nan=-1.0)
    if len(percent) < 2:
        return None
    lesser = np.partition(percent, -2, axis=0)[-2]
    step = int(lesser.argmax())
    if lesser[step] < 0:
        return None
    two = np.argsort(-percent[:, step], kind="stable")[:2].tolist()
    return Pair((series.cores[two[0]], series.cores[two[1]]), float(lesser[step]))


def _without_stacks(window: Window) -> Finding:
    """Without stacks: cores that were never busy in the kernel together did not contend."""
    lacking = (Missing("what the cores were executing (kernel stacks)", WITH_STACKS),)
    if not window.read(CoreTimes):
        return unknown(NAME, reason(window.why_missing(StackCount)), lacking)
    series = bridged_series(window)
    pair = None if series is None else busiest_pair(series)
    if pair is None:
        again = Missing("two readings of /proc/stat", AGAIN)
        return unknown(NAME, "fewer than two readings of two cores", (*lacking, again))
    share = min(pair.share, 100.0)
    if share >= TOGETHER.value:
        both = f"cores {pair.cores[0]} and {pair.cores[1]} were {share:.0f} % in the kernel at once"
        return unknown(NAME, f"{both}; only stacks can show what they executed", lacking)
    both_busy = Evidence(
        "two cores in the kernel at once, the lower of the two",
        f"{share:.0f} %",
        f"< {TOGETHER.value:.0f} %",
        "% of a core, between two readings",
        "/proc/stat",
        share,
        "shorter bursts are averaged; a task that sleeps for the lock uses no CPU",
    )
    summary = f"no two cores were busy in the kernel at once; at most {share:.0f} % each"
    return absent(NAME, summary, [both_busy], lacking)


def _seconds(stacks: Caught) -> list[_Second]:
    by_second: dict[int, Counter[int]] = defaultdict(Counter)
    for row in stacks.rows:
        by_second[row.second_mono][row.cpu] += row.samples
    return [
        _Second(
            float(second),
            float(second + 1),
            Counter({cpu: n for cpu, n in cores.items() if n >= CAUGHT.value}),
        )
        for second, cores in sorted(by_second.items())
    ]


def _samples(run: StepRun[_Second]) -> int:
    return sum(step.cores.total() for step in run.steps)


def _none(stacks: Caught) -> Finding:
    summary = "no core was caught flushing cgroup statistics"
    if stacks.samples:
        where = count(len(stacks.cores), "core")
        summary = (
            f"cgroup statistics were flushed in {count(stacks.samples, 'sample')} on {where},"
            " never for long by two at once"
        )
    return absent(NAME, summary, _flushing(stacks))


def _contended(window: Window, run: StepRun[_Second]) -> Finding:
    span = run.start, run.end
    stacks = caught(window, is_rstat, span)
    assert stacks is not None
    often: Counter[int] = Counter()
    for step in run.steps:
        often.update(step.cores)
    cores = [core for core, _ in sorted(often.items(), key=lambda key: (-key[1], key[0]))]
    mostly = [core for core in cores if stacks.share(core) >= MOSTLY.value]
    held = held_meanwhile(window, mostly, run.close_up)
    burnt = [core for core in mostly if core in held]
    leading = stacks.leading()
    tasks = [thread_name(*thread) for thread in leading]
    evidence = [*_flushing(stacks), *(_of_core(stacks, core, held) for core in cores[:_SHOWN])]
    unread = Missing(reason(window.why_missing(CoreTimes)), "sudo sexton diagnose")
    lacking = () if window.read(CoreTimes) else (unread,)
    by = f" by {tasks[0]}" if tasks else ""
    also = f" and {count(len(tasks) - 1, 'more task')}" if len(tasks) > 1 else ""
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if len(burnt) >= SEVERAL.value else Severity.INFO,
        f"{count(len(cores), 'core')} flushed cgroup statistics at once for"
        f" {duration(run.seconds)}{by}{also}; {count(len(burnt), 'core')} held by it",
        entities={
            "core": tuple(map(str, (burnt or cores)[:_SHOWN])),
            "task": tuple(tasks),
            "cgroup": cgroups_of(window, (pid for pid, _, _ in leading), run.end),
        },
        start=window.wall(run.start),
        end=window.wall(run.end),
        evidence=tuple(evidence),
        missing=lacking,
    )


def _flushing(stacks: Caught) -> Sequence[Evidence]:
    spinning = sum(row.samples for row in stacks.rows if is_spinning(row.frames))
    what, wrong_if = "that flush cgroup statistics", "inlining hides a function in its caller"
    made = [stacks.evidence(what, "< 5 %", wrong_if)]
    if stacks.samples:
        share = 100 * spinning / stacks.samples
        made.append(
            Evidence(
                "of those, only waiting for the lock",
                f"{share:.0f} %",
                "< 10 %",
                "% of those samples",
                "perf record",
                share,
                "a task that sleeps on the lock is not sampled",
            )
        )
    return made


def _of_core(stacks: Caught, core: int, held: dict[int, Hold]) -> Evidence:
    share = stacks.share(core)
    kept = f", held for {held[core].seconds:.1f} s" if core in held else ""
    return Evidence(
        f"core {core}, kernel samples that flush",
        f"{share:.0f} %{kept}",
        f"< {MOSTLY.value:.0f} %",
        "% of its kernel samples",
        "perf record, /proc/stat",
        share,
        "the core did something else between the samples",
    )
