"""Where hours of network counters and CPU quotas tell something, found without making rows.

Loss, floods and throttling come in stretches of seconds. Of each the worst are kept with every
reading in and around them, so that the detectors meet there what they would have met in the whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from sexton.detect.detectors import quota_throttling, softirq_flood, tcp_loss
from sexton.model.cgroup import CgroupThrottle
from sexton.model.cpu import CoreTimes
from sexton.model.net import Conntrack, TcpCounters
from sexton.replay.choice import Choice
from sexton.replay.span import Span
from sexton.replay.span_reader import Book, Shelf, columns
from sexton.replay.survey import Softirq
from sexton.store.arrays import Array, coded, numbers
from sexton.store.schema import MONO

Things = dict[float, set[Hashable]]
#: More than that of anything tells nothing new.
_MOST_READINGS = 4_000
_MOST_ROWS = 60_000
_MOST_PATHS = 50
_EPISODES = 4
_SLACK = 0.9
#: Just less than what a flood needs.
_BELOW = float(np.nextafter(softirq_flood.NOTED.value, 0))
_TCP = ("out_segments", "retransmitted_segments", "aborts_on_timeout", "attempt_fails")


def choose(choice: Choice, softirqs: Softirqs) -> list[tuple[float, float]]:
    """Keep what tells, and say what should be looked at second by second."""
    shelf = choice.shelf
    choice.readings(TcpCounters, of_loss(shelf))
    choice.things(CgroupThrottle, of_throttles(shelf))
    for book in shelf.having(Conntrack):  # a small row every ten seconds
        choice.readings(Conntrack, shelf.inside(Conntrack, book).tolist())
    choice.things(CoreTimes, softirqs.things)
    return [(run.start, run.end) for run in softirqs.lasting[:_EPISODES]]


class _Steps(NamedTuple):
    """Readings of a table with one row each, and what every counter moved by to reach them; -1
    where it went back, was not there, or where readings are missing."""

    times: Array
    gaps: Array
    moved: dict[str, Array]


def of_loss(shelf: Shelf) -> list[float]:
    """Readings around the steps in which much was sent again, or a connection given up; and the
    worst stretch, however little was lost in it."""
    steps = _tcp(shelf)
    if steps is None or len(steps.times) < 2:
        return []
    sent, every = (np.maximum(steps.moved[name], 0) for name in _TCP[:2])
    again = np.maximum(every - np.maximum(steps.moved["syn_retransmits"], 0), 0)
    gone = np.maximum(steps.moved[_TCP[2]], 0) - np.maximum(steps.moved[_TCP[3]], 0)
    share = 100 * again / np.maximum(sent + again, 1)
    telling = (gone > 0) | ((share >= tcp_loss.NOTED.value) & (again > 1))
    kept: set[int] = set(_worst(steps, sent, again))
    around = tcp_loss.STRETCH.value * tcp_loss.LATE
    for at in np.lexsort((-again * share, gone <= 0)).tolist():
        if len(kept) >= _MOST_READINGS or not telling[at]:
            break
        first = int(np.searchsorted(steps.times, steps.times[at] - around - 1))
        last = int(np.searchsorted(steps.times, steps.times[at] + around + 1))
        kept.update(range(first, last))
    found: list[float] = steps.times[sorted(kept)].tolist()
    return found


def _worst(steps: _Steps, sent: Array, again: Array) -> Iterable[int]:
    """The readings of the stretches with the greatest loss, reckoned as the detector does."""
    begin = np.maximum.accumulate(np.where(steps.gaps, np.arange(len(sent)), 0))
    sums = np.cumsum(sent), np.cumsum(again)
    for length in (tcp_loss.LASTING.value, tcp_loss.STRETCH.value):
        first = np.searchsorted(steps.times, steps.times - length * tcp_loss.LATE)
        first = np.maximum(np.minimum(first, np.arange(len(sent)) - 1), begin)
        all_sent, lost = (total - total[first] for total in sums)
        weight = lost * lost / np.maximum(all_sent + lost, 1)
        last = int(np.argmax(weight))
        yield from range(int(first[last]), last + 1)


def _tcp(shelf: Shelf) -> _Steps | None:
    times: list[Array] = []
    values: dict[str, list[Array]] = defaultdict(list)
    breaks: list[Array] = []
    joined = False
    for book, found in zip(shelf.books, shelf.each(_tcp_of, shelf.books), strict=True):
        joined = joined and book.joined
        if found is None:
            continue
        inside = (found[MONO] >= shelf.span.start[0]) & (found[MONO] <= shelf.span.end[0])
        order = np.flatnonzero(inside)[np.argsort(found[MONO][inside], kind="stable")]
        if not len(order):
            continue
        times.append(found[MONO][order])
        breaks.append(np.arange(len(order)) < (not joined))
        for name in (*_TCP, "syn_retransmits"):
            values[name].append(found[name][order])
        joined = True
    if not times:
        return None
    gaps = np.concatenate(breaks)
    moved = {name: _moved(np.concatenate(each), gaps) for name, each in values.items()}
    return _Steps(np.concatenate(times), gaps, moved)


def _tcp_of(book: Book) -> dict[str, Array] | None:
    found = columns(book, TcpCounters, (*_TCP, "syn_retransmits"))
    if found is None:  # recorded before they were counted apart
        found = columns(book, TcpCounters, _TCP)
        if found is not None:
            found["syn_retransmits"] = np.full(len(found[MONO]), -1)
    return found


def _moved(value: Array, gaps: Array) -> Array:
    before = np.roll(value, 1)
    unknown = (value < 0) | (before < 0) | (value < before) | gaps
    unknown[0] = True
    return np.where(unknown, -1, value - before)


def of_throttles(shelf: Shelf) -> Things:
    """Of each cgroup that was often throttled the segment in which it was stopped longest."""
    best: dict[str, tuple[int, list[float]]] = {}
    for answer in shelf.each(partial(_throttled, shelf.span), shelf.having(CgroupThrottle)):
        for path, stopped, moments in answer:
            if path not in best or stopped > best[path][0]:
                best[path] = stopped, moments
    found: Things = defaultdict(set)
    worst = sorted(best, key=lambda path: (-best[path][0], path))[:_MOST_PATHS]
    for path in worst:
        for mono in best[path][1]:
            found[mono].add(path)
    return found


def _throttled(span: Span, book: Book) -> list[tuple[str, int, list[float]]]:
    names = (MONO, "throttled", "throttled_us")
    table = book.segment.table(CgroupThrottle, ("path", *names), coded=("path",))
    if table is None or not table.num_rows:
        return []
    codes, paths = coded(table.column("path"))
    mono, times, stopped = (numbers(table.column(name)) for name in names)
    inside = (mono >= span.start[0]) & (mono <= span.end[0])
    found = []
    for code, path in enumerate(paths):
        mine = np.flatnonzero((codes == code) & inside)
        mine = mine[np.argsort(mono[mine], kind="stable")]
        often = np.maximum(np.diff(times[mine]), 0).sum()
        if often >= quota_throttling.OFTEN.value:
            total = int(np.maximum(np.diff(stopped[mine]), 0).sum())
            found.append((path, total, mono[mine].tolist()))
    return found


class _Run(NamedTuple):
    """A core from the reading before its first busy step to the one after its last."""

    core: int
    times: tuple[float, ...]
    start: float
    end: float
    spent_ms: float


class Softirqs:
    """Cores that spent half their time in softirq for seconds, and the busiest single step.

    It is shown the core times segment by segment (see `survey_cores`).
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._busiest: tuple[float, int, tuple[float, float]] | None = None
        self._last: tuple[float, dict[int, int]] = (0.0, {})

    def see(self, joined: bool, times: Array, cores: Array, softirq: Softirq) -> None:
        """One segment more; `joined` where nothing is missing between it and the one before."""
        moved = softirq.moved
        if joined and self._last[0] < times[0]:
            before = np.array([self._last[1].get(core, -1) for core in cores.tolist()])
            step = np.where(before >= 0, softirq.first - before, -1)
            times = np.concatenate([[self._last[0]], times])
            moved = np.concatenate([np.maximum(step, -1)[:, None], moved], axis=1)
        last = zip(cores.tolist(), softirq.last.tolist(), strict=True)
        self._last = float(times[-1]), dict(last)
        if len(times) < 2:
            return
        spent = np.diff(times)
        # Mostly nothing in a segment comes near what counts: then no step needs to be looked at.
        highest = float(moved.max() / 10 / spent.min())
        if self._busiest is not None and highest <= min(self._busiest[0], _BELOW):
            return
        share = moved / 10 / spent
        number = int(share.max(axis=0).argmax())
        row = int(share[:, number].argmax())
        top = float(share[row, number])
        if top >= 0 and (self._busiest is None or top > self._busiest[0]):
            span = float(times[number]), float(times[number + 1])
            self._busiest = top, int(cores[row]), span
        self._runs += _busy(times, cores, share)

    @property
    def lasting(self) -> list[_Run]:
        """The floods that count, the worst first."""
        least = softirq_flood.LASTING.value * _SLACK
        found = [each for each in _joined(self._runs) if each.end - each.start >= least]
        return sorted(found, key=lambda run: -run.spent_ms)

    @property
    def things(self) -> Things:
        """Core times to keep, by reading and core."""
        found: Things = defaultdict(set)
        if self._busiest is not None:
            _, core, step = self._busiest
            for mono in step:
                found[mono].add(core)
        room = _MOST_ROWS
        for run in self.lasting:
            room -= len(run.times)
            if room < 0:
                break
            for mono in run.times:
                found[mono].add(run.core)
        return found


