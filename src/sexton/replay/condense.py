"""A long span as a window that fits in memory, chosen so that the detectors judge the same.

What is kept, and why that is enough:

- of every table its first and last readings, a few pairs in between, and the first and last that
  had any rows: counters over the whole span, what there is *now*, rates here and there;
- events whole, but for cgroup events past `MOST_EVENTS`, of which the newest stay: a contiguous
  stretch, so that their rate stays true;
- every second in which a core was held in the kernel, of that core alone; and around the longest
  of them, around alarms and around what the kernel log tells, everything that changes by the
  second, the threads among it;
- single readings that `sexton.replay.changes`, `sexton.replay.strain` and `sexton.replay.traffic`
  name.

Rates are made between neighbours only (`Batch.follows`), so what was left out is never averaged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sexton.detect.faulting import AROUND_S
from sexton.detect.paging import NEAR_S
from sexton.detect.runs import CLOSE_S
from sexton.detect.stems import container
from sexton.model.cgroup import (
    CgroupCensus,
    CgroupDir,
    CgroupEvent,
    CgroupEventGap,
    CgroupThrottle,
)
from sexton.model.cpu import CoreTimes, Interrupt, RunQueue, SoftirqCount, SoftnetCpu
from sexton.model.event import KernelEvent, KernelLog, ServiceEvent
from sexton.model.memory import Pressure, VmCounter
from sexton.model.net import NetDevice, NicCounter, NicQueue, TcpCounters
from sexton.model.recorder import Alarm, Mark, RecorderNote
from sexton.model.row import Row
from sexton.model.softirq import ProbeCost, SoftirqWait
from sexton.model.task import Process, ProcessCgroup, Thread
from sexton.model.text import count
from sexton.model.unit import RestartMark, Unit
from sexton.model.window import Batch
from sexton.replay import changes, strain, traffic
from sexton.replay.choice import Choice
from sexton.replay.span_reader import Shelf, events
from sexton.replay.survey import Cores, Held, Silent, survey_cores, survey_polls
from sexton.store.schema import tables

EVENTS: tuple[type[Row], ...] = (KernelEvent, ServiceEvent, RestartMark, Mark, Alarm, RecorderNote)
MOST_EVENTS = 100_000
#: What an episode is told by, second by second.
_CLOSE_UP: tuple[type[Row], ...] = (
    CoreTimes,
    SoftirqCount,
    SoftirqWait,
    SoftnetCpu,
    NetDevice,
    TcpCounters,
    Pressure,
    Thread,
)
#: Counters, and what grows: pairs of neighbours here and there tell their pace.
_PACED: tuple[type[Row], ...] = (
    *_CLOSE_UP,
    CgroupCensus,
    CgroupThrottle,
    Interrupt,
    NicCounter,
    RunQueue,
    Process,
    Unit,
    VmCounter,
)
_TOLD = ("nic_reset", "nic_watchdog", "nic_starved", "soft_lockup", "hard_lockup", "rcu_stall")
_EPISODES = 12
_AROUND_S = 15.0
#: An episode that lasts longer is shown by its beginning and its end.
_LONGEST_S = 120.0
_MOST_HELD = 150_000
_MOST_DIRECTORIES = 60_000
_THREADS_READ = 120
#: Tables that are read once per segment.
_SLOW_S = 600.0


class Condensed(NamedTuple):
    """Batches by row, moments for the window's clock, and what the reader should know."""

    batches: dict[type[Row], list[Batch[Any]]]
    clock: tuple[tuple[float, float], ...]
    notes: tuple[str, ...]


def condense(shelf: Shelf) -> Condensed:
    """What a long span's window holds."""
    choice = Choice(shelf)
    notes: list[str] = []
    batches: dict[type[Row], list[Batch[Any]]] = {}
    for kind in EVENTS:
        batches[kind] = events(shelf, kind, MOST_EVENTS)[0]
    traced = _cgroup_events(shelf, batches, notes)
    softirqs = traffic.Softirqs()
    cores = survey_cores(shelf, softirqs.see)
    kinds = [kind for kind in tables().values() if shelf.having(kind) and kind not in batches]
    for kind in kinds:
        choice.edges(kind)
        if kind in _PACED:
            choice.grid(kind)
    silent = _served(choice, cores)
    _held(choice, cores, notes)
    _silences(choice, silent)
    strained = [*_strained(choice, notes), *traffic.choose(choice, softirqs)]
    episodes = _episodes(shelf, (cores, silent, strained), batches)
    for start, end in episodes:
        for kind in _CLOSE_UP:
            choice.readings(kind, choice.stretch(kind, start, end))
        choice.named(VmCounter, choice.stretch(VmCounter, start, end))
    _slow_tables(choice, kinds, notes, traced=traced)
    batches |= choice.take(*kinds)
    _occupants(choice, batches)
    return Condensed(batches, tuple(_clock(choice, episodes)), tuple(notes))


