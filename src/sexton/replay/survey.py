"""What happened in hours of readings, found without making a row of each.

Twelve hours of 96 cores are four million rows of core times. Here they are columns: one pass over
every segment makes the kernel's share of every step of every core, by the very arithmetic of
`saturated_core`, and tells which cores in which seconds are worth being read as rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from sexton.detect.core_steps import ENOUGH, WHOLE
from sexton.detect.detectors.saturated_core import HELD, KERNEL_SHARE
from sexton.model.cpu import CoreTimes, SoftirqCount
from sexton.replay.span import Span
from sexton.replay.span_reader import Book, Shelf, columns
from sexton.store.arrays import Array
from sexton.store.schema import MONO

_TIMES = ("user_ms", "nice_ms", "system_ms", "irq_ms", "softirq_ms")
_KERNEL = frozenset(_TIMES[2:])
#: All that a core's time is made of.
_PARTS = (*_TIMES, "idle_ms", "iowait_ms", "steal_ms")
#: Four bytes a step are enough for 24 days of kernel time in it.
_MOST_MS = 2**31 - 1
#: As in the detector: readings come a little early or late.
_SLACK = 0.9


class Held(NamedTuple):
    """A core above the limit from the step that ends with reading `first` to that of `last`.

    `seconds` includes what the kernel took of the steps before and after.
    """

    core: int
    first: int
    last: int
    full: float
    seconds: float

    @property
    def is_long(self) -> bool:
        """Long enough for the detector to speak of it."""
        return self.full >= HELD.value * _SLACK


class Cores(NamedTuple):
    """The survey's answer. `times` are all readings of core times, by number.

    `telling` are single steps (core, number of the later reading) that detectors quote where no
    core was held: the busiest, the longest, the one with most kernel time, and of the step in which
    two cores were busiest both.
    """

    times: Array
    held: tuple[Held, ...]
    telling: tuple[tuple[int, int], ...]


class Softirq(NamedTuple):
    """Milliseconds in softirqs: by core at the first reading and at the last (-1 where it was not
    there), and by core and step (-1 where that is not known)."""

    first: Array
    last: Array
    moved: Array


class _Robbed(NamedTuple):
    """Steps of which a core was given a part only: its row, the reading that ends the step, and the
    kernel's share of what it was given (see `sexton.detect.core_steps`)."""

    rows: Array
    numbers: Array
    shares: Array


class _Slab(NamedTuple):
    """One segment: a row per core and a column per reading, `steps` one fewer, -1 where there is
    none; and the counters at its edges."""

    times: Array
    cores: Array
    steps: Array
    robbed: _Robbed
    first: Array
    last: Array
    softirq: Softirq | None = None


class Glance(Protocol):
    """Whoever wants to see softirq times in the same pass: readings, cores and what they spent,
    segment by segment."""

    def __call__(self, joined: bool, times: Array, cores: Array, softirq: Softirq) -> None: ...


def survey_cores(shelf: Shelf, glance: Glance | None = None) -> Cores:
    """One pass over the core times of the span."""
    slabs: list[tuple[bool, _Slab]] = []
    joined = False

    read = partial(_slab, shelf.span)
    for book, slab in zip(shelf.books, shelf.each(read, shelf.books), strict=True):
        joined = joined and book.joined
        if slab is not None:
            if glance is not None and slab.softirq is not None:
                glance(joined, slab.times, slab.cores, slab.softirq)
            slabs.append((joined, slab._replace(softirq=None)))
            joined = True
    if not slabs:
        return Cores(np.empty(0), (), ())
    return _judge(*_stitch(slabs))


