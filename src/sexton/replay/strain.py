"""Where hours of memory counters were above a limit of the detectors, found without making rows.

Between two limits crossed all steps are on the same side of every limit, and so is the one long
step that joins their ends: it is enough to keep the readings at which a limit was crossed. The
detectors find the same stretches in them, with the same totals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sexton.detect import paging, pressure
from sexton.detect.detectors import direct_reclaim, memory_pressure, page_fault_storm
from sexton.detect.runs import SLACK
from sexton.model.cpu import CoreTimes
from sexton.model.memory import Pressure, VmCounter
from sexton.model.node import Node
from sexton.model.row import Row
from sexton.model.window import Batch
from sexton.replay.span_reader import Book, Shelf, columns
from sexton.store.arrays import Array, coded, numbers
from sexton.store.schema import MONO

#: Readings at which a limit is crossed; more than a node could mean.
_MOST = 2_000
_FULL, _SOME = 1, 0
#: So many segments apart a first look is taken, and a shorter stretch than this is none to any of
#: the detectors.
_STRIDE = 16
_SHORTEST_S = 2.0 * SLACK


class Strain(NamedTuple):
    """Readings to keep, and the stretches within which they follow each other.

    `names` are the counters that matter, by the table's first field; `cut` where there were more.
    """

    moments: tuple[float, ...] = ()
    spans: tuple[tuple[float, float], ...] = ()
    names: frozenset[str] = frozenset()
    cut: bool = False


class Episodes(NamedTuple):
    """What the detectors will look at closely, each (start, end), `None` where there is none."""

    reclaim: tuple[float, float] | None
    faults: tuple[float, float] | None
    pressure: tuple[float, float] | None

    @property
    def all(self) -> list[tuple[float, float]]:
        return [each for each in self if each is not None]


class _Series(NamedTuple):
    """Readings of a span, a row per quantity, -1 where it is not there; `breaks` are readings
    that do not follow the one before."""

    times: Array
    values: Array
    breaks: Array


def cores_at_the_end(shelf: Shelf) -> int | None:
    """As `page_fault_storm` counts them."""
    for book in reversed(shelf.having(CoreTimes)):
        found = columns(book, CoreTimes, ("cpu",))
        if found is not None:
            mono = found[MONO][found[MONO] <= shelf.span.end[0]]
            if len(mono):
                return int((found[MONO] == mono.max()).sum())
    for book in reversed(shelf.having(Node)):
        found = columns(book, Node, ("cores",))
        if found is not None and len(found["cores"]) and found["cores"][-1] > 0:
            return int(found["cores"][-1])
    return None


def of_paging(shelf: Shelf, cores: int | None) -> Strain:
    """Where `/proc/vmstat` crossed a limit of reclaim or of faults."""
    names: set[str] = set()

    def read(book: Book) -> tuple[Array, Array] | None:
        found = _counters(book, names)
        return None if found is None else (found[0], _judged(found[1]))

    limits = np.array([
        direct_reclaim.NOTED.value,
        page_fault_storm.MAJOR.value,
        page_fault_storm.MINOR.value * cores if cores else np.inf,
    ])  # fmt: skip
    series = _series(shelf, VmCounter, read, limits)
    if series is None:
        return Strain()
    moved, seconds = _moved(series)
    marks = np.zeros(len(seconds), np.int64)
    for number, limit in enumerate(limits.tolist()):
        high = (moved[number] >= 0) & (moved[number] / seconds >= limit)
        marks |= high.astype(np.int64) << number
    return _strain(series, marks, frozenset(names))


def _judged(sums: Array) -> Array:
    """Pages scanned by tasks themselves, major faults and all of them, since boot."""
    at = {group: sums[number] for number, group in enumerate(paging.GROUPS)}
    threads = np.maximum(at["kswapd"], 0) + np.maximum(at["other"], 0)
    tasks = np.where(at["every"] >= 0, np.maximum(at["every"] - threads, 0), at["direct"])
    return np.stack([tasks, at["major"], at["faults"]])


def of_pressure(shelf: Shelf) -> Strain:
    """Where the memory's pressure crossed a limit."""
    share = 10_000  # microseconds of a second in one per cent
    limits = np.array([memory_pressure.NOTED.value, memory_pressure.ALL_STALL.value]) * share
    series = _series(shelf, Pressure, _levels, limits)
    if series is None:
        return Strain()
    moved, seconds = _moved(series)
    percent = moved / share / seconds
    marks = np.zeros(len(seconds), np.int64)
    known = moved[_SOME] >= 0
    for number, (row, limit) in enumerate((
        (_SOME, memory_pressure.NOTED.value), (_SOME, pressure.HURTS.value),
        (_FULL, memory_pressure.ALL_STALL.value), (_FULL, memory_pressure.GRAVE.value),
    )):  # fmt: skip
        high = known & (moved[row] >= 0) & (percent[row] >= limit)
        marks |= high.astype(np.int64) << number
    return _strain(series, marks)


