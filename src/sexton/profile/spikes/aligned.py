"""What is different around given events (resets of a NIC, for example)?

Each event has a window, by default from ten seconds before to two after. In it, as in calm windows
of the same length, the busiest three seconds of each core are taken, so that a stall of three
seconds is not averaged out over twelve. A core deviates if the mean over the events is beyond what
the calm windows predict, and more than half of the events show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sexton.model.profile import CELL_NS, CELLS, Floats
from sexton.model.text import count as count_of
from sexton.profile.heat import SECOND_NS
from sexton.profile.significance import benjamini_hochberg, t_tail
from sexton.profile.spikes.baseline import angle, share
from sexton.profile.spikes.describe import stretch, weights
from sexton.profile.spikes.grid import Grid
from sexton.profile.spikes.growth import Growth, growth
from sexton.profile.spikes.spike import Spike, SpikeOptions, Spikes
from sexton.profile.spikes.windows import (
    WANTED,
    Part,
    Range,
    Window,
    count,
    parts_for,
    sample_cells,
    window_of,
    window_with_gaps,
)

if TYPE_CHECKING:
    from sexton.profile.captures import Opened

_LOUDEST = 3
_LEAST_CALM = 3
_MOST_EVENTS = 60
_LEAST_EXTRA = 0.1


class _Span(NamedTuple):
    """Columns of the grid, `end` excluded."""

    start: int
    end: int


class _Core(NamedTuple):
    row: int
    kernel: bool
    usual: float
    now: float
    q: float
    shown: int


def aligned(opened: Opened, grid: Grid, options: SpikeOptions) -> Spikes:
    """Spikes around `options.at`."""
    problems: list[str] = []
    events = _inside(grid, options, problems)
    hot = [_span(grid, event, options) for event in events]
    calm = _calm(grid, hot) if hot else []
    tests = (len(hot) + len(calm)) * len(grid.cpus)
    spikes: tuple[Spike, ...] = ()
    if hot and len(calm) < _LEAST_CALM:
        tests = 0  # nothing was compared: inconclusive
        problems.append(
            f"too short: only {count_of(len(calm), 'calm window')} of {hot[0].end - hot[0].start} s"
        )
    elif hot:
        search = _Search(opened, grid, options, events, hot, calm)
        spikes = _spikes(search)
    return Spikes(
        spikes, tests, len(grid.cpus), grid.seconds, options.fdr, problems, found=len(spikes)
    )


class _Search(NamedTuple):
    opened: Opened
    grid: Grid
    options: SpikeOptions
    events: list[int]
    hot: list[_Span]
    calm: list[_Span]


def _inside(grid: Grid, options: SpikeOptions, problems: list[str]) -> list[int]:
    found = []
    for event in sorted(options.at or ()):
        column = event // SECOND_NS - grid.first
        if 0 <= column < grid.seconds:
            found.append(event)
        else:
            after = column >= grid.seconds
            away = (column - grid.seconds + 1) if after else -column
            where = "after its end" if after else "before its start"
            problems.append(f"event outside the capture, {away:,} s {where}")
    if len(found) > _MOST_EVENTS:
        problems.append(f"only the first {_MOST_EVENTS} of {len(found)} events were used")
    return found[:_MOST_EVENTS]


def _span(grid: Grid, event: int, options: SpikeOptions) -> _Span:
    before, after = options.window_ns
    start = (event - before) // SECOND_NS - grid.first
    end = -(-(event + after) // SECOND_NS) - grid.first
    return _Span(max(0, start), min(grid.seconds, max(end, start + 1)))


def _calm(grid: Grid, hot: Sequence[_Span]) -> list[_Span]:
    """Windows that overlap no event window, nearest first."""
    length = max(span.end - span.start for span in hot)
    taken = np.zeros(grid.seconds, np.bool_)
    for span in hot:
        # The seconds after an event are often not calm yet.
        taken[max(0, span.start - 1) : span.end + 1] = True
    found: list[_Span] = []
    start = 0
    while start + length <= grid.seconds:
        if taken[start : start + length].any():
            start += 1
            continue
        found.append(_Span(start, start + length))
        start += length
    found.sort(key=lambda span: min(abs(span.start - interval.start) for interval in hot))
    return found[: WANTED * 2]


def _spikes(search: _Search) -> tuple[Spike, ...]:
    grid, options = search.grid, search.options
    cores = _deviating(search)
    rows = [core.row for core in cores] or list(range(len(grid.cpus)))
    groups: dict[object, list[_Core]] = {}
    found: dict[object, Growth] = {}
    windows = _windows(search, rows)
    parts = parts_for(search.opened, windows, options.event)
    if not cores:
        everywhere = growth(count(parts, windows), len(search.hot), options.fdr)
        if not everywhere.grew:
            return ()
        every = [_Core(row, False, 0.0, 0.0, everywhere.grew[0].q, 0) for row in rows]
        return (_spike(search, every, everywhere, parts),)
    for core in cores:
        grown = growth(count(parts, _windows(search, [core.row])), len(search.hot), options.fdr)
        key: object = grown.head if grown.head is not None else core.row
        groups.setdefault(key, []).append(core)
        found[key] = grown
    spikes = []
    for key, members in groups.items():
        grown = found[key]
        if len(members) > 1:
            together = _windows(search, [core.row for core in members])
            grown = growth(count(parts, together), len(search.hot), options.fdr)
        spikes.append(_spike(search, members, grown, parts))
    spikes.sort(key=lambda spike: -(spike.busy - spike.normal) * len(spike.cpus))
    return tuple(spikes[: options.most])


def _windows(search: _Search, rows: Sequence[int]) -> list[Window]:
    grid = search.grid
    windows = []
    for span in (*search.hot, *search.calm):
        start, end = (grid.time_ns(column) for column in span)
        window = window_of(grid, rows, start, end)
        windows.append(window or window_with_gaps(grid, rows, start, end))
    return windows


def _deviating(search: _Search) -> list[_Core]:
    """Cores busier around the events than in calm windows, by the clearer of both signals."""
    found: list[_Core] = []
    ps: list[float] = []
    for row in range(len(search.grid.cpus)):
        signals = [_tested(search, row, kernel) for kernel in (False, True)]
        tested = [signal for signal in signals if signal is not None]
        if not tested:
            continue
        best = max((core for _, core in tested), key=_clearly)
        ps.append(min(1.0, 2 * min(signal[0] for signal in tested)))
        found.append(best)
    q = benjamini_hochberg(ps)
    least = len(search.hot) / 2
    return [
        core._replace(q=float(q_value))
        for core, q_value in zip(found, q, strict=True)
        if q_value <= search.options.fdr
        and core.now - core.usual >= _LEAST_EXTRA
        and core.shown > least
    ]


def _clearly(core: _Core) -> float:
    """As in the search: the kernel signal is used only if it is clearly stronger."""
    extra = core.now - core.usual
    return extra if core.kernel else 1.2 * max(extra, 0.0)


def _tested(search: _Search, row: int, kernel: bool) -> tuple[float, _Core] | None:
    grid = search.grid
    trials = grid.trials[row]
    z = angle((grid.kernel if kernel else grid.busy)[row], np.maximum(trials, 1))
    z = np.where(trials > 0, z, np.nan)
    hot = _loudest(z, search.hot)
    calm = _loudest(z, search.calm)
    if not len(hot) or len(calm) < _LEAST_CALM:
        return None
    floor = 1 / (4 * _LOUDEST * float(np.median(trials[trials > 0])))
    spread = max(float(calm.var(ddof=1)), floor)
    t = (hot.mean() - calm.mean()) / np.sqrt(spread * (1 / len(hot) + 1 / len(calm)))
    p = float(t_tail(t, len(calm) - 1))
    shown = int(np.count_nonzero(hot > np.quantile(calm, 0.9)))
    usual, now = (float(share(array.mean())) for array in (calm, hot))
    return p, _Core(row, kernel, usual, now, 1.0, shown)


def _loudest(z: Floats, spans: Sequence[_Span]) -> Floats:
    """Per span the largest mean of three consecutive seconds; unsampled spans are skipped."""
    found = []
    for span in spans:
        here = z[span.start : span.end]
        if len(here) < _LOUDEST:
            here = np.pad(here, (0, _LOUDEST - len(here)), constant_values=np.nan)
        three = np.lib.stride_tricks.sliding_window_view(here, _LOUDEST)
        whole = three[~np.isnan(three).any(axis=1)]
        if len(whole):
            found.append(float(whole.mean(axis=1).max()))
        elif not np.isnan(here).all():
            found.append(float(np.nanmean(here)))
    return np.array(found)


def _spike(search: _Search, cores: Sequence[_Core], grown: Growth, parts: Sequence[Part]) -> Spike:
    grid = search.grid
    event, span = search.events[0], search.hot[0]
    start, end = (grid.time_ns(column) for column in span)
    onset, until = start, end
    if any(core.now > core.usual for core in cores):
        first, last = _when(search, cores, parts)
        onset, until = event + first * CELL_NS, event + last * CELL_NS
    rows = np.array([core.row for core in cores])
    now = _shares(grid, rows, search.hot)
    usual = _shares(grid, rows, search.calm)
    shown = min(core.shown for core in cores)
    return Spike(
        cpus=grid.numbers(rows),
        start_ns=start,
        end_ns=max(until, onset + CELL_NS),
        onset_ns=onset,
        busy=now[0],
        normal=usual[0],
        kernel=now[1],
        q=min(core.q for core in cores),
        grew=grown.grew,
        stacks=grown.stacks,
        tasks=grown.tasks,
        calm_windows=len(search.calm),
        note=f"in {shown} of {len(search.events)} events"
        if shown
        else "no core deviates in load; functions compared over all cores",
        path=grown.path,
        in_kernel=cores[0].kernel,
        normal_kernel=usual[1],
        tested=grown.tested,
        events=tuple(search.events),
    )


def _shares(grid: Grid, rows: np.ndarray, spans: Sequence[_Span]) -> tuple[float, float]:
    columns = np.concatenate([np.arange(*span) for span in spans])
    at = np.ix_(rows, columns)
    trials = max(float(grid.trials[at].sum()), 1.0)
    return float(grid.busy[at].sum()) / trials, float(grid.kernel[at].sum()) / trials


def _when(search: _Search, cores: Sequence[_Core], parts: Sequence[Part]) -> tuple[int, int]:
    """In cells from the event: the busiest stretch over all events and cores together."""
    grid = search.grid
    pairs = list(zip(search.events, search.hot, strict=True))
    before = max((event - grid.time_ns(span.start)) // CELL_NS for event, span in pairs)
    after = max(-(-(grid.time_ns(span.end) - event) // CELL_NS) for event, span in pairs)
    sums = np.zeros(before + after + 1)
    for event, span in pairs:
        start, end = (grid.time_ns(column) for column in span)
        place = before - (event - start) // CELL_NS
        for core in cores:
            wanted = Range(start, end, (int(grid.cpus[core.row]),), None)
            hits = sample_cells(parts, wanted, core.kernel)
            trials = np.repeat(grid.trials[core.row, slice(*span)] / CELLS, CELLS)
            weight = weights(hits, trials, core.usual, core.now)
            sums[place : place + len(weight)] += weight[: len(sums) - place]
    first, last = stretch(sums)
    return first - before, last - before
