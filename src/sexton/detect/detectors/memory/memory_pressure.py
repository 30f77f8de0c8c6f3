"""The whole machine is short of memory: tasks stall until some is freed.

**What is seen.** Pressure stall information of the machine (`/proc/pressure/memory`), between
readings: the share of time in which *some* task waited for memory and in which *all* of them did
(*full*). Beside it, over the same seconds, what the memory manager did: pages kswapd scanned, pages
that were evicted and had to be read back (refaults), pages swapped in and free pages. Processes
killed for memory are `oom_kills`.

**Why it hurts.** Nothing computes while it waits for a page. Thrashing takes a machine down long
before it runs out: every program's code is evicted and read back, over and over.

**What would make it wrong.** kswapd scans on every healthy machine with a full page cache: it is
shown and does not change the verdict. Its own work counts as *some* for as long as it runs. PSI
weighs every core by how busy it is: one stalled container among 96 busy cores is 1 %, see
*direct_reclaim* for that; alone on an idle machine the same container is 100 %, *full* too. So PSI
alone never shows that the *machine* is short. Where readings are missing, the totals before and
after give the mean of that time; if that may hide a stretch above the limit, it is said. Where all
scanning was done for cgroups at their limits it is not: the summary says so, and the severity is
one step lower. If nothing counts which task scanned, stacks may show it (reclaim in the page
allocator, kswapd); if those do not either, the wait is only noted. Without PSI only the absence of
all reclaim can be shown.

**Check by hand.** ``cat /proc/pressure/memory`` twice (`total` is microseconds); ``vmstat 1`` (si,
so, free); ``grep -E 'workingset_refault|pgscan_kswapd|swpin' /proc/vmstat``.

**What to do.** Find what uses the memory: ``ps -eo rss,comm --sort -rss | head``, or by cgroup
``systemd-cgtop -m``. Cap or move it. A machine without swap that thrashes has only file pages left
to evict: it needs less work or more memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sexton.detect.families import is_reclaim, is_shortage
from sexton.detect.findings import AGAIN, absent, missing, not_seen, unknown, unread
from sexton.detect.registry import Averages, Threshold, detector, look
from sexton.detect.runs import StepRun, step_runs
from sexton.detect.stacks import Caught, caught, thread_name
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series import paging, pressure
from sexton.series.paging import PagingStep, Reading, Readings
from sexton.series.pressure import Level, Levels, Stall, Stalls
from sexton.series.rates import hidden_s, lasts

NAME = "memory_pressure"

#: Symptoms that come together on many busy nodes and are mistaken for cause and effect whenever two
#: graphs have the same shape. (Throttling is never caused by reclaim: a quota is used up by
#: running, and reclaim makes a task wait.)
SHORTAGE = "shortage of memory or CPU"
#: The first look at a shortage of memory.
BIGGEST_PROCESSES = look(
    "ps -eo rss,pid,comm --sort -rss | head",
    "see which processes use the memory; limit them, move them, or give them less work",
)

HURTS = Threshold(
    "stalled", 10, "% some", "a tenth of the working time lost; Android's killer acts from 7 %"
)
LASTS = Threshold("stalled for", 5, "s in a row", "starting a large program stalls for less")
NOTED = Threshold("noted", 5, "% some", "kswapd alone stays below this with a full page cache")
NOTED_FOR = Threshold("noted for", 2, "s in a row", "a single large allocation is over by then")
ALL_STALL = Threshold("all stalled", 5, "% full", "a twentieth of the time nothing ran at all")
GRAVE = Threshold("grave", 40, "% full", "close to the 60 % at which systemd-oomd starts to kill")
GRAVE_FOR = Threshold("grave for", 10, "s in a row", "systemd-oomd waits 30 s, users do not")
_THRESHOLDS = (NOTED, NOTED_FOR, HURTS, ALL_STALL, LASTS, GRAVE, GRAVE_FOR)

#: Counters that show reclaim or thrashing.
_SIGNS = {
    "kswapd": "pages scanned by kswapd",
    "direct": "pages scanned by tasks for the machine",
    "refaults": "pages read back after eviction",
    "swapped_in": "pages swapped in",
}
_FOR_CGROUPS = "of the pages scanned, for cgroups at their limits"
#: Per cent of all scanning: if the machine's part is smaller, only cgroups were short.
_MACHINES = 10
#: Samples of reclaim; fewer do not show what it was for.
_ENOUGH = 20
_LESS = {
    Severity.CRITICAL: Severity.WARNING,
    Severity.WARNING: Severity.INFO,
    Severity.INFO: Severity.INFO,
}


class Worst(NamedTuple):
    """The worst stretch, with the severity of the highest limit it reached; `machine` is whether
    the machine itself was short, `None` if unknown."""

    run: StepRun[Stall]
    severity: Severity
    machine: bool | None = True


def _hidden_s(window: Window) -> float:
    """Seconds without a reading in which enough time was lost for a stretch that hurts."""
    stalls = pressure.levels(window, "memory").stalls
    spent = stalls.end - stalls.start
    lost = np.fmax(stalls.some / HURTS.value, stalls.full / ALL_STALL.value) * spent
    return hidden_s(window, (stalls.start, stalls.end), lost, LASTS.value)


def _ruled_out(window: Window) -> str:
    whole = pressure.whole(window, "memory")
    known = whole is not None and not _hidden_s(window)
    return f"memory pressure ({whole.some:.1f} %)" if whole is not None and known else ""


@detector(
    thresholds=_THRESHOLDS,
    title="memory pressure",
    story="Memory was short",
    lanes=("pressure", "cores"),
    about=("core", "task"),
    ruled_out=_ruled_out,
    advice=BIGGEST_PROCESSES,
    rises_with=SHORTAGE,
    plan_note="freeing zombies does not fix it; see DO NOW in sexton diagnose",
    averages=Averages((Pressure, VmCounter), LASTS, "tasks that wait for memory"),
)
def detect(window: Window) -> Finding:
    """The worst stretch by PSI; without PSI only whether there was any reclaim."""
    counted = paging.readings(window)
    found = pressure.levels(window, "memory")
    whole = pressure.whole(window, "memory")
    if whole is None:
        return _without_pressure(window, counted, found)
    worst = worst_of(found.stalls)
    if worst is None:
        return _calm(window, counted, whole)
    return _pressed(window, worst, counted, found)


def worst_of(steps: Stalls) -> Worst | None:
    """Of the stretches above the highest limit reached, the one with most time lost."""
    for severity, above, lasting in (
        (Severity.CRITICAL, steps.full >= GRAVE.value, GRAVE_FOR),
        (Severity.WARNING, steps.some >= HURTS.value, LASTS),
        (Severity.WARNING, steps.full >= ALL_STALL.value, LASTS),
        (Severity.INFO, steps.some >= NOTED.value, NOTED_FOR),
    ):
        if found := step_runs(steps, above, lasting.value):
            return Worst(max(found, key=_lost), severity)
    return None


def stalled(window: Window) -> list[StepRun[Stall]]:
    """Stretches in which tasks waited for memory long enough to hurt."""
    every = pressure.levels(window, "memory").stalls
    return step_runs(every, every.some >= HURTS.value, LASTS.value)


def stalled_seconds(run: StepRun[Any], stalls: Sequence[StepRun[Stall]]) -> float:
    """Seconds of a stretch in which tasks waited for memory; 0 if too few to hurt."""
    seconds = sum(run.overlap(stall) for stall in stalls)
    return seconds if lasts(seconds, LASTS.value) else 0.0


def _lost(run: StepRun[Stall]) -> int:
    """Time lost, in whole milliseconds: the sum is the same however the stretch is cut."""
    return round(sum(step.some * step.seconds * 10 for step in run.steps))


def _without_pressure(
    window: Window, counted: Sequence[Reading], found: Sequence[Level]
) -> Finding:
    """No PSI: if nothing was reclaimed, no task can have waited for it; otherwise it is unknown."""
    lacking = [missing(window.why_missing(Pressure))]
    if found:
        lacking = [Missing("two readings of /proc/pressure/memory", AGAIN)]
    whole = paging.first_to_last(window)
    if whole is None:
        lacking += unread(window, VmCounter)
        return unknown(NAME, "whether tasks waited for memory is unknown", lacking)
    moved = {name: whole.moved[name] for name in _SIGNS if whole.moved.get(name)}
    if not moved and "kswapd" in whole.moved:
        when = f"in {duration(whole.seconds)}"
        summary = f"nothing was reclaimed {when}, so no task waited for memory"
        return absent(NAME, summary, (*_signs(whole, every=True), *_free(counted)), lacking)
    name = next(iter(moved), None)
    what = f"{moved[name]:,} {_SIGNS[name]}" if name else "reclaim is not counted here"
    return unknown(NAME, f"{what}; only PSI can show whether tasks waited", lacking)


def _calm(window: Window, counted: Sequence[Reading], whole: Stall) -> Finding:
    moved = paging.whole(window)
    signs = _signs(moved, every=False) if moved is not None else []
    evidence = [*_levels(whole), *signs, *_free(counted)]
    lacking = [] if counted else [missing(window.why_missing(VmCounter))]
    lacking += not_seen("whether tasks waited for memory for seconds on end", _hidden_s(window))
    summary = f"{whole.some:.1f} % of the time a task waited for memory"
    return absent(NAME, summary, evidence, lacking)


def _pressed(window: Window, worst: Worst, counted: Readings, found: Levels) -> Finding:
    evidence: list[Evidence] = []
    level = pressure.between(*_edges(found, worst.run))
    over = paging.over(counted, worst.run.start, worst.run.end)
    if level is not None:
        evidence += _levels(level)
    if over is not None:
        evidence += _signs(over, every=False)
    evidence += _free(counted)
    if over is not None and (share := _for_cgroups(over)) is not None:
        evidence.append(share)
        worst = worst._replace(severity=_LESS[worst.severity], machine=False)
    elif (over is None or over.by_tasks is None) and not _machine_reclaims(window, worst.run):
        worst = worst._replace(severity=Severity.INFO, machine=None)
    span = (worst.run.start, worst.run.end)
    stacks = caught(window, is_reclaim, span)
    return Finding(
        NAME,
        Verdict.PRESENT,
        worst.severity,
        _summary(worst, level),
        entities=_who(stacks),
        start=window.wall(span[0]),
        end=window.wall(span[1]),
        evidence=(*evidence, *_caught(stacks)),
        missing=() if counted else (missing(window.why_missing(VmCounter)),),
    )


def is_of_cgroups(finding: Finding) -> bool:
    """Did the counters show that only cgroups were short, and not the machine?"""
    return any(evidence.what == _FOR_CGROUPS for evidence in finding.evidence)


def _for_cgroups(moved: PagingStep) -> Evidence | None:
    """Evidence that nearly all pages were scanned for cgroups; `None` if the machine was short."""
    tasks = moved.by_tasks
    if "every" not in moved.moved or not tasks:
        return None
    machine = moved.moved.get("direct", 0) + moved.moved.get("kswapd", 0)
    cgroups = max(0, tasks - moved.moved.get("direct", 0))
    if 100 * machine >= _MACHINES * (machine + cgroups):
        return None
    return Evidence(
        _FOR_CGROUPS,
        f"{100 * cgroups / (machine + cgroups):.0f} %",
        f"< {100 - _MACHINES} %",
        "% of the pages scanned",
        "/proc/vmstat",
        100 * cgroups / (machine + cgroups),
        "the machine is short as well and waits in some other way",
    )


def _machine_reclaims(window: Window, run: StepRun[Stall]) -> bool:
    """Do stacks show that a fair part of all reclaim was for the whole machine?"""
    stacks = caught(window, is_reclaim, (run.start, run.end))
    if stacks is None or stacks.samples < _ENOUGH:
        return False
    short = sum(row.samples for row in stacks.rows if is_shortage(row.frames))
    return 100 * short >= _MACHINES * stacks.samples


def _edges(found: Levels, run: StepRun[Stall]) -> tuple[Level, Level]:
    first, last = np.searchsorted(found.mono, (run.start, run.end)).tolist()
    return found[first], found[last]


def _who(stacks: Caught | None) -> dict[str, tuple[str, ...]]:
    if stacks is None:
        return {}
    return {
        "task": tuple(thread_name(*thread) for thread in stacks.leading()),
        "core": tuple(map(str, stacks.leading_cores())),
    }


def _summary(worst: Worst, level: Stall | None) -> str:
    words = f"tasks waited for memory for {duration(worst.run.seconds)}"
    if level is not None:
        words = f"some task waited for memory {level.some:.0f} % of {duration(worst.run.seconds)}"
        words += f", all tasks {level.full:.0f} %" if level.full is not None else ""
    if worst.machine is False:
        words += "; only in cgroups at their limits: the machine itself has enough memory"
    if worst.machine is None:
        words += "; whether the machine or a cgroup's limit is short is unknown"
    return words


def _levels(level: Stall) -> list[Evidence]:
    source, unit = "/proc/pressure/memory", f"% of {duration(level.seconds)}"
    made = [
        Evidence(
            "time in which some task waited for memory",
            f"{level.some:.1f} %",
            f"< {NOTED.value:.0f} %",
            unit,
            source,
            level.some,
            "kswapd at work counts as waiting",
        )
    ]
    if level.full is not None:
        made.append(
            Evidence(
                "time in which all tasks waited for memory",
                f"{level.full:.1f} %",
                "< 1 %",
                unit,
                source,
                level.full,
                "only one task was running, so all tasks waited when it did",
            )
        )
    return made


def _signs(moved: PagingStep, *, every: bool) -> list[Evidence]:
    return [
        Evidence(
            words,
            f"{rate:,.0f}",
            "0 if memory is plentiful",
            f"pages/s over {duration(moved.seconds)}",
            "/proc/vmstat",
            rate,
            "a full page cache is scanned all the time, and no task waits for it",
        )
        for name, words in _SIGNS.items()
        if (rate := moved.rate(name)) is not None and (every or rate)
    ]


def _free(counted: Sequence[Reading]) -> list[Evidence]:
    free = counted[-1].sums.get("free") if counted else None
    if free is None:
        return []
    return [
        Evidence(
            "free pages",
            f"{free:,}",
            "a few per cent; the rest is page cache",
            "pages at the end",
            "/proc/vmstat",
            free,
            "page cache can be reclaimed, too",
        )
    ]


def _caught(stacks: Caught | None) -> list[Evidence]:
    if stacks is None or not stacks.samples:
        return []
    share = 100 * stacks.samples / stacks.of.total()
    return [
        Evidence(
            "kernel samples that free memory",
            f"{share:.0f} %",
            "< 10 %",
            "% of the kernel's samples",
            "perf record",
            share,
            "a task that sleeps for memory is not sampled",
        )
    ]