def _cgroup_events(
    shelf: Shelf, batches: dict[type[Row], list[Batch[Any]]], notes: list[str]
) -> bool:
    """Births and deaths, the newest where they are too many; false where nobody traced them."""
    traced, cut = events(shelf, CgroupEvent, MOST_EVENTS)
    if not traced:
        return False
    batches[CgroupEvent] = traced
    lost, _ = events(shelf, CgroupEventGap, MOST_EVENTS)
    if cut:
        lost = [batch for batch in lost if batch.mono_s >= traced[0].mono_s]
        minutes = (traced[-1].mono_s - traced[0].mono_s) / 60
        notes.append(f"cgroup events are judged by their last {minutes:.0f} min only: too many")
    batches[CgroupEventGap] = lost
    return True


def _served(choice: Choice, cores: Cores) -> list[Silent]:
    """Where cores that serve a NIC queue polled nothing; the queues are those known last."""
    last = choice.take(NicQueue)[NicQueue]
    rows = [row for batch in last[-1:] for row in batch.rows]
    found = survey_polls(choice.shelf, cores, {row.cpus[0] for row in rows if len(row.cpus) == 1})
    for silent in found:
        irqs = {str(row.irq) for row in rows if row.cpus == (silent.core,)}
        for start, end in silent.steps:
            near = choice.stretch(Interrupt, start - 1.5, end + 1.5)
            choice.things(Interrupt, dict.fromkeys(near, irqs))
    return found


def _held(choice: Choice, cores: Cores, notes: list[str]) -> None:
    """Core times of every held core while it was held, and a step on either side."""
    times = cores.times
    found: dict[float, set[Hashable]] = defaultdict(set)
    room = _MOST_HELD
    left = 0
    for held in sorted(cores.held, key=lambda each: (not each.is_long, -each.seconds)):
        if not held.is_long:
            break
        numbers = range(max(held.first - 2, 0), min(held.last + 2, len(times)))
        room -= len(numbers)
        if room < 0:
            left += 1
            continue
        for number in numbers:
            found[float(times[number])].add(held.core)
        if times[held.last] - times[held.first - 1] > _LONGEST_S:
            # So long a stall needs no second of it, but who held the core all the time.
            seen = choice.stretch(Thread, float(times[held.first - 1]), float(times[held.last]))
            at = np.unique(np.linspace(0, len(seen) - 1, _THREADS_READ).astype(int)) if seen else ()
            choice.readings(Thread, [seen[each] for each in at], linked=True)
    for core, number in cores.telling:
        found[float(times[number - 1])].add(core)
        found[float(times[number])].add(core)
    choice.things(CoreTimes, found)
    if left:
        notes.append(
            f"{count(left, 'shorter stretch', 'shorter stretches')} of held cores left out"
        )


def _silences(choice: Choice, found: Sequence[Silent]) -> None:
    for silent in found:
        near: dict[float, set[Hashable]] = defaultdict(set)
        for start, end in silent.steps:
            for kind in (SoftirqCount, CoreTimes):
                moments = choice.stretch(kind, start - 1.5, end + 1.5)
                choice.things(kind, {each: {silent.core} for each in moments})
            choice.readings(NetDevice, choice.stretch(NetDevice, start - 1.5, end + 1.5))
        for start, end in silent.slowest:
            near[start].add(silent.core)
            near[end].add(silent.core)
        choice.things(SoftirqCount, near)


def _strained(choice: Choice, notes: list[str]) -> list[tuple[float, float]]:
    """Where memory was short or faults came fast: the readings that tell, and where to look."""
    shelf = choice.shelf
    number = strain.cores_at_the_end(shelf)
    paging, pressure = strain.of_paging(shelf, number), strain.of_pressure(shelf)
    choice.strain(VmCounter, paging)
    choice.strain(Pressure, pressure)
    if paging.cut or pressure.cut:
        notes.append("memory crossed its limits too often: the longest stretches are judged")
    kept = choice.take(VmCounter, Pressure)
    found = strain.episodes(kept[VmCounter], kept[Pressure], number)
    for start, end in found.all:
        for edge in (start, end, min(end, start + CLOSE_S)):
            choice.named(VmCounter, choice.stretch(VmCounter, edge - NEAR_S, edge + NEAR_S))
            choice.readings(ProcessCgroup, choice.stretch(ProcessCgroup, edge - _SLOW_S, edge)[-1:])
            later = choice.stretch(ProcessCgroup, edge, edge + _SLOW_S)
            choice.readings(ProcessCgroup, [mono for mono in later if mono > edge][:1])
    if found.faults is not None:
        start, end = found.faults
        until = min(end, start + CLOSE_S) + AROUND_S
        choice.readings(Process, choice.stretch(Process, start - AROUND_S, until))
    return found.all


