"""Windows to compare with each other: the calm ones of a spike, and the samples in each.

Calm windows have the same cores and length as the spike and are close in time: at most twenty, the
nearest first, before and after. For a periodic load they are whole periods away, so that a burst
due at that moment is in them too. If there are too few, shorter windows are used (their shares vary
more, so the test only gets stricter), and finally other cores at the same time; a note says so.

Samples are counted per stack and task in each window. Only the stacks of the windows are read: the
tree is reduced to them and their callers (still in pre-order), so the cost depends on the windows,
not on the capture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sexton.model.profile import (
    CELL_NS,
    CELLS,
    I32,
    I64,
    Bools,
    Floats,
    Kind,
    Profile,
    Thread,
    Tree,
)
from sexton.profile.flame import empty_tree
from sexton.profile.heat import SECOND_NS
from sexton.profile.idle import idle_nodes
from sexton.profile.spikes.baseline import Period
from sexton.profile.spikes.grid import Grid
from sexton.profile.stack_tree import join, subtree

if TYPE_CHECKING:
    from sexton.profile.captures import Opened

WANTED = 20
#: With fewer windows of the same cores, shorter ones are used, then other cores.
ENOUGH = 8
_HOUR = 3600
#: Only this much of a longer spike is analysed.
LONGEST_NS = 60 * SECOND_NS


class Window(NamedTuple):
    """A stretch of time of some cores. `trials` is the number of possible samples."""

    start_ns: int
    end_ns: int
    cpus: tuple[int, ...]
    trials: float


class Matched(NamedTuple):
    """The windows to compare with, and a note on them."""

    windows: list[Window]
    note: str


def window_of(grid: Grid, rows: Sequence[int], start_ns: int, end_ns: int) -> Window | None:
    """`None` if it leaves the capture or one of its seconds was not sampled."""
    first = start_ns // SECOND_NS - grid.first
    last = -(-end_ns // SECOND_NS) - grid.first
    if first < 0 or last > grid.seconds or last <= first:
        return None
    trials = grid.trials[np.asarray(rows, np.int64), first:last]
    if not trials.all():
        return None
    capacity = float(trials.mean(axis=1).sum()) * (end_ns - start_ns) / SECOND_NS
    return Window(start_ns, end_ns, grid.numbers(rows), capacity)


def window_with_gaps(grid: Grid, rows: Sequence[int], start_ns: int, end_ns: int) -> Window:
    """The window even if some of its seconds were not sampled: only the others count."""
    first = max(0, start_ns // SECOND_NS - grid.first)
    last = -(-end_ns // SECOND_NS) - grid.first
    trials = float(grid.trials[np.asarray(rows), first:last].sum())
    # The first and last second belong to it only in part.
    part = (end_ns - start_ns) / (max(last - first, 1) * SECOND_NS)
    return Window(start_ns, end_ns, grid.numbers(rows), max(trials * part, 1.0))


def matched(
    grid: Grid, loud: Bools, rows: Sequence[int], span_ns: tuple[int, int], period: Period | None
) -> Matched:
    """`loud` are the core-seconds that calm windows exclude."""
    start, end = span_ns
    taken: Bools = np.asarray(loud[np.asarray(rows, np.int64)].any(axis=0))
    found: list[Window] = []
    parts = 1
    while parts == 1 or (end - start) // parts >= SECOND_NS:
        more = _own(grid, taken, rows, (start, start + (end - start) // parts), period)
        if len(more) > len(found):
            found, length = more, (end - start) // parts
        if len(found) >= ENOUGH:
            break
        parts *= 2
    if len(found) >= ENOUGH:
        remarks = []
        if length < end - start:
            remarks.append(f"each {length / SECOND_NS:.1f} s long")
        if period is not None:
            remarks.append("each a whole number of periods away")
        return Matched(found, "; ".join(remarks))
    others = []
    for row in range(len(grid.cpus)):
        if row in rows:
            continue
        window = window_of(grid, [row], start, end)
        if window is not None and not _touches(loud[row], grid, window):
            others.append(window)
    if len(others) + len(found) == 0:
        return Matched([], "no calm window to compare with")
    note = f"only {len(found)} on the same core"
    if others:
        others = others[: WANTED - len(found)]
        note += f", {len(others)} on other cores at the same time"
    return Matched(found + others, note)


def _own(
    grid: Grid, taken: Bools, rows: Sequence[int], span_ns: tuple[int, int], period: Period | None
) -> list[Window]:
    start, end = span_ns
    found: list[Window] = []
    for shift in _shifts(end - start, period):
        window = window_of(grid, rows, start + shift, end + shift)
        if window is None or _touches(taken, grid, window):
            continue
        found.append(window)
        if len(found) == WANTED:
            break
    return found


def _shifts(length_ns: int, period: Period | None) -> Iterator[int]:
    step = math.ceil(length_ns / SECOND_NS) * SECOND_NS
    if period is not None:
        cycle = round(period.seconds * SECOND_NS)
        step = cycle * max(1, -(-length_ns // cycle))
    for times in range(1, _HOUR * SECOND_NS // step + 1):
        yield -times * step
        yield times * step


def _touches(taken: Bools, grid: Grid, window: Window) -> bool:
    first = window.start_ns // SECOND_NS - grid.first
    last = -(-window.end_ns // SECOND_NS) - grid.first
    return bool(taken[max(0, first) : last].any())


#: Windows closer than this are read at once.
_NEAR_NS = 5 * SECOND_NS


class Part(NamedTuple):
    """Busy samples of a range, of one profile."""

    time_ns: I64
    cpu: I32
    thread: I32
    node: I32
    weight: I64 | None
    kernel: Bools
    threads: tuple[Thread, ...]
    tree: Tree


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """`own` is windows by nodes; `tasks` holds a count per window for each (name, pid)."""

    tree: Tree
    own: I64
    tasks: dict[tuple[str, int], I64]
    trials: Floats

    def totals(self) -> I64:
        """Per window and node: samples in it and everything below."""
        running = np.zeros((self.own.shape[0], self.own.shape[1] + 1), np.int64)
        np.cumsum(self.own, axis=1, out=running[:, 1:])
        return running[:, self.tree.end] - running[:, :-1]


class Range(NamedTuple):
    """A time range, cores (`None`: all) and an event (`None`: all)."""

    start_ns: int
    end_ns: int
    cpus: tuple[int, ...] | None
    event: str | None


def parts_for(opened: Opened, windows: Sequence[Window], event: str | None) -> list[Part]:
    """The samples of the windows; long gaps between them are not read."""
    cpus = tuple(sorted({cpu for window in windows for cpu in window.cpus}))
    found: list[Part] = []
    bounds: list[list[int]] = []
    for start, end in sorted((window.start_ns, window.end_ns) for window in windows):
        if bounds and start <= bounds[-1][1] + _NEAR_NS:
            bounds[-1][1] = max(end, bounds[-1][1])
        else:
            bounds.append([start, end])
    for start, end in bounds:
        found += parts_of(opened, Range(start, end, cpus, event))
    return found


def parts_of(opened: Opened, wanted: Range) -> list[Part]:
    """Busy samples of a range. Profiles may contain samples outside it; these are dropped."""
    found = []
    for profile in opened.profiles(wanted.start_ns, wanted.end_ns):
        if not profile.timed:
            continue
        first, last = np.searchsorted(profile.time_ns, [wanted.start_ns, wanted.end_ns])
        if first < last:
            found.append(_part(profile, slice(int(first), int(last)), wanted))
    return [part for part in found if len(part.time_ns)]


def _part(profile: Profile, rows: slice, wanted: Range) -> Part:
    tree = profile.tree
    keep = ~idle_nodes(tree)[profile.node[rows]]
    if wanted.cpus is not None:
        keep &= np.isin(profile.cpu[rows], np.array(wanted.cpus, np.int64))
    if wanted.event is not None:
        event = wanted.event
        named = np.array([known.name == event for known in profile.events] + [False])
        keep &= named[profile.event[rows]]
    node = profile.node[rows][keep]
    kernel = (tree.frames.kinds == Kind.KERNEL)[tree.frame[node]]
    weight = None if profile.weight is None else profile.weight[rows][keep]
    return Part(
        profile.time_ns[rows][keep],
        profile.cpu[rows][keep],
        profile.thread[rows][keep],
        node,
        weight,
        kernel,
        profile.threads,
        tree,
    )


def count(parts: Sequence[Part], windows: Sequence[Window]) -> Counts:
    """Count each window's samples; a sample may be in several of them."""
    tasks: dict[tuple[str, int], I64] = {}
    trees: list[Tree] = []
    owns: list[I64] = []
    for part in parts:
        picked = [_within(part, window) for window in windows]
        nodes = np.unique(np.concatenate([part.node[rows] for rows in picked]))
        if not len(nodes):
            continue
        tree, place = cut(part.tree, nodes)
        own = np.zeros((len(windows), len(tree)), np.int64)
        for at, rows in enumerate(picked):
            where = place[np.searchsorted(nodes, part.node[rows])]
            own[at] = _tally(where, _weights(part, rows), len(tree))
            _add_tasks(tasks, part, rows, (at, len(windows)))
        trees.append(tree)
        owns.append(own)
    trials = np.array([window.trials for window in windows])
    if not trees:
        return Counts(empty_tree(), np.zeros((len(windows), 1), np.int64), {}, trials)
    if len(trees) == 1:
        return Counts(trees[0], owns[0], tasks, _held(trials, owns[0]))
    joined, places = join(trees)
    own = np.zeros((len(windows), len(joined)), np.int64)
    for part_own, joined_at in zip(owns, places, strict=True):
        np.add.at(own.T, joined_at, part_own.T)
    return Counts(joined, own, tasks, _held(trials, own))


