"""How often each unit restarted, and its period: by systemd's `NRestarts` and by the journal.

The journal has the counter of every restart, also of units that systemd did not list in time, and
from before the counter was cleared. Whichever of the two knows more restarts is right.

`NRestarts` counts automatic restarts only. ``systemctl reset-failed`` and a manual start after a
stop clear it, so it can go down. The rules:

- a decrease is a new baseline, never a negative step and never "everything since zero";
- a step counts only if the main process was started again (`main_start_us` changed), if that is
  known: otherwise the counter was increased for a start that never happened;
- a manual restart changes the start time and not the counter: it does not count.

A container of a pod is restarted by the kubelet, which numbers its logs: each number with the time
of its start is a mark like one of the journal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from sexton.model.counters import delta
from sexton.model.rows.kubernetes import Container
from sexton.model.rows.unit import RestartMark, Unit
from sexton.model.window import Columns, Key, Window
from sexton.series.rates import F64, Bools, carried

FIELDS = ("restarts", "main_start_us")
_STARTS = ("id", "namespace", "pod", "name", "pod_uid", "restarts", "started_s")
COUNTED_BY = "systemd's NRestarts and the journal"


@dataclass(frozen=True, slots=True)
class RestartCount:
    """Restarts of one unit: `count` between its first and last reading, `seconds` apart.

    `since_boot` is the counter's last value: since boot, or since it was last cleared. `rebased`
    means that it went down in between, so `count` is a lower bound.
    """

    count: int
    since_boot: int
    rebased: bool
    seconds: float


class Seen(NamedTuple):
    """One unit as it was read last.

    `ended` is the last reading of a complete run, of a failed run if there is one: from a start on,
    systemd reports status 0 and success, whatever the end before it was, and its properties are
    read one by one, so that a start may fall between them.
    """

    unit: Unit
    ended: Unit | None

    @property
    def delay_s(self) -> float | None:
        """From an end to the next start."""
        delay = self.unit.restart_delay_us
        return None if delay is None else delay / 1e6

    @property
    def run_s(self) -> float | None:
        """How long its last complete run took."""
        if self.ended is None:
            return None
        return ((self.ended.main_exit_us or 0) - (self.ended.main_start_us or 0)) / 1e6


@dataclass(frozen=True, slots=True)
class Restarts:
    """Restarts of one unit: `recent` in `seconds` of the window, `total` so far, as far as known.

    `rebased` means that its counter went down in the window, so `recent` is a lower bound.
    `measured_s` are periods: the mean by `NRestarts`, and the median by the journal.
    """

    recent: int
    seconds: float
    total: int
    rebased: bool
    measured_s: tuple[float | None, float | None]
    settings_s: float | None

    @property
    def per_day(self) -> float:
        """At the rate of the window; of a shorter one than a second as if it took one."""
        return 86_400 * self.recent / max(self.seconds, 1.0)

    def period_s(self, enough: float) -> float | None:
        """From one start to the next: measured if it restarted often enough in the window or the
        journal has it, else computed from its restart delay and its last run."""
        mean, median = self.measured_s
        known = (mean if self.recent >= enough else None, median, self.settings_s, mean)
        return next((period for period in known if period is not None), None)


def units(window: Window) -> Mapping[str, Seen]:
    """Every unit that was read, by name."""
    return window.keep("units", lambda: _units(window))


def _units(window: Window) -> dict[str, Seen]:
    found: dict[str, Seen] = {}
    for unit in window.changes(Unit):
        ended = found[unit.name].ended if unit.name in found else None
        whole = unit.main_start_us and (unit.main_exit_us or 0) >= unit.main_start_us
        if whole and (ended is None or without_fault(ended) or not without_fault(unit)):
            ended = unit
        found[unit.name] = Seen(unit, ended)
    return found


def without_fault(unit: Unit) -> bool:
    return unit.exit_status == 0 and unit.result in (None, "success")


def restarts(window: Window) -> Mapping[str, Restarts]:
    """Restarts by unit name, without units of which neither counter was read."""
    return window.keep("restarts", lambda: _restarts(window))


def _restarts(window: Window) -> dict[str, Restarts]:
    counts, seen = restarts_in(window.columns(Unit, FIELDS)), units(window)
    marks: dict[str, list[RestartMark]] = defaultdict(list)
    for mark in sorted({*(window.all(RestartMark) or ())}, key=attrgetter("wall_s", "counter")):
        marks[mark.unit].append(mark)
    found = {}
    for name in {**counts, **marks}:
        counted = counts.get(name, RestartCount(0, 0, False, 0.0))
        total, periods = marked(marks[name]) if name in marks else (0, [])
        logged = sum(window.start <= mark.wall_s <= window.end for mark in marks.get(name, ()))
        recent, seconds, mean = logged, window.seconds, None
        if counted.count >= logged:
            recent, seconds = counted.count, counted.seconds
            mean = seconds / recent if recent > 1 and seconds > 0 else None
        median = float(np.median(periods)) if len(periods) > 1 else None
        unit = seen.get(name)
        delay, ran = (unit.delay_s, unit.run_s) if unit is not None else (None, None)
        settings = None if delay is None or ran is None else delay + ran
        total = max(counted.since_boot, total, recent)
        found[name] = Restarts(recent, seconds, total, counted.rebased, (mean, median), settings)
    return found


class ContainerRestarts(NamedTuple):
    """Restarts of one container of a pod; `last_s` is when it was started last (UNIX), `id` its id
    since then."""

    restarts: Restarts
    last_s: float
    id: str


def containers(window: Window) -> Mapping[tuple[str, str, str], ContainerRestarts]:
    """By namespace, pod and container; without those whose restart count was not read."""
    return window.keep("container restarts", lambda: _containers(window))


def _starts(window: Window) -> Iterator[tuple[tuple[str, ...], RestartMark]]:
    """Each start that was read, with the container's id as its unit, and whose it was."""
    for name, *whose, number, started_s in window.distinct(Container, _STARTS):
        if whose[2] is not None and not (_is_unknown(number) or _is_unknown(started_s)):
            mark = RestartMark(name, int(number), float(started_s))
            yield (*whose[:3], whose[3] or ""), mark
    for batch in window.batches(Container) or ():
        for row in batch.rows:
            if row.name is not None and row.restarts is not None and row.started_s is None:
                key = (row.namespace, row.pod, row.name, row.pod_uid or "")
                yield key, RestartMark(row.id, row.restarts, batch.wall_s)