def episodes(
    counters: Iterable[Batch[Any]], levels: Iterable[Batch[Any]], cores: int | None
) -> Episodes:
    """By the detectors' own choice among what was kept."""
    moved = paging.steps(list(paging.readings_of(counters)))
    read = list(pressure.levels_of(levels))
    stalls = pressure.stalled_in(read)
    reclaim, _ = direct_reclaim.worst(moved, stalls)
    storm = page_fault_storm.worst(moved, cores, stalls)
    worst = memory_pressure.worst_of(pressure.stalls(read))
    return Episodes(
        (reclaim.start, reclaim.end) if reclaim else None,
        (storm.run.start, storm.run.end) if storm else None,
        (worst.run.start, worst.run.end) if worst else None,
    )


def _series(
    shelf: Shelf,
    kind: type[Row],
    read: Callable[[Book], tuple[Array, Array] | None],
    limits: Array,
) -> _Series | None:
    times, values, breaks = [], [], []
    joined = False
    before = -1
    for place, mono, found in _worth_reading(shelf, kind, read, limits):
        joined = joined and all(book.joined for book in shelf.books[before + 1 : place + 1])
        before = place
        times.append(mono)
        values.append(found)
        first = np.zeros(len(mono), bool)
        first[0] = not joined
        breaks.append(first)
        joined = True
    if not times:
        return None
    return _Series(np.concatenate(times), np.concatenate(values, axis=1), np.concatenate(breaks))


def _worth_reading(
    shelf: Shelf,
    kind: type[Row],
    read: Callable[[Book], tuple[Array, Array] | None],
    limits: Array,
) -> list[tuple[int, Array, Array]]:
    """Segments with their place, times and values, but for those in which nothing can be.

    All that counters grew between two segments is what they grew in the segments between. Where
    that is less than any stretch worth a word would need, and no stretch reaches in from either
    side, those need not be opened. On a calm node that is most of them.
    """
    places = [at for at, book in enumerate(shelf.books) if book.numbers(kind)]
    known: dict[int, tuple[Array, Array]] = {}

    def opened(number: int) -> tuple[Array, Array] | None:
        place = places[number]
        if place not in known:
            found = read(shelf.books[place])
            mono = np.empty(0) if found is None else found[0]
            inside = (mono >= shelf.span.start[0]) & (mono <= shelf.span.end[0])
            if found is None or not inside.any():
                return None
            known[place] = mono[inside], found[1][:, inside]
        return known[place]

    def look(first: int, last: int) -> None:
        """Both are open; open what must be between them."""
        if last - first < 2:
            return
        between = shelf.books[places[first] + 1 : places[last] + 1]
        left, right = opened(first), opened(last)
        if all(book.joined for book in between) and _is_calm(left, right, limits):
            return
        middle = (first + last) // 2
        opened(middle)
        look(first, middle)
        look(middle, last)

    ends = [*range(0, len(places), _STRIDE), len(places) - 1] if places else []
    for number in ends:
        opened(number)
    for first, last in pairwise(ends):
        look(first, last)
    return [(place, *known[place]) for place in sorted(known)]


def _is_calm(
    left: tuple[Array, Array] | None, right: tuple[Array, Array] | None, limits: Array
) -> bool:
    """Nothing between these two can be a stretch above a limit that lasts."""
    if left is None or right is None or min(len(left[0]), len(right[0])) < 2:
        return False
    grown = right[1][:, 0] - left[1][:, -1]
    edges = [(side[0][at], side[1][:, at]) for side, at in ((left, slice(-2, None)),
                                                            (right, slice(0, 2)))]  # fmt: skip
    rates = [np.diff(values, axis=1)[:, 0] / np.diff(times)[0] for times, values in edges]
    # What tasks scanned is a difference of counters, and may go back by some pages.
    return bool(
        (np.abs(grown) < limits * _SHORTEST_S).all()
        and all((np.abs(rate) < limits).all() for rate in rates)
    )