def _busy(times: Array, cores: Array, share: Array) -> Iterable[_Run]:
    """Neighbouring steps at or above the limit, of each core."""
    rows, numbers = np.nonzero(share >= softirq_flood.NOTED.value)
    breaks = np.flatnonzero((np.diff(numbers) != 1) | (np.diff(rows) != 0)) + 1
    for group in np.split(np.arange(len(rows)), breaks) if len(rows) else ():
        row, first, last = int(rows[group[0]]), int(numbers[group[0]]), int(numbers[group[-1]])
        near = times[max(first - 1, 0) : last + 3]
        spent = float((share[row, first : last + 1] * np.diff(times)[first : last + 1]).sum() * 10)
        ends = float(times[first]), float(times[last + 1])
        yield _Run(int(cores[row]), tuple(near.tolist()), *ends, spent)


def _joined(runs: Iterable[_Run]) -> list[_Run]:
    """Runs that were cut by the end of a segment, made one."""
    made: dict[int, _Run] = {}
    done: list[_Run] = []
    for run in runs:
        last = made.get(run.core)
        if last is not None and last.end == run.start:
            times = tuple(dict.fromkeys((*last.times, *run.times)))
            run = _Run(run.core, times, last.start, run.end, last.spent_ms + run.spent_ms)
        elif last is not None:
            done.append(last)
        made[run.core] = run
    return [*done, *made.values()]