def _is_unknown(number: float | None) -> bool:
    return number is None or bool(np.isnan(number))


def _containers(window: Window) -> dict[tuple[str, str, str], ContainerRestarts]:
    marks: dict[tuple[str, ...], dict[int, RestartMark]] = defaultdict(dict)
    for key, mark in _starts(window):
        marks[key].setdefault(mark.counter, mark)
    found: dict[tuple[str, str, str], ContainerRestarts] = {}
    for (namespace, pod, name, _), by_count in marks.items():
        mine = sorted(by_count.values(), key=attrgetter("wall_s", "counter"))
        total, periods = marked(mine)
        steps = (
            delta(before.counter, after.counter) or 0
            for before, after in pairwise(mine)
            if before.wall_s < after.wall_s and window.start <= after.wall_s <= window.end
        )
        median = float(np.median(periods)) if periods else None
        made = Restarts(sum(steps), window.seconds, total, False, (None, median), None)
        known = found.get((namespace, pod, name))
        if known is None or known.last_s < mine[-1].wall_s:  # else of a pod of the same name
            found[namespace, pod, name] = ContainerRestarts(made, mine[-1].wall_s, mine[-1].unit)
    return found


def marked(marks: Sequence[RestartMark]) -> tuple[int, list[float]]:
    """Restarts of one unit from the counter in its journal messages, and the seconds per restart
    between consecutive messages; `marks` are in time order.

    A counter that fell was cleared: its value before that is added.

    >>> marked([RestartMark("a", n, at) for n, at in ((1, 10.0), (3, 30.0), (1, 40.0), (2, 45.0))])
    (5, [10.0, 5.0])
    """
    total, periods = marks[-1].counter, []
    for before, after in pairwise(marks):
        step = delta(before.counter, after.counter)
        if step is None:
            total += before.counter
        elif step and after.wall_s > before.wall_s:
            periods.append((after.wall_s - before.wall_s) / step)
    return total, periods


def restarts_in(pieces: Iterable[Columns]) -> dict[str, RestartCount]:
    """By `NRestarts`, from columns in pieces.

    >>> from sexton.model.window import Batch, columns_of
    >>> def unit(restarts, start):
    ...     return Unit("a.service", "loaded", "activating", "auto-restart", None, restarts,
    ...                 None, None, start, None, None, None, None, None, "")
    >>> readings = [(3, 10), (5, 20), (0, 30), (2, 40)]
    >>> read = [Batch(t, t, (unit(*r),)) for t, r in enumerate(readings)]
    >>> restarts_in([columns_of(read, Unit, FIELDS)])["a.service"]
    RestartCount(count=4, since_boot=2, rebased=True, seconds=3.0)
    """
    found: dict[str, RestartCount] = {}
    last: dict[Key, tuple[float, float]] = {}
    began: dict[Key, float] = {}
    nothing = RestartCount(0, 0, False, 0.0)
    for piece in pieces:
        counters, starts = (piece.values[name] for name in FIELDS)
        known = ~np.isnan(counters)
        before = np.array([last.get(thing, (np.nan, np.nan)) for thing in piece.things])
        before = before.reshape(len(piece.things), 2)
        # Where the counter was not read, counter and start are those of the last reading.
        read = np.where(known, starts, np.nan)
        counter = carried(np.concatenate([before[:, :1], counters], axis=1))
        start = _at(np.concatenate([before[:, 1:], read], axis=1), before[:, 0], known)
        moved = np.diff(counter, axis=1)
        same = np.diff(start, axis=1) == 0  # false if unknown
        counts = np.where((moved > 0) & ~same, moved, 0).sum(axis=1).tolist()
        fell = np.asarray((moved < 0).any(axis=1))
        firsts, lasts = known.argmax(axis=1), known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
        for row in np.flatnonzero(known.any(axis=1)).tolist():
            thing = piece.things[row]
            name = str(thing[0])
            so_far = found.get(name, nothing)
            first = began.setdefault(thing, float(piece.mono[firsts[row]]))
            found[name] = RestartCount(
                count=so_far.count + int(counts[row]),
                since_boot=int(counter[row, -1]),
                rebased=so_far.rebased or bool(fell[row]),
                seconds=float(piece.mono[lasts[row]]) - first,
            )
            last[thing] = float(counter[row, -1]), float(start[row, -1])
    return found


def _at(starts: F64, before: F64, known: Bools) -> F64:
    """The start time (or NaN) at the last reading at which the counter was known."""
    there = np.concatenate([~np.isnan(before)[:, None], known], axis=1)
    at = np.maximum.accumulate(np.where(there, np.arange(starts.shape[1]), 0), axis=1)
    made: F64 = np.take_along_axis(starts, at, axis=1)
    return made
