"""Turn a run of seconds into a spike: onset and end, calm windows, what grew.

For the onset and end, each 1/50 s gets a weight: how much likelier are its samples at the rate of
the spike than at the normal rate? The onset is where the sum of the following weights is largest:
the most likely place of one change between the two rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sexton.model.profile import CELL_NS, CELLS, Bools, Floats
from sexton.profile.heat import SECOND_NS
from sexton.profile.spikes.baseline import Scored
from sexton.profile.spikes.grid import Grid
from sexton.profile.spikes.growth import Growth, growth
from sexton.profile.spikes.runs import Outliers, Run
from sexton.profile.spikes.spike import Spike, SpikeOptions
from sexton.profile.spikes.windows import (
    LONGEST_NS,
    Matched,
    Range,
    count,
    heat_cells,
    matched,
    parts_for,
    parts_of,
    sample_cells,
    window_of,
    window_with_gaps,
)

if TYPE_CHECKING:
    from sexton.profile.captures import Opened

#: Seconds at the start and end of a run that are searched for the change.
_INSIDE = 2


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """The input of a search. `loud` are core-seconds that are not calm, and their neighbours."""

    opened: Opened
    outliers: Outliers
    options: SpikeOptions
    loud: Bools


class Placed(NamedTuple):
    """A run with its start and end to 20 ms."""

    run: Run
    onset_ns: int
    end_ns: int


def widened(loud: Bools) -> Bools:
    """Add one second on both sides: a spike rarely starts on the second."""
    wider = loud.copy()
    wider[:, 1:] |= loud[:, :-1]
    wider[:, :-1] |= loud[:, 1:]
    return wider


def describe(search: Search, cluster: Sequence[Run]) -> list[Spike]:
    """The spikes of simultaneous runs, the strongest first; cores with the same growth are one."""
    groups: dict[object, list[tuple[Placed, Growth, Matched]]] = {}
    for run in cluster:
        placed = place(search, run)
        found, windows = _grown(search, [placed])
        # Without a significant function it stays separate.
        key: object = found.head if found.head is not None else run.core
        groups.setdefault(key, []).append((placed, found, windows))
    spikes = []
    for members in groups.values():
        runs = [placed for placed, _, _ in members]
        found, windows = members[0][1:]
        if len(members) > 1:
            found, windows = _grown(search, runs)
        spikes.append(_spike(search, runs, found, windows))
    return spikes


def place(search: Search, run: Run) -> Placed:
    """Find the onset and end of a run within its first and last seconds."""
    grid = search.outliers.grid
    scored = search.outliers.scored(run)
    signal = grid.kernel if run.kernel else grid.busy
    trials = np.maximum(grid.trials[run.core, run.columns], 1)
    # The first and last second are partly calm: use the upper quartile as its rate.
    now = float(np.quantile(signal[run.core, run.columns] / trials, 0.75))
    usual = float(scored.usual[run.columns].mean())
    first, last = max(0, run.start - 1), min(run.end, run.start + _INSIDE)
    began = rise(_weights(search, run, (first, last), (usual, now)))
    onset = grid.time_ns(first) + began * CELL_NS
    first, last = max(run.start, run.end - _INSIDE), min(grid.seconds, run.end + 1)
    ended = fall(_weights(search, run, (first, last), (usual, now)))
    end = grid.time_ns(first) + ended * CELL_NS
    return Placed(run, onset, max(end, onset + CELL_NS))


def _weights(
    search: Search, run: Run, columns: tuple[int, int], rates: tuple[float, float]
) -> Floats:
    grid = search.outliers.grid
    start, end = (grid.time_ns(column) for column in columns)
    wanted = Range(start, end, (int(grid.cpus[run.core]),), search.options.event)
    if run.kernel or wanted.event is not None:
        # Heat has cells of busy time over all events only: count others from samples.
        hits = sample_cells(parts_of(search.opened, wanted), wanted, run.kernel)
    else:
        hits = heat_cells(search.opened, wanted)
    trials = np.repeat(grid.trials[run.core, slice(*columns)] / CELLS, CELLS)
    return weights(hits, trials, *rates)


def _grown(search: Search, members: Sequence[Placed]) -> tuple[Growth, Matched]:
    grid, options = search.outliers.grid, search.options
    rows = [placed.run.core for placed in members]
    start = min(placed.onset_ns for placed in members)
    end = max(placed.end_ns for placed in members)
    note = ""
    if end - start > LONGEST_NS:
        end = start + LONGEST_NS
        note = f"stacks of the first {LONGEST_NS // SECOND_NS} s only"
    spike = window_of(grid, rows, start, end)
    if spike is None:
        spike = window_with_gaps(grid, rows, start, end)
        note = "some seconds were not sampled"
    period = search.outliers.scored(members[0].run).period
    calm = matched(grid, search.loud, rows, (start, end), period)
    windows = [spike, *calm.windows]
    parts = parts_for(search.opened, windows, options.event)
    found = growth(count(parts, windows), 1, options.fdr)
    if not parts:
        note = "samples of that time are gone: what grew is unknown"
    remarks = "; ".join(remark for remark in (calm.note, note) if remark)
    return found, Matched(calm.windows, remarks)


def _spike(search: Search, members: Sequence[Placed], found: Growth, calm: Matched) -> Spike:
    outliers = search.outliers
    grid = outliers.grid
    # The member with the most excess gives the best onset.
    best = max(members, key=lambda placed: placed.run.mass)
    note = calm.note
    if len(calm.windows) < 2:
        note += "; q of what grew reflects sampling noise only" if calm.windows else ""
    return Spike(
        cpus=tuple(sorted(grid.numbers(placed.run.core for placed in members))),
        start_ns=min(
            min(placed.onset_ns for placed in members) // SECOND_NS * SECOND_NS,
            min(grid.time_ns(placed.run.start) for placed in members),
        ),
        end_ns=max(placed.end_ns for placed in members),
        onset_ns=best.onset_ns,
        busy=found.busy or _mean(_now(grid, placed.run, grid.busy) for placed in members),
        normal=_mean(_usual(outliers.busy[placed.run.core], placed.run) for placed in members),
        kernel=found.kernel or _mean(_now(grid, placed.run, grid.kernel) for placed in members),
        q=min(placed.run.q for placed in members),
        grew=found.grew,
        stacks=found.stacks,
        tasks=found.tasks,
        calm_windows=len(calm.windows),
        note=note,
        path=found.path,
        in_kernel=best.run.kernel,
        normal_kernel=_mean(
            _usual(outliers.kernel[placed.run.core], placed.run) for placed in members
        ),
        tested=found.tested,
    )


def _now(grid: Grid, run: Run, signal: Floats) -> float:
    """The share by heat, if there are no samples."""
    trials = grid.trials[run.core, run.columns]
    return float(np.median(signal[run.core, run.columns] / np.maximum(trials, 1)))


def _usual(scored: Scored | None, run: Run) -> float:
    return 0.0 if scored is None else float(scored.usual[run.columns].mean())


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


#: Rates are kept away from 0 and 1: a tick may fall into the neighbouring cell.
_DOUBT = 0.02


def weights(hits: Floats, trials: Floats, usual: float, now: float) -> Floats:
    """Log-likelihood ratio of the spike's share `now` to the normal share, per cell."""
    low, high = (float(np.clip(share, _DOUBT, 1 - _DOUBT)) for share in (usual, now))
    hits = np.minimum(hits, trials)
    up, down = np.log(high / low), np.log((1 - high) / (1 - low))
    return np.asarray(hits * up + (trials - hits) * down, np.float64)


def rise(weight: Floats) -> int:
    """The first cell of the spike (given that it lasts to the end of `weight`)."""
    if not len(weight):
        return 0
    # Backwards, so that of equally likely cells (no samples between them) the last is taken.
    return len(weight) - 1 - int(np.argmax(np.cumsum(weight[::-1])))


def fall(weight: Floats) -> int:
    """One past the last cell of the spike (given that `weight` starts within it)."""
    if not len(weight):
        return 0
    return int(np.argmax(np.cumsum(weight))) + 1


def stretch(weight: Floats) -> tuple[int, int]:
    """The stretch with the largest sum: the spike, if neither end is given."""
    sums = np.append(0.0, np.cumsum(weight))
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums - lowest))
    # The last position of the lowest sum before it.
    start = end - int(np.argmin(sums[: end + 1][::-1]))
    return start, end
