"""Join seconds that stand out into runs, with one significance per run.

Every core and second is a test, on two signals: busy time and kernel time (a core that is always
busy can still stall in the kernel). Neighbouring candidates form a run, a run has one p (Simes over
its seconds), and the false discovery rate is controlled over runs with every core-second counted as
a test: a long run is one discovery and does not make room for false ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sexton.model.profile import Bools, Floats
from sexton.profile.significance import benjamini_hochberg, simes
from sexton.profile.spikes.baseline import CANDIDATE_P, Scored, Shares, score
from sexton.profile.spikes.grid import Grid

#: Runs separated by at most this many calm (or unsampled) seconds are one.
_GAP = 1
#: A run whose best second is less above the level may be real, but does not matter.
LEAST_EXTRA = 0.2
#: A run is recurring with this many similar runs on its core, or this many per hour.
_HABIT = 6
_HABIT_PER_HOUR = 2


@dataclass(frozen=True, slots=True)
class Run:
    """Columns `start` to `end` (excluded) of row `core`; `mass` is the excess in core-seconds."""

    core: int
    start: int
    end: int
    kernel: bool
    p: float
    extra: float
    mass: float
    q: float = 1.0

    @property
    def columns(self) -> slice:
        return slice(self.start, self.end)


@dataclass(frozen=True, slots=True, eq=False)
class Outliers:
    """The significant runs of a grid. `loud` marks candidates: calm windows exclude them."""

    grid: Grid
    busy: list[Scored | None]
    kernel: list[Scored | None]
    loud: Bools
    #: Significant runs, the strongest first, and groups of recurring ones.
    rare: list[Run]
    habits: list[list[Run]]
    tests: int

    def scored(self, run: Run) -> Scored:
        found = (self.kernel if run.kernel else self.busy)[run.core]
        assert found is not None  # every run has a score
        return found


def find_outliers(grid: Grid, fdr: float) -> Outliers:
    """Test every core and second."""
    busy = [score(grid.busy[core], grid.trials[core]) for core in range(len(grid.cpus))]
    kernel = [score(grid.kernel[core], grid.trials[core]) for core in range(len(grid.cpus))]
    loud = np.zeros(grid.trials.shape, np.bool_)
    tests = 0
    for core, (one, two) in enumerate(zip(busy, kernel, strict=True)):
        if one is not None and two is not None:
            tests += int(np.count_nonzero(grid.trials[core]))
            for scored in (one, two):
                loud[core, scored.near[2 * scored.p < CANDIDATE_P]] = True
    # There are at most as many runs as loud seconds: no larger p can be significant.
    largest = fdr * int(np.count_nonzero(loud)) / max(tests, 1)
    runs: list[Run] = []
    for core, (one, two) in enumerate(zip(busy, kernel, strict=True)):
        if one is None or two is None:
            continue
        if min(one.p.min(initial=1), two.p.min(initial=1)) * 2 > largest:
            continue
        signals = _Signal(one.extra, one.p_values()), _Signal(two.extra, two.p_values())
        runs += [
            _run(core, (start, end), signals)
            for start, end in _neighbours(loud[core])
            if 2 * min(signal.p[start:end].min() for signal in signals) <= largest
        ]
    runs = [run for run in runs if run.p < 1]
    q = benjamini_hochberg([run.p for run in runs], max(tests, 1))
    significant = [
        replace(run, q=float(q_value))
        for run, q_value in zip(runs, q, strict=True)
        if q_value <= fdr
    ]
    rare, habits = _habits(significant, grid.seconds)
    rare.sort(key=lambda run: (-run.mass, run.q))
    return Outliers(grid, busy, kernel, loud, rare, habits, tests)


def _neighbours(loud: Bools) -> list[tuple[int, int]]:
    at = np.flatnonzero(loud)
    if not len(at):
        return []
    breaks = np.flatnonzero(np.diff(at) > _GAP + 1)
    starts = at[np.append(0, breaks + 1)]
    ends = at[np.append(breaks, len(at) - 1)] + 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


class _Signal(NamedTuple):
    extra: Shares
    p: Floats


def _run(core: int, at: tuple[int, int], signals: tuple[_Signal, _Signal]) -> Run:
    columns = slice(*at)
    busy, kernel = (signal.extra[columns] for signal in signals)
    # A signal counts only if it rose by a reportable amount.
    p = [
        simes(signal.p[columns]) for signal in signals if signal.extra[columns].max() >= LEAST_EXTRA
    ]
    # Use busy time, unless kernel time stands out clearly more.
    in_kernel = float(kernel.sum()) > 1.2 * max(float(busy.sum()), 0.0)
    extra = kernel if in_kernel else busy
    both = min(1.0, 2 * min(p, default=1.0))
    return Run(core, *at, in_kernel, both, float(extra.max()), float(extra.clip(0).sum()))


def _habits(runs: list[Run], seconds: int) -> tuple[list[Run], list[list[Run]]]:
    """Runs that are rare on their core, and groups of recurring ones."""
    least = max(_HABIT, _HABIT_PER_HOUR * seconds / 3600)
    rare: list[Run] = []
    habits: list[list[Run]] = []
    of_core: dict[int, list[Run]] = {}
    for run in runs:
        of_core.setdefault(run.core, []).append(run)
    for found in of_core.values():
        mass = np.sort([run.mass for run in found])
        usual: list[Run] = []
        for run in found:
            # Similar means at least half as large: larger ones count too.
            like = len(mass) - int(np.searchsorted(mass, 0.5 * run.mass))
            (usual if like >= least else rare).append(run)
        if len(usual) > 1:
            habits.append(usual)
        else:  # one run recurs at no interval, even if larger ones on its core were similar
            rare += usual
    return rare, habits