def _counters(book: Book, names: set[str]) -> tuple[Array, Array] | None:
    """Sums by group and reading."""
    table = book.segment.table(VmCounter, (MONO, "name", "value"), coded=("name",))
    if table is None or not table.num_rows:
        return None
    codes, words = coded(table.column("name"))
    groups = np.array([_place(name, names) for name in words], np.int64)
    mono, value = (numbers(table.column(name)) for name in (MONO, "value"))
    length = int(np.argmax(codes != codes[0])) or len(codes)
    if len(codes) % length == 0:  # as they are sealed: name by name, each with every reading
        shape = (-1, length)
        first, times = codes[::length], mono[:length]
        same = (first == codes.reshape(shape).T).all() and (mono.reshape(shape) == times).all()
        if same and (np.diff(times) > 0).all():
            return times.copy(), _summed(groups[first], value.reshape(shape))
    which = groups[codes]
    wanted = np.flatnonzero(which >= 0)
    if not len(wanted):
        return None
    times, at = np.unique(mono[wanted], return_inverse=True)
    sums = np.full((len(paging.GROUPS), len(times)), -1, np.int64)
    np.maximum.at(sums, (which[wanted], at), 0)
    np.add.at(sums, (which[wanted], at), value[wanted])
    return times, sums


def _summed(groups: Array, values: Array) -> Array:
    """Rows of one group in one; -1 where a group has none."""
    sums = np.full((len(paging.GROUPS), values.shape[1]), -1, np.int64)
    for row in np.flatnonzero(groups >= 0).tolist():
        group = groups[row]
        sums[group] = np.where(sums[group] < 0, values[row], sums[group] + values[row])
    return sums


def _place(name: str, names: set[str]) -> int:
    group = paging.group_of(name)
    if group is None:
        return -1
    names.add(name)
    return paging.GROUPS.index(group)


def _levels(book: Book) -> tuple[Array, Array] | None:
    """Some and full by reading, microseconds."""
    names = ("resource", "kind")
    table = book.segment.table(Pressure, (MONO, *names, "total_us"), coded=names)
    if table is None or not table.num_rows:
        return None
    (resource, resources), (kind, kinds) = (coded(table.column(name)) for name in names)
    mine = np.array([each == "memory" for each in resources])[resource]
    which = np.array([_FULL if each == "full" else _SOME for each in kinds])[kind][mine]
    if not len(which):
        return None
    times, at = np.unique(numbers(table.column(MONO))[mine], return_inverse=True)
    found = np.full((2, len(times)), -1, np.int64)
    found[which, at] = numbers(table.column("total_us"))[mine]
    return times, found


def _moved(series: _Series) -> tuple[Array, Array]:
    """What moved in the step that leads to each reading, -1 where that is not known; and how long
    the step took."""
    seconds = np.diff(series.times, prepend=series.times[0] - 1.0)
    before = np.roll(series.values, 1, axis=1)
    moved = series.values - before
    unknown = (series.values < 0) | (before < 0) | (moved < 0) | series.breaks | (seconds <= 0)
    unknown[:, 0] = True
    return np.where(unknown, -1, moved), np.where(seconds > 0, seconds, 1.0)


def _strain(series: _Series, marks: Array, names: frozenset[str] = frozenset()) -> Strain:
    """Readings at which the marks change, of the longest stretches where there are too many."""
    high = np.flatnonzero(marks)
    if not len(high):
        return Strain(names=names)
    ends = np.flatnonzero(np.diff(high) != 1)
    firsts, lasts = high[np.r_[0, ends + 1]], high[np.r_[ends, len(high) - 1]]
    stretches = sorted(
        zip((firsts - 1).tolist(), lasts.tolist(), strict=True),
        key=lambda each: series.times[each[0]] - series.times[each[1]],
    )
    kept: set[int] = set()
    spans = []
    for first, last in stretches:
        turns = np.flatnonzero(np.diff(marks[first + 1 : last + 1])) + first + 1
        if len(kept) + len(turns) > _MOST:
            break
        kept |= {first, last, *turns.tolist()}
        spans.append((float(series.times[first]), float(series.times[last])))
    moments = tuple(float(series.times[at]) for at in sorted(kept))
    return Strain(moments, tuple(sorted(spans)), names, len(spans) < len(stretches))
