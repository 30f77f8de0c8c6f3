"""Tasks have to free memory themselves before they get any (direct reclaim).

**What is seen.** Between readings of `/proc/vmstat`, how many pages tasks scanned themselves, a
second: `pgscan_direct` for the machine, and for cgroups at their limit what `pgscan_anon` and
`pgscan_file` have more than all other scanners together (the kernel counts those nowhere else).
How often an allocation stalled (`allocstall*`). Whether tasks stalled meanwhile: memory
pressure (PSI) over the same seconds, and, with stacks, which thread was caught in the functions of
reclaim, how long, on which core and in which cgroup.

**Why it hurts.** The task that needs a page stops and scans the lists until it finds some. It
does so in the kernel, on its core: with many dying memory cgroups one such scan took 0.2 ms
for each of them. To its user it is a process that hangs now and then for no reason.

**What would make it wrong.** Scanning alone is not a problem: a container that reads files larger
than its limit frees its own page cache all day at no cost. So the rate by itself is only noted, and
it is a warning where tasks lost time by it. Reclaim on request (`memory.reclaim`,
`memory.force_empty`, a limit that is set) makes no task wait for a page: if stacks show the request
it is noted and not a warning, even if it holds a core; without stacks it counts as a task's own
reclaim. Kernels before 5.8 do not count a cgroup's reclaim at all. kswapd is not counted: this is
its job.

**Check by hand.** ``grep -E 'pgscan|pgsteal|allocstall' /proc/vmstat`` twice; ``cat
/proc/pressure/memory``; ``sudo perf record -ag sleep 10`` and look for ``try_to_free_pages`` or
``try_to_free_mem_cgroup_pages``.

**What to do.** If one cgroup does it, its limit is too small for what runs in it: raise
``memory.max`` (``memory.limit_in_bytes``) or give the job less to do at once. If the whole machine
does it, see *memory_pressure*. If the scans find next to nothing, see *zombie_memcgs*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from sexton.detect.detectors.cpu import saturated_core
from sexton.detect.detectors.memory import memory_pressure
from sexton.detect.detectors.memory.memory_pressure import HURTS, LASTS
from sexton.detect.families import is_direct_reclaim, is_ordered_reclaim
from sexton.detect.findings import absent, missing, names, not_seen, too_few_readings, unknown
from sexton.detect.registry import Averages, Threshold, detector
from sexton.detect.runs import StepRun, step_runs
from sexton.detect.stacks import SLACK_S, Caught, caught, cgroups_of, thread_name
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.trace import StackCount
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series import paging, pressure
from sexton.series.paging import PagingStep, PagingSteps, Readings
from sexton.series.rates import hidden_s

NAME = "direct_reclaim"

NOTED = Threshold(
    "scanned", 1_000, "pages/s", "4 MB per second; a log that fills its page cache stays below"
)
LASTING = Threshold("for", 2, "s in a row", "a single allocation that reclaims is over by then")
CAUGHT = Threshold(
    "caught", 20, "samples/s", "a fifth of a core at 97 Hz, past the 15 % that is called overhead"
)
CAUGHT_FOR = Threshold("caught for", 2, "s", "as long as a core must be held to be reported")

#: What evidence calls requested reclaim.
ORDERED = "reclaim on request"
WITH_STACKS = "sudo sexton diagnose --stacks"
_SHOWN = 8
#: Whether to leave a stretch out.
_Skip = Callable[[StepRun[PagingStep]], bool]


class _Seen(NamedTuple):
    """The worst stretch, how many of its seconds tasks stalled, its stacks, and whether the reclaim
    was requested (`ordered`)."""

    window: Window
    run: StepRun[PagingStep] | None
    stalled: float
    stacks: Caught | None
    ordered: bool = False

    @property
    def span(self) -> tuple[float, float]:
        """Monotonic seconds."""
        if self.run is not None:
            return self.run.start, self.run.end
        assert self.stacks is not None
        assert self.stacks.span is not None
        return self.stacks.span

    @property
    def held(self) -> tuple[str, int] | None:
        """The thread that spent most seconds in reclaim, and how many."""
        if self.stacks is None:
            return None
        seconds = self.stacks.seconds_of(int(CAUGHT.value))
        longest = min(seconds, key=lambda thread: (-seconds[thread], thread), default=None)
        return None if longest is None else (thread_name(*longest), seconds[longest])

    @property
    def severity(self) -> Severity:
        if self.ordered:
            return Severity.INFO
        by_stacks = self.held is not None and self.held[1] >= CAUGHT_FOR.value
        return Severity.WARNING if self.stalled or by_stacks else Severity.INFO


def _hidden_s(window: Window) -> float:
    """Seconds without a reading in which tasks scanned enough for a stretch that is noted."""
    moved = paging.readings(window).steps
    return hidden_s(window, (moved.start, moved.end), moved.by_tasks / NOTED.value, LASTING.value)


def _ruled_out(window: Window) -> str:
    over = paging.whole(window)
    if over is None or over.by_tasks is None or _hidden_s(window):
        return ""
    pages = over.by_tasks
    return f"direct reclaim ({count(pages, 'page')} scanned)" if pages else "direct reclaim"


@detector(
    needs=(VmCounter,),
    thresholds=(NOTED, LASTING, HURTS, LASTS, CAUGHT, CAUGHT_FOR),
    title="direct reclaim",
    story="Tasks had to free memory themselves",
    lanes=("pressure", "cores"),
    about=("core", "task", "cgroup"),
    answers={"task": 3},
    ruled_out=_ruled_out,
    advice=memory_pressure.BIGGEST_PROCESSES,
    mimics=saturated_core.NAME,
    rises_with=memory_pressure.SHORTAGE,
    rises_if=lambda finding: not is_ordered(finding),
    averages=Averages((VmCounter, Pressure), LASTING, "direct reclaim"),
)
def detect(window: Window) -> Finding:
    """The stretch that cost tasks most, by the counters; by stacks where those show more."""
    found = paging.readings(window)
    moved = found.steps
    ordered = _on_order(window)
    run, stalled = worst(moved, memory_pressure.stalled(window), ordered)
    stacks = caught(window, is_direct_reclaim, (run.start, run.end) if run else None)
    if run is not None or (stacks is not None and stacks.samples >= CAUGHT.value):
        return _reclaiming(_Seen(window, run, stalled, stacks), found)
    run, _ = worst(moved, (), lambda run: not ordered(run))
    by_order = caught(window, is_ordered_reclaim, (run.start, run.end) if run else None)
    if by_order is not None and by_order.samples >= CAUGHT.value:
        return _reclaiming(_Seen(window, run, 0.0, by_order, ordered=True), found)
    whole = paging.whole(window)
    if whole is None or whole.by_tasks is None:
        return _cannot_tell(whole)
    found_none = _none(whole, whole.by_tasks, stacks)
    hidden = not_seen("whether tasks reclaimed for seconds on end", _hidden_s(window))
    return replace(found_none, missing=(*found_none.missing, *hidden))


def is_ordered(finding: Finding) -> bool:
    """Is it all reclaim on request?"""
    return finding.id == NAME and any(ORDERED in evidence.what for evidence in finding.evidence)


def _on_order(window: Window) -> _Skip:
    """Was most of the reclaim sampled in a stretch requested?"""
    ordered: Counter[int] = Counter()
    every: Counter[int] = Counter()
    for row in window.latest(StackCount) or ():
        if is_ordered_reclaim(row.frames):
            ordered[row.second_mono] += row.samples
            every[row.second_mono] += row.samples
        elif is_direct_reclaim(row.frames):
            every[row.second_mono] += row.samples

    def mostly(run: StepRun[PagingStep]) -> bool:
        inside = [second for second in every if run.start - SLACK_S < second < run.end]
        return 2 * sum(ordered[second] for second in inside) > sum(
            every[second] for second in inside
        )

    return mostly


def worst(
    moved: PagingSteps, stalls: Sequence[StepRun[pressure.Stall]], aside: _Skip = lambda _: False
) -> tuple[StepRun[PagingStep] | None, float]:
    """The stretch with most stalled seconds, else with most pages; and its stalled seconds.

    Too few stalled seconds to hurt count as none; stretches for which `aside` holds are left out.
    """
    best: tuple[float, int, StepRun[PagingStep]] | None = None
    above = moved.by_tasks >= NOTED.value * (moved.end - moved.start)
    for run in step_runs(moved, above, LASTING.value):
        if aside(run):
            continue
        stalled = memory_pressure.stalled_seconds(run, stalls)
        pages = sum(step.by_tasks or 0 for step in run.steps)
        if best is None or (stalled, pages) > best[:2]:
            best = stalled, pages, run
    return (best[2], best[0]) if best else (None, 0.0)


def _cannot_tell(whole: PagingStep | None) -> Finding:
    if whole is not None:
        what = "/proc/vmstat, as far as it was read, does not count direct reclaim"
        return unknown(NAME, what, (Missing(what, WITH_STACKS),))
    what = "two readings of /proc/vmstat"
    return too_few_readings(NAME, "one reading of /proc/vmstat gives no rate", what)


def _none(whole: PagingStep, pages: int, stacks: Caught | None) -> Finding:
    summary = "no direct reclaim"
    if pages:
        summary = f"tasks scanned {count(pages, 'page')} themselves in {duration(whole.seconds)}"
    evidence = [*_scanned(whole), *_stalls(whole)]
    if stacks is not None:
        evidence.append(_samples(stacks, "direct reclaim"))
    uncounted = Missing("this kernel does not count what cgroups at their limit scan", WITH_STACKS)
    return absent(NAME, summary, evidence, () if "every" in whole.moved else [uncounted])


def _reclaiming(seen: _Seen, found: Readings) -> Finding:
    window, stacks = seen.window, seen.stacks
    start, end = seen.span
    moved = paging.over(found, start, end) if seen.run is not None else None
    evidence = []
    if moved is not None:
        evidence += [*_scanned(moved), *_freed(moved), *_stalls(moved)]
    level = pressure.over(pressure.levels(window, "memory"), start, end)
    pressed = [] if level is None else [_pressed(level)]
    entities: dict[str, tuple[str, ...]] = {}
    what = ORDERED if seen.ordered else "direct reclaim"
    caught_in_it = []
    if stacks is not None and stacks.samples:
        caught_in_it = [_samples(stacks, what), *_by_thread(stacks, what)]
    # The evidence that it was found by comes first.
    evidence += [*caught_in_it, *pressed] if seen.run is None else [*pressed, *caught_in_it]
    every = caught(window, is_ordered_reclaim if seen.ordered else is_direct_reclaim)
    if stacks is not None and every is not None:
        # Those of this stretch first, then those of other times: links join by them.
        leading = [*stacks.leading(), *every.leading()]
        cores = [*stacks.leading_cores(), *every.leading_cores()]
        entities = {
            "task": names(thread_name(*thread) for thread in leading)[:_SHOWN],
            "core": names(map(str, cores))[:_SHOWN],
            "cgroup": cgroups_of(window, (pid for pid, _, _ in leading), end),
        }
    return Finding(
        NAME,
        Verdict.PRESENT,
        seen.severity,
        _summary(seen, moved, level),
        entities=entities,
        start=window.wall(start),
        end=window.wall(end),
        evidence=tuple(evidence),
        missing=tuple(_lacking(window, stacks)),
    )


def _summary(seen: _Seen, moved: PagingStep | None, level: pressure.Stall | None) -> str:
    tasks = [thread_name(*thread) for thread in seen.stacks.leading()] if seen.stacks else []
    also = f" and {count(len(tasks) - 1, 'more task')}" if len(tasks) > 1 else ""
    who = f"{tasks[0]}{also}" if tasks else ""
    if seen.ordered:
        longest = f", for {count(seen.held[1], 'second')}" if seen.held else ""
        were = "were" if also else "was"
        return (
            f"{who or 'a task'} {were} freeing memory on request (memory.force_empty,"
            f" memory.reclaim or a limit){longest}; no task had to wait for it"
        )
    if moved is None:
        assert seen.stacks is not None
        samples = count(seen.stacks.samples, "sample")
        them = "were caught freeing memory themselves" if also else "was caught freeing memory"
        return f"{who or 'a task'} {them} in {samples}"
    pages = moved.tasks_rate or 0.0
    what = f"{pages:,.0f} pages/s scanned in direct reclaim for {duration(moved.seconds)}"
    caught_long = seen.held is not None and seen.held[1] >= CAUGHT_FOR.value
    if seen.held is not None and caught_long:
        what += f"; {seen.held[0]} was in it for {count(seen.held[1], 'second')}"
    elif who:
        what += f", in part by {who}"
    if seen.stalled:
        return f"{what}; tasks waited for memory {level.some if level else 0.0:.0f} % of the time"
    return what if caught_long else f"{what}; no task is seen to stall"


def _lacking(window: Window, stacks: Caught | None) -> list[Missing]:
    lacking = []
    if not pressure.levels(window, "memory"):
        lacking.append(missing(window.why_missing(Pressure)))
    if stacks is None:
        lacking.append(Missing("which task reclaims, and in which cgroup", WITH_STACKS))
    return lacking


def _scanned(moved: PagingStep) -> list[Evidence]:
    pages = moved.tasks_rate
    if pages is None:
        return []
    machine = moved.rate("direct")
    split = ""
    if "every" in moved.moved and machine is not None:
        split = f" ({machine:,.0f} for the machine, {max(0, pages - machine):,.0f} for cgroups)"
    return [
        Evidence(
            "pages scanned in direct reclaim",
            f"{pages:,.0f}{split}",
            f"< {NOTED.value:,.0f}",
            f"pages/s over {duration(moved.seconds)}",
            "/proc/vmstat",
            pages,
            "a cgroup that reads more than its limit scans its own page cache at no cost",
        )
    ]


def _freed(moved: PagingStep) -> list[Evidence]:
    scanned, freed = moved.by_tasks, moved.freed_by_tasks
    if not scanned or freed is None:
        return []
    share = 100 * freed / scanned
    return [
        Evidence(
            "of those, freed",
            f"{share:.0f} %",
            "> 50 %",
            "% of the pages scanned",
            "/proc/vmstat",
            share,
            "a page may be scanned twice before it goes",
        )
    ]


def _stalls(moved: PagingStep) -> list[Evidence]:
    stalls = moved.moved.get("stalls")
    if stalls is None:
        return []
    return [
        Evidence(
            "allocations that had to reclaim for the machine",
            f"{stalls:,}",
            "0",
            f"in {duration(moved.seconds)}",
            "/proc/vmstat",
            stalls,
            "a cgroup at its limit is not counted here",
        )
    ]


def _pressed(level: pressure.Stall) -> Evidence:
    return Evidence(
        "time in which a task waited for memory",
        f"{level.some:.1f} %",
        f"< {HURTS.value:.0f} %",
        f"% of {duration(level.seconds)}",
        "/proc/pressure/memory",
        level.some,
        "one stalled task among many busy cores weighs little in it",
    )


def _samples(stacks: Caught, what: str) -> Evidence:
    wrong_if = "a task that sleeps in reclaim is not sampled"
    return stacks.evidence(f"in {what}", f"< {CAUGHT.value:.0f} a second", wrong_if)


def _by_thread(stacks: Caught, what: str) -> list[Evidence]:
    threads = stacks.threads
    return [
        Evidence(
            f"{thread_name(*who)} in {what}",
            f"{threads[who]:,}",
            "0",
            "samples",
            "perf record",
            threads[who],
            "the stack does not show where the request came from",
        )
        for who in stacks.leading(most=3)
    ]