def _slab(span: Span, book: Book) -> _Slab | None:
    found = columns(book, CoreTimes, ("cpu", *_PARTS))
    if found is None or not len(found[MONO]):
        return None
    mono = found[MONO]
    if mono.min() < span.start[0] or mono.max() > span.end[0]:
        inside = (mono >= span.start[0]) & (mono <= span.end[0])
        found = {name: column[inside] for name, column in found.items()}
        if not inside.any():
            return None
    times, cores, values = _grid(found)
    before, after = [each[:, :-1] for each in values], [each[:, 1:] for each in values]
    steps = _steps(before, after)
    robbed = _robbed(steps, before, after, np.diff(times))
    # Copies: a view would keep all of the segment's columns in memory.
    first, last = (np.stack([each[:, at] for each in values]) for at in (0, -1))
    at = _TIMES.index("softirq_ms")
    moved = np.where(before[at] >= 0, after[at] - before[at], -1)
    softirq = Softirq(first[at], last[at], np.clip(moved, -1, _MOST_MS).astype(np.int32))
    return _Slab(times.copy(), cores.copy(), steps, robbed, first, last, softirq)


def _grid(found: Mapping[str, Array]) -> tuple[Array, Array, Sequence[Array]]:
    """Readings, cores, and every counter by core and reading, -1 where a core was not there."""
    mono, cpu = found[MONO], found["cpu"]
    length = int(np.argmax(cpu != cpu[0])) or len(cpu)
    if len(cpu) % length == 0:  # as they are sealed: core by core, each with every reading
        times, cores = mono[:length], cpu[::length]
        shape = (len(cores), length)
        whole = (mono.reshape(shape) == times).all() and (cores == cpu.reshape(shape).T).all()
        if whole and (np.diff(times) > 0).all() and (np.diff(cores) > 0).all():
            return times, cores, [found[name].reshape(shape) for name in _PARTS]
    times, column = np.unique(mono, return_inverse=True)
    cores, row = np.unique(cpu, return_inverse=True)
    values = np.full((len(_PARTS), len(cores), len(times)), -1, np.int64)
    for number, name in enumerate(_PARTS):
        values[number, row, column] = found[name]
    return times, cores, list(values)


def _steps(before: Sequence[Array], after: Sequence[Array]) -> Array:
    """Kernel milliseconds of each step; -1 where a counter went back or was not there."""
    known = before[0] >= 0
    kernel = np.zeros(known.shape, np.int64)
    for name, earlier, later in zip(_TIMES, before, after, strict=False):
        moved = later - earlier
        known &= moved >= 0
        if name in _KERNEL:
            kernel += moved
    made: Array = np.where(known, np.minimum(kernel, _MOST_MS), -1).astype(np.int32)
    return made


def _robbed(
    steps: Array, before: Sequence[Array], after: Sequence[Array], seconds: Array
) -> _Robbed:
    """Where ticks were lost, of these steps so long each; numbered from 0."""
    part = steps / 10 / seconds / 100
    rows, numbers = np.nonzero((part >= ENOUGH * WHOLE) & (part < WHOLE))
    given = np.zeros(len(rows), np.int64)
    for earlier, later in zip(before, after, strict=True):
        was, now = earlier[rows, numbers], later[rows, numbers]
        given += np.where((was >= 0) & (now >= was), now - was, 0)
    length, spent = seconds[numbers], given / 1000
    lost = (spent >= ENOUGH * length) & (spent < WHOLE * length)
    rows, numbers = rows[lost], numbers[lost]
    return _Robbed(rows, numbers, steps[rows, numbers] / 10 / spent[lost])


def _stitch(slabs: list[tuple[bool, _Slab]]) -> tuple[Array, Array, Array, _Robbed]:
    """Readings, cores, and for each the step that leads to each reading."""
    cores = np.unique(np.concatenate([slab.cores for _, slab in slabs]))
    times = np.concatenate([slab.times for _, slab in slabs])
    steps = np.full((len(cores), len(times)), -1, np.int32)
    robbed: list[_Robbed] = []
    at = 0
    before: _Slab | None = None
    for joined, slab in slabs:
        if joined and before is not None:
            both, mine, theirs = np.intersect1d(slab.cores, before.cores, return_indices=True)
            rows = np.searchsorted(cores, both)
            edges = [*before.last[:, theirs, None]], [*slab.first[:, mine, None]]
            made = _steps(*edges)
            steps[rows, at] = made[:, 0]
            lost = _robbed(made, *edges, slab.times[:1] - before.times[-1])
            robbed.append(_Robbed(rows[lost.rows], lost.numbers + at, lost.shares))
        rows = np.searchsorted(cores, slab.cores)
        steps[rows, at + 1 : at + len(slab.times)] = slab.steps
        lost = slab.robbed
        robbed.append(_Robbed(rows[lost.rows], lost.numbers + at + 1, lost.shares))
        at += len(slab.times)
        before = slab
    every = (np.concatenate(each) for each in zip(*robbed, strict=True))
    return times, cores, steps, _Robbed(*every)


