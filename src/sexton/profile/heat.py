"""Count samples into heat: per core, second and 1/50 s.

Samples are in time order, so the seconds are found without sorting, and the counts are three sums
over small numbers. Memory is proportional to the samples, even if timestamps jump over years or
core numbers are garbage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.profile import (
    CELL_NS,
    CELLS,
    I32,
    I64,
    U8,
    Bools,
    Heat,
    Kind,
    Profile,
    Tree,
    empty_heat,
)
from sexton.profile.idle import idle_nodes
from sexton.profile.select import Selection, chosen_in, window

SECOND_NS = 1_000_000_000
#: Rows whose cells are counted at once: 6.5 MB of counters.
_ROWS_AT_ONCE = 1 << 14
_MOST_I32 = np.iinfo(np.int32).max
_MOST_U16 = np.iinfo(np.uint16).max

_IDLE, _BUSY, _KERNEL = range(3)


class Sampled(NamedTuple):
    """The sampled (second, core) pairs in that order, and the pair of each sample."""

    second: I64
    cpu: I32
    row: I64


def heat_of(profile: Profile, event: str | None = None) -> Heat:
    """The heat of a whole capture; empty without timestamps."""
    rows = slice(0, len(profile))
    chosen = None
    if event is not None:
        chosen = chosen_in(profile, Selection(event=event, idle=True), rows)
    return _counted(profile, rows, chosen, _activity(profile.tree)[profile.node])


def heat_of_choice(profile: Profile, selection: Selection) -> Heat:
    """The heat of a selection: `busy` counts the selected samples, `samples` all of them.

    So the heatmap of one task, cgroup or function is drawn like any other, and a sampled second in
    which it did not run is zero.
    """
    rows = window(profile, selection)
    taken = chosen_in(profile, selection.all_samples(), rows)
    activity = _by_kind(profile.tree)[profile.node[rows]]
    activity[~chosen_in(profile, selection, rows)] = _IDLE
    return _counted(profile, rows, taken, activity)


def sampled(time_ns: I64, cpu: I32) -> Sampled:
    """Group samples (in time order) by second and core."""
    second, ordinal = _seconds(time_ns)
    lowest = int(cpu.min(initial=0))
    width = int(cpu.max(initial=0)) - lowest + 1
    # A counter per possible pair where that is cheap, else a sort.
    if len(second) * width <= 4 * len(cpu) + (1 << 20):
        key = ordinal * width + cpu - lowest
        present = np.bincount(key, minlength=len(second) * width) > 0
        pairs = np.flatnonzero(present)
        row = (np.cumsum(present) - 1)[key]
    else:
        key = ordinal * (1 << 32) + cpu - lowest
        pairs, row = np.unique(key, return_inverse=True)
        width = 1 << 32
    core = (pairs % width + lowest).astype(np.int32)
    return Sampled(second[pairs // width], core, row.astype(np.int64, copy=False))


def add_heat(parts: Iterable[Heat]) -> Heat:
    """The sum of several heats in any order."""
    held = sorted((part for part in parts if len(part)), key=lambda part: int(part.second[0]))
    return _concatenated(list(disjoint(held)))


def disjoint(parts: Iterable[Heat]) -> Iterator[Heat]:
    """The same heat in parts that share no second, so that each can be dropped after use.

    The parts are sorted by their start, like rotated files: two neighbours share the second in
    which one ends and the next starts.
    """
    held: list[Heat] = []
    for part in parts:
        if not len(part):
            continue
        shared = []
        for heat in held:
            border = int(np.searchsorted(heat.second, part.second[0]))
            if border:
                yield rows_of(heat, slice(0, border))
            if border < len(heat):
                shared.append(rows_of(heat, slice(border, None)))
        held = _merged(_concatenated(shared), part)
    yield from held


def within(heat: Heat, start_ns: int | None, end_ns: int | None) -> Heat:
    """The rows of the seconds that overlap the range."""
    first, last = 0, len(heat)
    if start_ns is not None:
        first = int(np.searchsorted(heat.second, start_ns // SECOND_NS))
    if end_ns is not None:
        last = int(np.searchsorted(heat.second, -(-end_ns // SECOND_NS)))
    return rows_of(heat, slice(first, max(first, last)))


def of_cores(heat: Heat, cpus: Iterable[int]) -> Heat:
    """The rows of some cores."""
    return rows_of(heat, np.isin(heat.cpu, np.array(sorted(cpus), np.int64)))


def rows_of(heat: Heat, rows: slice | Bools) -> Heat:
    """Some rows."""
    return Heat(*(column[rows] for column in _columns(heat)))


def changes(values: I64 | I32) -> Bools:
    """Per row of a sorted column: is it the first with its value?"""
    new = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _columns(heat: Heat) -> tuple[npt.NDArray[Any], ...]:
    return heat.second, heat.cpu, heat.samples, heat.busy, heat.kernel, heat.cells


def _concatenated(parts: Sequence[Heat]) -> Heat:
    if len(parts) < 2:
        return parts[0] if parts else empty_heat()
    return Heat(*map(np.concatenate, zip(*map(_columns, parts), strict=True)))


def _merged(one: Heat, two: Heat) -> list[Heat]:
    """Both, the second starting no later than the first ends; shared seconds are added up."""
    if not len(one):
        return [two]
    until = int(np.searchsorted(two.second, one.second[-1], "right"))
    both = _added(one, rows_of(two, slice(0, until)))
    return [both] if until == len(two) else [both, rows_of(two, slice(until, None))]


def _added(one: Heat, two: Heat) -> Heat:
    """Two heats that may share seconds."""
    joined = _concatenated((one, two))
    order = np.lexsort((joined.cpu, joined.second))
    second, cpu = joined.second[order], joined.cpu[order]
    starts = np.flatnonzero(changes(second) | changes(cpu))
    return Heat(
        second[starts],
        cpu[starts],
        _sums(joined.samples[order], starts),
        _sums(joined.busy[order], starts),
        _sums(joined.kernel[order], starts),
        _cell_sums(joined.cells, order, starts),
    )


def _activity(tree: Tree) -> U8:
    """Per node: idle, busy, or busy in the kernel."""
    activity = _by_kind(tree)
    activity[idle_nodes(tree)] = _IDLE
    return activity


def _by_kind(tree: Tree) -> U8:
    kernel = (tree.frames.kinds == Kind.KERNEL)[tree.frame]
    return np.where(kernel, np.uint8(_KERNEL), np.uint8(_BUSY))


def _counted(profile: Profile, rows: slice, chosen: Bools | None, activity: U8) -> Heat:
    if not profile.timed:
        return empty_heat()
    time_ns, cpu = profile.time_ns[rows], profile.cpu[rows]
    weight = None if profile.weight is None else profile.weight[rows]
    if chosen is not None:
        time_ns, cpu, activity = time_ns[chosen], cpu[chosen], activity[chosen]
        weight = None if weight is None else weight[chosen]
    if not len(time_ns):
        return empty_heat()
    found = sampled(time_ns, cpu)
    busy = activity != _IDLE
    row = found.row[busy]
    left = None if weight is None else weight[busy]
    kernel = activity[busy] == _KERNEL
    number = len(found.second)
    return Heat(
        found.second,
        found.cpu,
        _count(found.row, weight, number),
        _count(row, left, number),
        _count(row[kernel], None if left is None else left[kernel], number),
        _cells(row, (time_ns[busy] % SECOND_NS) // CELL_NS, left, number),
    )


def _seconds(time_ns: I64) -> tuple[I64, I64]:
    """The distinct seconds, and the second of each sample."""
    second = time_ns // SECOND_NS
    new = changes(second)
    return second[new], np.cumsum(new) - 1


def _count(row: I64, weight: I64 | None, number: int) -> I32:
    counts = np.bincount(row, weight, minlength=number)
    return np.minimum(counts, _MOST_I32).astype(np.int32)


def _cells(row: I64, cell: I64, weight: I64 | None, number: int) -> npt.NDArray[np.uint16]:
    cells = np.zeros((number, CELLS), np.uint16)
    if number <= _ROWS_AT_ONCE:
        chunks = [(0, slice(None))]
    else:
        # Rows within a second are in any order; the seconds are sorted.
        order = np.argsort(row, kind="stable")
        row, cell = row[order], cell[order]
        weight = None if weight is None else weight[order]
        starts = range(0, number, _ROWS_AT_ONCE)
        bounds = [*np.searchsorted(row, np.array(starts)).tolist(), len(row)]
        chunks = [(at, slice(bounds[i], bounds[i + 1])) for i, at in enumerate(starts)]
    for at, part in chunks:
        here = cells[at : at + _ROWS_AT_ONCE]
        counts = np.bincount(
            (row[part] - at) * CELLS + cell[part],
            None if weight is None else weight[part],
            minlength=here.size,
        )
        here[:] = np.minimum(counts, _MOST_U16).reshape(here.shape)
    return cells


def _sums(values: I32, starts: I64) -> I32:
    sums = np.add.reduceat(values, starts, dtype=np.int64)
    return np.minimum(sums, _MOST_I32).astype(np.int32)


def _cell_sums(cells: npt.NDArray[np.uint16], order: I64, starts: I64) -> npt.NDArray[np.uint16]:
    """Cells per group of rows. Most groups have one row: only the others need a sum."""
    sums = cells[order[starts]]
    sizes = np.diff(starts, append=len(order))
    several = np.flatnonzero(sizes > 1)
    if len(several):
        chosen = np.repeat(sizes > 1, sizes)
        bounds = np.zeros(len(several), np.int64)
        np.cumsum(sizes[several][:-1], out=bounds[1:])
        added = np.add.reduceat(cells[order[chosen]], bounds, axis=0, dtype=np.int64)
        sums[several] = np.minimum(added, _MOST_U16).astype(np.uint16)
    return sums
