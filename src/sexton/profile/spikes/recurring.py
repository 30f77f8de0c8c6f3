"""What a core does again and again: not rare, so no spike, but not to be passed over either."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sexton.model.spike import Recurring
from sexton.profile.spikes.baseline import Scored
from sexton.profile.spikes.look import Scene, beside, look_into
from sexton.profile.spikes.options import SECOND_NS
from sexton.profile.spikes.runs import Run

#: Less than this much above the usual is not told.
_LEAST_HEIGHT = 0.1
#: Intervals that vary less than this (standard deviation by mean) are a period.
_REGULAR = 0.25
#: Intervals this close are one and the same.
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


def recurring(scene: Scene) -> tuple[Recurring, ...]:
    """Periodic loads and runs too frequent to be rare, the heaviest first."""
    standing = scene.standing
    found = [_of_runs(runs) for runs in standing.habits]
    told = {habit.core for habit in found}
    for core in range(len(standing.grid.cpus)):
        for kernel, scored in ((False, standing.busy[core]), (True, standing.kernel[core])):
            habit = None if scored is None or core in told else _of_period(core, scored, kernel)
            if habit is not None:
                told.add(core)
                found.append(habit)
    groups: list[list[_Habit]] = []
    for habit in sorted(found, key=lambda each: -each.run.mass):
        same = (group for group in groups if _alike(group[0], habit))
        group = next(same, None)
        if group is None:
            groups.append([habit])
        else:
            group.append(habit)
    return tuple(_told(scene, group, at < _MOST_EXAMPLES) for at, group in enumerate(groups))


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
    # The level has a second's slack on either side: its middle is where the load is.
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


def _told(scene: Scene, group: list[_Habit], with_example: bool) -> Recurring:
    standing = scene.standing
    best = group[0]
    scored = standing.scored(best.run)
    usual = float(np.median(scored.usual))
    example = None
    if with_example:
        example = look_into(_bare(scene, best), [best.run])[0]
    return Recurring(
        cpus=tuple(sorted(int(standing.grid.cpus[habit.core]) for habit in group)),
        interval_ns=round(best.interval * SECOND_NS),
        regular=best.regular,
        times=max(habit.times for habit in group),
        busy=min(1.0, usual + best.height),
        normal=usual,
        example=example,
    )


def _bare(scene: Scene, habit: _Habit) -> Scene:
    """The scene without the core's period, its bursts marked loud: compare with what is between."""
    standing = scene.standing
    scored = standing.scored(habit.run)
    levels = scored.usual
    usual = float(np.median(levels))
    loud = standing.loud.copy()
    loud[habit.core] |= scored.extra + levels >= usual + 0.25 * habit.height
    flat = replace(scored, period=None, usual=np.full(len(levels), usual, np.float32))
    signals = [list(standing.busy), list(standing.kernel)]
    signals[int(habit.run.kernel)][habit.core] = flat
    bare = replace(standing, busy=signals[0], kernel=signals[1], loud=loud)
    return replace(scene, standing=bare, loud=beside(loud))