def _held(trials: Floats, own: I64) -> Floats:
    """The number of possible samples is an estimate: at least the actual number, so that no share
    exceeds 100 %."""
    held: Floats = np.maximum(trials, own.sum(axis=1))
    return held


def cut(tree: Tree, nodes: I64) -> tuple[Tree, I32]:
    """The tree of `nodes` (sorted) and their callers, and the position of each node in it."""
    marked = np.zeros(len(tree), np.int64)
    marked[nodes] = 1
    kept = tree.totals(marked) > 0
    kept[0] = True
    smaller, place = subtree(tree, kept)
    return smaller, place[nodes]


def heat_cells(opened: Opened, wanted: Range) -> Floats:
    """Busy samples per 20 ms of one core, from its heat; the range is in whole seconds."""
    first, last = wanted.start_ns // SECOND_NS, wanted.end_ns // SECOND_NS
    counts = np.zeros((last - first, CELLS))
    for heat in opened.heats(wanted.start_ns, wanted.end_ns):
        inside = (heat.second >= first) & (heat.second < last)
        rows = np.flatnonzero(inside & np.isin(heat.cpu, wanted.cpus or ()))
        np.add.at(counts, heat.second[rows] - first, heat.cells[rows])
    return counts.ravel()


def sample_cells(parts: Sequence[Part], wanted: Range, kernel: bool) -> Floats:
    """The same from samples, optionally only those in the kernel."""
    start_ns, end_ns = wanted.start_ns, wanted.end_ns
    cells = (end_ns - start_ns) // CELL_NS
    counts = np.zeros(cells)
    window = Window(start_ns, start_ns + cells * CELL_NS, wanted.cpus or (), 0.0)
    for part in parts:
        rows = _within(part, window)
        if kernel:
            rows = rows[part.kernel[rows]]
        where = (part.time_ns[rows] - start_ns) // CELL_NS
        counts += np.bincount(where, _weights(part, rows), minlength=cells)
    return counts


def _within(part: Part, window: Window) -> I64:
    first, last = np.searchsorted(part.time_ns, [window.start_ns, window.end_ns])
    cpu = part.cpu[first:last]
    if len(window.cpus) == 1:
        chosen = cpu == window.cpus[0]
    else:
        chosen = np.isin(cpu, np.array(window.cpus))
    return np.flatnonzero(chosen) + int(first)


def _weights(part: Part, rows: I64) -> I64 | None:
    return None if part.weight is None else part.weight[rows]


def _tally(where: I64 | I32, weight: I64 | None, size: int) -> I64:
    return np.bincount(where, weight, minlength=size).astype(np.int64)


def _add_tasks(
    tasks: dict[tuple[str, int], I64], part: Part, rows: I64, at: tuple[int, int]
) -> None:
    counts = _tally(part.thread[rows], _weights(part, rows), len(part.threads))
    for thread in np.flatnonzero(counts).tolist():
        who = part.threads[thread]
        held = tasks.setdefault((who.comm, who.pid), np.zeros(at[1], np.int64))
        held[at[0]] += counts[thread]
