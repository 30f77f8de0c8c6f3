"""Where hours of slow tables changed at all: the readings between can be left out unharmed.

Each function names single readings, or single things of them, without which some detector would
answer otherwise than with every reading at hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator
from functools import partial
from itertools import chain

import numpy as np

from sexton.detect.waits import WAIT
from sexton.model.cgroup import CgroupCensus, CgroupDir
from sexton.model.softirq import ProbeCost, SoftirqWait
from sexton.model.task import ProcessCgroup
from sexton.model.unit import Unit
from sexton.replay.span import Span
from sexton.replay.span_reader import Book, Shelf, columns
from sexton.store.arrays import Array, coded, numbers
from sexton.store.schema import MONO

Things = dict[float, set[Hashable]]
_UNIT = ("restarts", "main_start_us", "main_exit_us")


class _Units:
    """Every unit as of its last reading so far, by a number of its own."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self.values = np.empty((len(_UNIT), 0), np.int64)
        self.mono = np.empty(0)
        self.ended = np.empty(0)

    def numbers(self, names: list[str]) -> Array:
        for name in names:
            if name not in self._numbers:
                self._numbers[name] = len(self.names)
                self.names.append(name)
        more = len(self.names) - len(self.mono)
        if more:
            self.values = np.pad(self.values, ((0, 0), (0, more)), constant_values=-1)
            self.mono = np.pad(self.mono, (0, more), constant_values=-1.0)
            self.ended = np.pad(self.ended, (0, more), constant_values=-1.0)
        return np.array([self._numbers[name] for name in names])


def of_units(shelf: Shelf) -> Things:
    """Restarts that do not add up from a unit's first and last reading; its last whole run; and
    the last of a unit that is gone."""
    known = _Units()
    found: Things = defaultdict(set)

    def keep(moments: Array, units: Array) -> None:
        for mono, unit in zip(moments.tolist(), units.tolist(), strict=True):
            found[mono].add(known.names[unit])

    for answer in shelf.each(partial(_units, shelf.span), shelf.having(Unit)):
        if answer is None:
            continue
        names, rows = answer
        unit, mono = known.numbers(names)[rows["name"]], rows[MONO]
        values = np.stack([rows[name] for name in _UNIT])
        starts = np.flatnonzero(np.diff(unit, prepend=-1))
        first, last = unit[starts], np.append(starts[1:], len(unit)) - 1
        odd = np.flatnonzero(_odd(values[:, :-1], values[:, 1:]) & (unit[1:] == unit[:-1]))
        keep(mono[odd], unit[odd])
        keep(mono[odd + 1], unit[odd])
        anew = _odd(known.values[:, first], values[:, starts]) & (known.mono[first] >= 0)
        keep(known.mono[first][anew], first[anew])
        keep(mono[starts][anew], first[anew])
        whole = (values[1] > 0) & (values[2] >= values[1])
        ended = np.maximum.reduceat(np.where(whole, mono, -1.0), starts)
        known.ended[first] = np.where(ended >= 0, ended, known.ended[first])
        known.mono[first], known.values[:, first] = mono[last], values[:, last]
    gone = np.flatnonzero(known.mono < known.mono.max(initial=-1.0))
    keep(known.mono[gone], gone)
    over = np.flatnonzero(known.ended >= 0)
    keep(known.ended[over], over)
    return found


def _odd(before: Array, after: Array) -> Array:
    """A counter that fell, or moved without a new start."""
    unstarted = (before[1] == after[1]) & (after[1] >= 0)
    made: Array = (after[0] < before[0]) | ((after[0] != before[0]) & unstarted)
    return made


def _units(span: Span, book: Book) -> tuple[list[str], dict[str, Array]] | None:
    if not book.segment.rows(Unit):
        return None
    table = book.segment.table(Unit, (MONO, "name", *_UNIT), coded=("name",))
    if table is None or set(table.column_names) < {MONO, "name", *_UNIT}:
        return None
    codes, names = coded(table.column("name"))
    rows = {name: numbers(table.column(name)) for name in (MONO, *_UNIT)} | {"name": codes}
    inside = (rows[MONO] >= span.start[0]) & (rows[MONO] <= span.end[0])
    if not inside.all():
        rows = {name: column[inside] for name, column in rows.items()}
    if not len(rows[MONO]):
        return None
    same = np.diff(rows["name"])
    if not ((same > 0) | ((same == 0) & (np.diff(rows[MONO]) > 0))).all():  # not sealed yet
        order = np.lexsort((rows[MONO], rows["name"]))
        rows = {name: column[order] for name, column in rows.items()}
    return names, rows


def of_directories(shelf: Shelf, most: int) -> tuple[list[float], bool]:
    """Counts whose directories differ from those of the count before, with that one; the newest
    `most` of them, and whether there were more."""
    times, sums = [], []
    for answer in shelf.each(_directories, shelf.having(CgroupDir)):
        if answer is not None:
            times.append(answer[0])
            sums.append(answer[1])
    if not times:
        return [], False
    mono, total = np.concatenate(times), np.concatenate(sums)
    inside = (mono >= shelf.span.start[0]) & (mono <= shelf.span.end[0])
    mono, total = mono[inside], total[inside]
    later = np.flatnonzero(total[1:] != total[:-1]) + 1
    wanted = np.union1d(later, later - 1)
    return mono[wanted[-most:]].tolist(), len(wanted) > most