def _episodes(
    shelf: Shelf,
    seen: tuple[Cores, Sequence[Silent], Sequence[tuple[float, float]]],
    batches: Mapping[type[Row], Sequence[Batch[Any]]],
) -> list[tuple[float, float]]:
    """What is told second by second: the longest stall of each core, memory at its worst, alarms,
    the log's lines."""
    cores, silent, strained = seen
    longest: dict[int, Held] = {}
    for held in cores.held:
        if held.is_long and (held.core not in longest
                             or held.seconds > longest[held.core].seconds):  # fmt: skip
            longest[held.core] = held
    worst = sorted(longest.values(), key=lambda each: -each.seconds)[:_EPISODES]
    times = cores.times
    stalls = [(float(times[each.first - 1]), float(times[each.last])) for each in worst]
    stalls += [max(each.steps, key=lambda step: step[1] - step[0]) for each in silent]
    stalls += strained
    told = [batch.mono_s for batch in batches.get(Alarm, ())]
    told += [
        row.mono_us / 1e6
        for batch in batches.get(KernelEvent, ())
        for row in batch.rows
        if row.family in _TOLD and row.mono_us is not None and shelf.span.holds(row.mono_us / 1e6)
    ]
    spans = list(_padded([*stalls, *((at, at) for at in sorted(told)[-_EPISODES:])]))
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _padded(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    for start, end in spans:
        if end - start > _LONGEST_S:
            yield start - _AROUND_S, start + _LONGEST_S / 2
            yield end - _LONGEST_S / 2, end + _AROUND_S
        else:
            yield start - _AROUND_S, end + _AROUND_S


def _slow_tables(
    choice: Choice, kinds: Sequence[type[Row]], notes: list[str], *, traced: bool
) -> None:
    shelf = choice.shelf
    if Unit in kinds:
        choice.things(Unit, changes.of_units(shelf))
    if SoftirqWait in kinds:
        choice.things(SoftirqWait, changes.of_waits(shelf))
    if ProbeCost in kinds:
        choice.readings(ProbeCost, changes.of_probe(shelf))
        choice.link(ProbeCost)
    if CgroupCensus in kinds:
        choice.readings(CgroupCensus, changes.of_census(shelf))
    if CgroupDir in kinds and not traced:
        books = shelf.having(CgroupDir)
        rows = sum(book.segment.rows(CgroupDir) for book in books)
        each = max(rows / max(sum(book.numbers(CgroupDir) for book in books), 1), 1.0)
        moments, cut = changes.of_directories(shelf, int(_MOST_DIRECTORIES / each))
        choice.readings(CgroupDir, moments)
        if cut:
            notes.append("directories came and went too often to compare every count of them")
    if KernelLog in kinds:
        for before, book in zip(shelf.books, shelf.books[1:], strict=False):
            if not book.joined:  # the recorder started anew, and its count of lost lines with it
                choice.readings(KernelLog, shelf.inside(KernelLog, before)[-1:].tolist())
                choice.readings(KernelLog, shelf.inside(KernelLog, book)[:1].tolist())


def _occupants(choice: Choice, batches: dict[type[Row], list[Batch[Any]]]) -> None:
    """Scopes that look deserted by what was kept, and were not all the time."""
    counted = batches.get(CgroupDir)
    if not counted or ProcessCgroup not in batches:
        return
    lived = {row.path for batch in batches[ProcessCgroup] for row in batch.rows if not row.deleted}
    paths = {
        row.path
        for row in counted[-1].rows
        if not row.children and row.path not in lived
        and (row.path.endswith(".scope") or container(row.path) is not None)
    }  # fmt: skip
    if paths:
        choice.things(ProcessCgroup, changes.of_occupants(choice.shelf, paths))
        batches |= choice.take(ProcessCgroup)


def _clock(
    choice: Choice, episodes: Iterable[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    shelf = choice.shelf
    for start, end in episodes:
        for book in shelf.books[choice.place(start) : choice.place(end) + 1]:
            yield from book.clock(max(start, shelf.span.start[0]), min(end, shelf.span.end[0]))
