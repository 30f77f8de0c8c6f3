"""A run of seconds made into a spike: its onset and end, its calm windows, and what grew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sexton.model.flame import Floats
from sexton.model.heat import CELL_NS, CELLS
from sexton.model.profile import Bools
from sexton.model.spike import Spike
from sexton.profile.spikes.baseline import Scored
from sexton.profile.spikes.counts import Range, count, heat_cells, parts_for, parts_of, sample_cells
from sexton.profile.spikes.grid import Grid
from sexton.profile.spikes.growth import Growth, growth
from sexton.profile.spikes.onset import fall, rise, weights
from sexton.profile.spikes.options import SECOND_NS, Heated, SpikeOptions
from sexton.profile.spikes.period import Period
from sexton.profile.spikes.runs import Run, Standing
from sexton.profile.spikes.windows import LONGEST_NS, Matched, Window, matched, window_of

#: How much of a run's beginning and end is looked at to place the change.
_INSIDE = 2


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """Where things are looked for. `loud` are core-seconds that are not calm, and their sides."""

    opened: Heated
    standing: Standing
    options: SpikeOptions
    loud: Bools


class Placed(NamedTuple):
    """A run with its bounds to 20 ms."""

    run: Run
    onset_ns: int
    end_ns: int


def scene_of(opened: Heated, standing: Standing, options: SpikeOptions) -> Scene:
    return Scene(opened, standing, options, beside(standing.loud))


def beside(loud: Bools) -> Bools:
    """And one second on either side: a spike seldom begins with the second."""
    wider = loud.copy()
    wider[:, 1:] |= loud[:, :-1]
    wider[:, :-1] |= loud[:, 1:]
    return wider


def look_into(scene: Scene, cluster: Sequence[Run]) -> list[Spike]:
    """Spikes of runs at the same time, the strongest first: cores with the same growth are one."""
    groups: dict[object, list[tuple[Placed, Growth, Matched]]] = {}
    for run in cluster:
        placed = place(scene, run)
        found, windows = _grown(scene, [placed])
        # Nothing sure to compare by: it stays alone.
        key: object = found.head if found.head is not None else run.core
        groups.setdefault(key, []).append((placed, found, windows))
    spikes = []
    for members in groups.values():
        runs = [placed for placed, _, _ in members]
        found, windows = members[0][1:]
        if len(members) > 1:
            found, windows = _grown(scene, runs)
        spikes.append(_spike(scene, runs, found, windows))
    return spikes


def place(scene: Scene, run: Run) -> Placed:
    """Find where in its first and last seconds the run began and ended."""
    grid = scene.standing.grid
    scored = scene.standing.scored(run)
    signal = grid.kernel if run.kernel else grid.busy
    trials = np.maximum(grid.trials[run.core, run.columns], 1)
    # Its seconds at the ends are partly calm: the upper ones tell its rate.
    now = float(np.quantile(signal[run.core, run.columns] / trials, 0.75))
    usual = float(scored.usual[run.columns].mean())
    first, last = max(0, run.start - 1), min(run.end, run.start + _INSIDE)
    began = rise(_weights(scene, run, (first, last), (usual, now)))
    onset = grid.time_ns(first) + began * CELL_NS
    first, last = max(run.start, run.end - _INSIDE), min(grid.seconds, run.end + 1)
    ended = fall(_weights(scene, run, (first, last), (usual, now)))
    end = grid.time_ns(first) + ended * CELL_NS
    return Placed(run, onset, max(end, onset + CELL_NS))


def _weights(
    scene: Scene, run: Run, columns: tuple[int, int], rates: tuple[float, float]
) -> Floats:
    grid = scene.standing.grid
    start, end = (grid.time_ns(column) for column in columns)
    wanted = Range(start, end, (int(grid.cpus[run.core]),), scene.options.event)
    if run.kernel or wanted.event is not None:
        # Heat keeps fiftieths of busy time of all events only: others are counted from samples.
        hits = sample_cells(parts_of(scene.opened, wanted), wanted, run.kernel)
    else:
        hits = heat_cells(scene.opened, wanted)
    trials = np.repeat(grid.trials[run.core, slice(*columns)] / CELLS, CELLS)
    return weights(hits, trials, *rates)


def _grown(scene: Scene, members: Sequence[Placed]) -> tuple[Growth, Matched]:
    grid, options = scene.standing.grid, scene.options
    rows = [placed.run.core for placed in members]
    start = min(placed.onset_ns for placed in members)
    end = max(placed.end_ns for placed in members)
    note = ""
    if end - start > LONGEST_NS:
        end = start + LONGEST_NS
        note = f"stacks of its first {LONGEST_NS // SECOND_NS} s"
    spike = window_of(grid, rows, start, end)
    if spike is None:
        # Seconds were lost within it: what is there is counted, and capacity taken as usual.
        spike = _with_lost(grid, rows, start, end)
        note = "some of its seconds were lost"
    calm = matched(grid, scene.loud, rows, (start, end), _period(scene, members))
    windows = [spike, *calm.windows]
    parts = parts_for(scene.opened, windows, options.event)
    found = growth(count(parts, windows), 1, options.fdr)
    if not parts:
        note = "no samples are left of that time: what grew is not known"
    said = "; ".join(each for each in (calm.note, note) if each)
    return found, Matched(calm.windows, said)


def _period(scene: Scene, members: Sequence[Placed]) -> Period | None:
    return scene.standing.scored(members[0].run).period


def _spike(scene: Scene, members: Sequence[Placed], found: Growth, calm: Matched) -> Spike:
    standing = scene.standing
    grid = standing.grid
    # The one with most extra time tells best when it began.
    best = max(members, key=lambda placed: placed.run.mass)
    note = calm.note
    if len(calm.windows) < 2:
        note += "; q of what grew knows sampling only" if calm.windows else ""
    return Spike(
        cpus=tuple(sorted(int(grid.cpus[placed.run.core]) for placed in members)),
        start_ns=min(
            min(placed.onset_ns for placed in members) // SECOND_NS * SECOND_NS,
            min(grid.time_ns(placed.run.start) for placed in members),
        ),
        end_ns=max(placed.end_ns for placed in members),
        onset_ns=best.onset_ns,
        busy=found.busy or _mean(_now(grid, placed.run, grid.busy) for placed in members),
        normal=_mean(_usual(standing.busy[placed.run.core], placed.run) for placed in members),
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
            _usual(standing.kernel[placed.run.core], placed.run) for placed in members
        ),
        tested=found.tested,
    )


def _with_lost(grid: Grid, rows: Sequence[int], start_ns: int, end_ns: int) -> Window:
    first = max(0, start_ns // SECOND_NS - grid.first)
    last = -(-end_ns // SECOND_NS) - grid.first
    trials = float(grid.trials[np.asarray(rows), first:last].sum())
    cpus = tuple(int(grid.cpus[row]) for row in rows)
    # Of the seconds at its ends only a part belongs to it.
    part = (end_ns - start_ns) / ((last - first) * SECOND_NS)
    return Window(start_ns, end_ns, cpus, max(trials * part, 1.0))


def _now(grid: Grid, run: Run, signal: Floats) -> float:
    """The share by the heat, where no samples tell it exactly."""
    trials = grid.trials[run.core, run.columns]
    return float(np.median(signal[run.core, run.columns] / np.maximum(trials, 1)))


def _usual(scored: Scored | None, run: Run) -> float:
    return 0.0 if scored is None else float(scored.usual[run.columns].mean())


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