def _judge(times: Array, cores: Array, steps: Array, robbed: _Robbed) -> Cores:
    """Of the share of each step only the highest are made: the more of a reading's step a core
    spent in the kernel, the higher is its share, and mostly that is nowhere near any limit."""
    most, second = _two_highest(steps)
    if not (most >= 0).any():
        return Cores(times, (), ())
    seconds = np.diff(times, prepend=times[0] - 1.0)
    coarse = int(np.argmax(np.where(most >= 0, seconds, -1.0)))
    share = most / 10 / seconds
    np.maximum.at(share, robbed.numbers, robbed.shares)  # of what is there it is more than of all
    worst, longest = int(share.argmax()), int(most.argmax())
    top = np.flatnonzero((robbed.numbers == worst) & (robbed.shares == share[worst]))
    telling = {
        (int(cores[int(robbed.rows[top[0]] if len(top) else steps[:, worst].argmax())]), worst),
        (int(cores[int(steps[:, longest].argmax())]), longest),
        (int(cores[int(np.argmax(steps[:, coarse] >= 0))]), coarse),
    }
    lesser = second / 10 / seconds
    for each in _by_reading(robbed) if len(cores) > 1 else ():
        number = int(each.numbers[0])
        lesser[number] = np.partition(_shares(steps[:, number] / 10 / seconds[number], each), -2)[
            -2
        ]
    both = int(lesser.argmax())
    if lesser[both] >= 0:
        there = _Robbed(*(each[robbed.numbers == both] for each in robbed))
        busiest = np.argsort(-_shares(steps[:, both] / 10 / seconds[both], there), kind="stable")[
            :2
        ]
        telling |= {(int(cores[row]), both) for row in busiest}
    held = _held((times, cores, steps), robbed, np.flatnonzero(share >= KERNEL_SHARE.value))
    return Cores(times, tuple(held), tuple(sorted(telling)))


def _by_reading(robbed: _Robbed) -> Iterator[_Robbed]:
    """The same, reading by reading."""
    order = np.argsort(robbed.numbers, kind="stable")
    _, first = np.unique(robbed.numbers[order], return_index=True)
    for part in np.split(order, first[1:]) if len(order) else ():
        yield _Robbed(*(each[part] for each in robbed))


def _shares(column: Array, robbed: _Robbed) -> Array:
    """Every core's share of the clock in one step, made one of what it was given."""
    column[robbed.rows] = robbed.shares
    return column


def _two_highest(steps: Array) -> tuple[Array, Array]:
    """Of each reading the highest and the second highest step of any core; -1 where none is."""
    most = np.full(steps.shape[1], -1, steps.dtype)
    second = most.copy()
    for row in steps:
        np.maximum(second, np.minimum(most, row), out=second)
        np.maximum(most, row, out=most)
    return most, second


def _held(grid: tuple[Array, Array, Array], robbed: _Robbed, near: Array) -> Iterator[Held]:
    """Neighbouring steps of a core at or above the limit; `near` are all that have such a core."""
    times, cores, steps = grid
    seconds = times[near] - np.where(near > 0, times[near - 1], times[0] - 1.0)
    share = steps[:, near] / 10 / seconds
    there = np.flatnonzero(np.isin(robbed.numbers, near))
    share[robbed.rows[there], np.searchsorted(near, robbed.numbers[there])] = robbed.shares[there]
    row, place = np.nonzero(share >= KERNEL_SHARE.value)
    number = near[place]
    breaks = np.flatnonzero((np.diff(number) != 1) | (np.diff(row) != 0)) + 1
    for group in np.split(np.arange(len(row)), breaks) if len(row) else ():
        edges = int(number[group[0]]), int(number[group[-1]])
        yield _run(times, steps[row[group[0]]], int(cores[row[group[0]]]), edges)


