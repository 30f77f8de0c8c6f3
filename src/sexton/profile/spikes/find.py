"""Find the seconds that stand out, or look at given instants: the entry of this package."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sexton.model.heat import Heat
from sexton.model.spike import Spike, Spikes
from sexton.profile.heat import heat_of, within
from sexton.profile.significance import t_tail
from sexton.profile.spikes.aligned import aligned
from sexton.profile.spikes.baseline import LEAST_SECONDS
from sexton.profile.spikes.grid import Grid, NothingToSee, grid_of
from sexton.profile.spikes.look import look_into, scene_of
from sexton.profile.spikes.options import Heated, SpikeOptions
from sexton.profile.spikes.recurring import recurring
from sexton.profile.spikes.runs import Run, Standing, stand_out

#: Runs on several cores are at the same time when they share this much of it.
_OVERLAP = 0.5


def find(opened: Heated, options: SpikeOptions) -> Spikes:
    """The spikes of a profile, the strongest first, and what has to be said about the search."""
    try:
        grid = grid_of(_heats(opened, options), options.cpus, _hertz(opened, options.event))
    except NothingToSee as reason:
        return Spikes((), 0, 0, 0, options.fdr, [f"nothing to look at: {reason}"])
    if options.at is not None:
        return aligned(opened, grid, options)
    standing = stand_out(grid, options.fdr)
    scene = scene_of(opened, standing, options)
    spikes: list[Spike] = []
    left = list(standing.rare)
    while left and len(spikes) < options.most:
        cluster, left = _at_once(left)
        spikes += look_into(scene, cluster)
    spikes.sort(key=lambda spike: -_mass(spike))
    return Spikes(
        tuple(spikes[: options.most]),
        standing.tests,
        len(grid.cpus),
        grid.seconds,
        options.fdr,
        _problems(standing, options),
        recurring(scene),
        len(spikes) + len(left),
        _unscored(standing) + _blind(standing, options),
    )


def _heats(opened: Heated, options: SpikeOptions) -> Iterator[Heat]:
    if options.event is None:
        return opened.heats(options.start_ns, options.end_ns)
    return (
        within(heat_of(profile, options.event), options.start_ns, options.end_ns)
        for profile in opened.profiles(options.start_ns, options.end_ns)
    )


def _hertz(opened: Heated, event: str | None) -> int | None:
    # Of one event among several nothing but the samples tells the rate.
    return opened.hertz if event is None else None


def _at_once(runs: list[Run]) -> tuple[list[Run], list[Run]]:
    """The strongest run with those of other cores at the same time, and the rest."""
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


def _problems(standing: Standing, options: SpikeOptions) -> list[str]:
    grid = standing.grid
    problems = []
    short = _unscored(standing)
    if short == len(grid.cpus):
        return [_too_short(grid, f"no core was sampled in {LEAST_SECONDS} seconds")]
    if short:
        problems.append(f"{short} cores were sampled too rarely to tell what is usual there")
    blind = _blind(standing, options)
    if blind == len(grid.cpus):
        problems.append(_too_short(grid, "nothing could stand out from what is usual there"))
    elif blind:
        problems.append(
            f"on {blind} of {len(grid.cpus)} cores nothing could stand out from what is usual "
            "there: too few seconds, too bursty, or always full in the kernel"
        )
    lost = int(np.count_nonzero(grid.trials == 0))
    if lost:
        problems.append(f"{lost} of {grid.trials.size} core-seconds were not sampled")
    return problems


def _unscored(standing: Standing) -> int:
    """Cores that were sampled too rarely."""
    return sum(scored is None for scored in standing.busy)


def _blind(standing: Standing, options: SpikeOptions) -> int:
    """Cores on which nothing, however large, could have been significant."""
    needed = options.fdr / max(standing.tests, 1)
    best, df = [], []
    for one, two in zip(standing.busy, standing.kernel, strict=True):
        if one is not None and two is not None:
            clearer = max(one, two, key=lambda scored: scored.best_t)
            best.append(clearer.best_t)
            df.append(clearer.df)
    return int(np.count_nonzero(2 * t_tail(best, df) > needed))


def _too_short(grid: Grid, reason: str) -> str:
    return f"too short to tell: {grid.seconds} s of {len(grid.cpus)} cores, {reason}"
