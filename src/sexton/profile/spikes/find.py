"""Find spikes, or analyse given events: the entry point of this package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sexton.model.profile import Heat
from sexton.model.text import count
from sexton.profile.heat import SECOND_NS, heat_of, within
from sexton.profile.significance import t_tail
from sexton.profile.spikes.aligned import aligned
from sexton.profile.spikes.baseline import LEAST_SECONDS, Scored
from sexton.profile.spikes.describe import Search, describe, widened
from sexton.profile.spikes.grid import Grid, NoData, grid_of
from sexton.profile.spikes.runs import Outliers, Run, find_outliers
from sexton.profile.spikes.spike import Recurring, Spike, SpikeOptions, Spikes

if TYPE_CHECKING:
    from sexton.profile.captures import Opened

#: Runs on several cores are simultaneous if they overlap by this share.
_OVERLAP = 0.5


def find(opened: Opened, options: SpikeOptions) -> Spikes:
    """The spikes of a profile, the strongest first, recurring bursts, and problems."""
    try:
        # The rate of one event among several is known only from its samples.
        hertz = opened.hertz if options.event is None else None
        grid = grid_of(_heats(opened, options), options.cpus, hertz)
    except NoData as reason:
        return Spikes((), 0, 0, 0, options.fdr, [f"no data: {reason}"])
    if options.at is not None:
        return aligned(opened, grid, options)
    outliers = find_outliers(grid, options.fdr)
    search = Search(opened, outliers, options, widened(outliers.loud))
    spikes: list[Spike] = []
    left = list(outliers.rare)
    while left and len(spikes) < options.most:
        cluster, left = _at_once(left)
        spikes += describe(search, cluster)
    spikes.sort(key=lambda spike: -_mass(spike))
    return Spikes(
        tuple(spikes[: options.most]),
        outliers.tests,
        len(grid.cpus),
        grid.seconds,
        options.fdr,
        _problems(outliers, options),
        recurring(search),
        len(spikes) + len(left),
        _unscored(outliers) + _blind(outliers, options),
    )


def _heats(opened: Opened, options: SpikeOptions) -> Iterator[Heat]:
    if options.event is None:
        return opened.heats(options.start_ns, options.end_ns)
    return (
        within(heat_of(profile, options.event), options.start_ns, options.end_ns)
        for profile in opened.profiles(options.start_ns, options.end_ns)
    )


def _at_once(runs: list[Run]) -> tuple[list[Run], list[Run]]:
    """The strongest run with simultaneous runs of other cores, and the rest."""
    first = runs[0]
    together, rest, cores = [first], [], {first.core}
    for run in runs[1:]:
        shared = min(run.end, first.end) - max(run.start, first.start)
        whole = max(run.end, first.end) - min(run.start, first.start)
        if run.core not in cores and shared >= _OVERLAP * whole:
            together.append(run)
            cores.add(run.core)
        else:
            rest.append(run)
    return together, rest


def _mass(spike: Spike) -> float:
    extra = spike.kernel - spike.normal_kernel if spike.in_kernel else spike.busy - spike.normal
    return extra * (spike.end_ns - spike.onset_ns) * len(spike.cpus)


def _problems(outliers: Outliers, options: SpikeOptions) -> list[str]:
    grid = outliers.grid
    problems = []
    short = _unscored(outliers)
    if short == len(grid.cpus):
        return [_too_short(grid, f"at least {LEAST_SECONDS} s with samples are needed")]
    if short:
        problems.append(f"too few samples for a baseline on {count(short, 'core')}")
    blind = _blind(outliers, options)
    if blind == len(grid.cpus):
        problems.append(_too_short(grid, "no spike could be significant"))
    elif blind:
        problems.append(
            f"on {blind} of {len(grid.cpus)} cores no spike could be significant: "
            "too few seconds, too bursty, or always busy in the kernel"
        )
    lost = int(np.count_nonzero(grid.trials == 0))
    if lost:
        problems.append(f"{lost} of {grid.trials.size} core-seconds were not sampled")
    return problems


def _unscored(outliers: Outliers) -> int:
    """Cores with too few samples."""
    return sum(scored is None for scored in outliers.busy)


def _blind(outliers: Outliers, options: SpikeOptions) -> int:
    """Cores on which no spike, however large, could be significant."""
    needed = options.fdr / max(outliers.tests, 1)
    best, df = [], []
    for one, two in zip(outliers.busy, outliers.kernel, strict=True):
        if one is not None and two is not None:
            clearer = max(one, two, key=lambda scored: scored.best_t)
            best.append(clearer.best_t)
            df.append(clearer.df)
    return int(np.count_nonzero(2 * t_tail(best, df) > needed))


def _too_short(grid: Grid, reason: str) -> str:
    return f"too short: {grid.seconds} s on {count(len(grid.cpus), 'core')}, {reason}"


#: Smaller bursts are not reported.
_LEAST_HEIGHT = 0.1
#: Intervals that vary less than this (standard deviation by mean) are periodic.
_REGULAR = 0.25
#: Intervals this close are the same.
_SAME = 0.03
_MOST_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class _Habit:
    core: int
    interval: float
    regular: bool
    times: int
    height: float
    run: Run


def recurring(search: Search) -> tuple[Recurring, ...]:
    """Periodic loads and runs that are too frequent to be spikes, the heaviest first."""
    outliers = search.outliers
    found = [_of_runs(runs) for runs in outliers.habits]
    reported = {habit.core for habit in found}
    for core in range(len(outliers.grid.cpus)):
        for kernel, scored in ((False, outliers.busy[core]), (True, outliers.kernel[core])):
            habit = None if scored is None or core in reported else _of_period(core, scored, kernel)
            if habit is not None:
                reported.add(core)
                found.append(habit)
    groups: list[list[_Habit]] = []
    for habit in sorted(found, key=lambda item: -item.run.mass):
        same = (group for group in groups if _alike(group[0], habit))
        group = next(same, None)
        if group is None:
            groups.append([habit])
        else:
            group.append(habit)
    return tuple(_recurring(search, group, at < _MOST_EXAMPLES) for at, group in enumerate(groups))


def _of_runs(runs: list[Run]) -> _Habit:
    starts = np.sort([run.start for run in runs])
    gaps = np.diff(starts)
    interval = float(np.median(gaps))
    regular = float(gaps.std()) <= _REGULAR * float(gaps.mean())
    best = max(runs, key=lambda run: run.mass)
    return _Habit(best.core, interval, regular, len(runs), best.extra, best)


def _of_period(core: int, scored: Scored, kernel: bool) -> _Habit | None:
    if scored.period is None:
        return None
    levels = scored.usual
    usual = float(np.median(levels))
    height = float(levels.max()) - usual
    if height < _LEAST_HEIGHT:
        return None
    # The level has a second of slack on both sides: the burst is in the middle.
    high = levels >= usual + 0.5 * height
    top = int(np.argmax(np.where(high, scored.extra + levels, 0)))
    start = end = top
    actual = scored.extra + levels
    while start > 0 and actual[start - 1] >= usual + 0.25 * height:
        start -= 1
    while end + 1 < len(levels) and actual[end + 1] >= usual + 0.25 * height:
        end += 1
    mass = float((actual[start : end + 1] - usual).clip(0).sum())
    run = Run(core, start, end + 1, kernel, 1.0, height, mass)
    times = round(len(levels) / scored.period.seconds)
    return _Habit(core, scored.period.seconds, True, times, height, run)


def _alike(one: _Habit, two: _Habit) -> bool:
    return one.regular == two.regular and abs(one.interval - two.interval) <= max(
        _SAME * one.interval, 0.2
    )


def _recurring(search: Search, group: list[_Habit], with_example: bool) -> Recurring:
    outliers = search.outliers
    best = group[0]
    scored = outliers.scored(best.run)
    usual = float(np.median(scored.usual))
    example = None
    if with_example:
        example = describe(_without_period(search, best), [best.run])[0]
    return Recurring(
        cpus=tuple(sorted(outliers.grid.numbers(habit.core for habit in group))),
        interval_ns=round(best.interval * SECOND_NS),
        regular=best.regular,
        times=max(habit.times for habit in group),
        busy=min(1.0, usual + best.height),
        normal=usual,
        example=example,
    )


def _without_period(search: Search, habit: _Habit) -> Search:
    """The search without the period of the core, its bursts not counted as calm."""
    outliers = search.outliers
    scored = outliers.scored(habit.run)
    levels = scored.usual
    usual = float(np.median(levels))
    loud = outliers.loud.copy()
    loud[habit.core] |= scored.extra + levels >= usual + 0.25 * habit.height
    flat = replace(scored, period=None, usual=np.full(len(levels), usual, np.float32))
    signals = [list(outliers.busy), list(outliers.kernel)]
    signals[int(habit.run.kernel)][habit.core] = flat
    bare = replace(outliers, busy=signals[0], kernel=signals[1], loud=loud)
    return replace(search, outliers=bare, loud=widened(loud))