def _directories(book: Book) -> tuple[Array, Array] | None:
    """Counts, and a number for each that tells its set of directories from others."""
    found = columns(book, CgroupDir, ("inode",))
    if found is None or not len(found[MONO]):
        return None
    order = np.argsort(found[MONO], kind="stable")
    moments, starts = np.unique(found[MONO][order], return_index=True)
    return moments, np.add.reduceat(_mixed(found["inode"][order]), starts)


def _mixed(inodes: Array) -> Array:
    """Numbers spread so that sums of different sets differ (the mixer of splitmix64)."""
    mixed = inodes.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def of_occupants(shelf: Shelf, paths: Collection[str]) -> Things:
    """For each of these directories a reading in which a process lived there, if there is one."""
    found: Things = defaultdict(set)
    seen: set[str] = set()

    read = partial(_lived, shelf.span, frozenset(paths))
    for mono, pid, path in chain.from_iterable(shelf.each(read, shelf.having(ProcessCgroup))):
        if path not in seen:
            seen.add(path)
            found[mono].add(pid)
    return found


def _lived(span: Span, paths: Collection[str], book: Book) -> list[tuple[float, int, str]]:
    """The first reading of a process in each of them, and which process."""
    names = (MONO, "pid", "path", "deleted")
    table = book.segment.table(ProcessCgroup, names, coded=("path",))
    if table is None or not table.num_rows:
        return []
    codes, words = coded(table.column("path"))
    wanted = [code for code, path in enumerate(words) if path in paths]
    gone = numbers(table.column("deleted"), True)
    rows = np.flatnonzero(np.isin(codes, wanted) & ~gone)
    mono, pid = (numbers(table.column(name))[rows].tolist() for name in (MONO, "pid"))
    first: dict[str, tuple[float, int, str]] = {}
    for at, who, code in zip(mono, pid, codes[rows].tolist(), strict=True):
        if span.holds(at):
            first.setdefault(words[code], (at, who, words[code]))
    return list(first.values())


def of_waits(shelf: Shelf) -> Things:
    """Long waits by the probe, with the readings beside them; and the longest, however short."""
    times: list[Array] = []
    long: list[tuple[int, int]] = []
    longest: tuple[int, tuple[int, int]] = (-1, (0, 0))
    at = 0
    for answer in shelf.each(_waits, shelf.having(SoftirqWait)):
        if answer is None:
            continue
        moments, rows, cores, worst = answer
        for row, core, value in zip(rows.tolist(), cores.tolist(), worst.tolist(), strict=True):
            if not shelf.span.holds(float(moments[row])):
                continue
            if value >= WAIT.value * 1e6:
                long.append((at + row, core))
            if value > longest[0]:
                longest = value, (at + row, core)
        times.append(moments)
        at += len(moments)
    found: Things = defaultdict(set)
    if not times:
        return found
    every = np.concatenate(times)
    for index, core in [*long, longest[1]]:
        for near in range(max(index - 1, 0), min(index + 2, len(every))):
            if shelf.span.holds(float(every[near])):
                found[float(every[near])].add(core)
    return found


def _waits(book: Book) -> tuple[Array, Array, Array, Array] | None:
    """Readings; and of the long waits and the longest: the reading's place, the core, how long."""
    found = columns(book, SoftirqWait, ("cpu", "longest_us", "pending_us"))
    if found is None or not len(found[MONO]):
        return None
    moments, row = np.unique(found[MONO], return_inverse=True)
    worst = np.maximum(found["longest_us"], found["pending_us"])
    top = np.flatnonzero(worst == worst.max())
    keep = np.union1d(np.flatnonzero(worst >= WAIT.value * 1e6), top[np.argmin(row[top])])
    return moments, row[keep], found["cpu"][keep], worst[keep]


def of_probe(shelf: Shelf) -> list[float]:
    """Readings at which the probe began or ceased to watch, and those before them."""
    times: list[float] = []
    states: list[tuple[bool, str]] = []
    for some, watched in shelf.each(_watched, shelf.having(ProbeCost)):
        times += some
        states += watched
    kept: list[float] = []
    for at in range(1, len(times)):
        if states[at] != states[at - 1]:
            kept += times[at - 1 : at + 1]
    return [mono for mono in kept if shelf.span.holds(mono)]


def _watched(book: Book) -> tuple[list[float], list[tuple[bool, str]]]:
    table = book.segment.table(ProbeCost, (MONO, "watched", "why"))
    if table is None:
        return [], []
    pairs = zip(*(table.column(name).to_pylist() for name in ("watched", "why")), strict=True)
    return table.column(MONO).to_pylist(), list(pairs)


def of_census(shelf: Shelf) -> Iterator[float]:
    """The first and the last count that could tell how many are dying."""
    books = shelf.having(CgroupCensus)
    for some, place in ((books, 0), (books[::-1], -1)):
        yield from _counted(shelf, some, place)


def _counted(shelf: Shelf, books: Iterable[Book], place: int) -> Iterator[float]:
    for book in books:
        found = columns(book, CgroupCensus, ("dying",))
        if found is None:
            continue
        mono = np.sort(found[MONO][found["dying"] >= 0])
        mono = mono[(mono >= shelf.span.start[0]) & (mono <= shelf.span.end[0])]
        if len(mono):
            yield float(mono[place])
            return