def _run(times: Array, steps: Array, core: int, edges: tuple[int, int]) -> Held:
    first, last = edges
    before = max(int(steps[first - 1]), 0) / 1000 if first > 0 else 0.0
    after = max(int(steps[last + 1]), 0) / 1000 if last + 1 < len(steps) else 0.0
    start, end = float(times[first - 1]), float(times[last])
    return Held(core, first, last, end - start, (end + after) - (start - before))


class Silent(NamedTuple):
    """Steps of one core in which it was held and did not run NET_RX: (start, end) each, and the
    slowest steps of it elsewhere."""

    core: int
    steps: tuple[tuple[float, float], ...]
    slowest: tuple[tuple[float, float], ...]


_SLOWEST = 3


def survey_polls(shelf: Shelf, cores: Cores, serving: Iterable[int]) -> list[Silent]:
    """Of the cores that serve a queue: where one was held and polled nothing."""
    wanted = set(serving)
    held = [each for each in cores.held if each.core in wanted]
    if not held:
        return []
    suspects = sorted({each.core for each in held})
    polls: dict[int, list[tuple[Array, Array, Array]]] = {core: [] for core in suspects}
    last: dict[int, tuple[float, int]] = {}

    read = partial(_polls, shelf.span, suspects)
    for book, answer in zip(shelf.books, shelf.each(read, shelf.books), strict=True):
        if not book.joined:
            last = {}
        if answer is None:
            continue
        newest, found = answer
        edges = [np.searchsorted(found["cpu"], suspects, side) for side in ("left", "right")]
        for core, first, past in zip(suspects, *(each.tolist() for each in edges), strict=True):
            mono, ran = found[MONO][first:past], found["net_rx"][first:past]
            before = last.pop(core, None)
            if not len(mono):
                continue
            if before is not None:
                polls[core].append((np.array([before[0]]), mono[:1], ran[:1] - before[1]))
            polls[core].append((mono[:-1], mono[1:], np.diff(ran)))
            if mono[-1] == newest:
                last[core] = float(mono[-1]), int(ran[-1])
    times = cores.times
    return [
        silent
        for core in suspects
        if polls[core]
        and (silent := _silent(core, polls[core], [
            (float(times[each.first - 1]), float(times[each.last]))
            for each in held if each.core == core
        ]))
    ]  # fmt: skip


def _polls(
    span: Span, suspects: Sequence[int], book: Book
) -> tuple[float, dict[str, Array]] | None:
    """The last reading, and those of these cores, core by core."""
    found = columns(book, SoftirqCount, ("cpu", "net_rx"))
    if found is None:
        return None
    mono = found[MONO]
    inside = (mono >= span.start[0]) & (mono <= span.end[0])
    some = np.flatnonzero(inside & np.isin(found["cpu"], suspects))
    order = some[np.lexsort((mono[some], found["cpu"][some]))]
    few = {name: column[order] for name, column in found.items()}
    return float(mono[inside].max(initial=-1.0)), few


def _silent(
    core: int, pieces: list[tuple[Array, Array, Array]], held: list[tuple[float, float]]
) -> Silent | None:
    start, end, ran = (np.concatenate(each) for each in zip(*pieces, strict=True))
    touching = np.zeros(len(start), bool)
    for began, ended in held:
        touching |= (start < ended) & (end > began)
    silent = touching & (ran == 0)
    if not silent.any():
        return None
    # A counter that went back tells of no poll, for the detector as for us.
    rate = np.where(silent, np.inf, np.maximum(ran, 0) / (end - start))
    slowest = [at for at in np.argsort(rate, kind="stable")[:_SLOWEST] if np.isfinite(rate[at])]
    return Silent(
        core,
        tuple(zip(start[silent].tolist(), end[silent].tolist(), strict=True)),
        tuple((float(start[at]), float(end[at])) for at in slowest),
    )
