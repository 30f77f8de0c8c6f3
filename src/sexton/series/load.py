"""How many tasks wait for a core, and stretches in which a value is high on average.

`/proc/stat` counts the tasks that are ready at the moment of reading; those beyond the number of
cores wait. `/proc/schedstat` adds up the time that tasks waited, which does not depend on the
moment. But it also counts tasks that are throttled by their cgroup's quota (seen on 6.1, v1: 3.8
waiting on idle cores), and many kernels do not have it. So the first is preferred.

For a single core there is only `/proc/schedstat`, or, on kernels without it, the tasks themselves:
those that are ready and last ran on that core, minus the running one.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

import numpy as np

from sexton.model.row import Row
from sexton.model.rows.cpu import RunQueue
from sexton.model.rows.memory import Pressure
from sexton.model.rows.task import Process, Thread
from sexton.model.window import Batch, Key, Window, values_getter
from sexton.series import pressure
from sexton.series.catalogue import READY_TASKS, RUN_QUEUE_WAIT
from sexton.series.cores import CoreSeries, core_series
from sexton.series.meter import end_to_end, series
from sexton.series.rates import (
    CLOSE_S,
    F64,
    SLACK,
    Amount,
    Floats,
    Ints,
    Series,
    Stepper,
    Steps,
    lasts,
    stretches,
    sums,
)

#: Tasks are read in at most this many stretches.
_LOOKED_AT = 4


class Waiting(NamedTuple):
    """Waiting tasks per core and step; NaN is unknown. `source` is the file that was read."""

    start: F64
    end: F64
    tasks: F64
    source: str


class Stretch(NamedTuple):
    """Consecutive steps with a high mean (monotonic seconds)."""

    start: float
    end: float
    mean: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Queues(NamedTuple):
    """Waiting tasks by core and step; or for all cores together, under an empty key, if they were
    too few to matter. `source` is the files that were read."""

    waiting: Series
    source: str


def waiting(window: Window) -> Waiting | None:
    """Tasks that waited for a core, per core; `None` if the node does not count them."""
    return window.keep("waiting tasks", lambda: _waiting(window))


def _waiting(window: Window) -> Waiting | None:
    cores = core_series(window)
    ready = series(window, READY_TASKS)
    if ready is not None and len(ready.values) and cores is not None:
        number = len(cores.cores)
        tasks = np.maximum(ready.values[0].astype(np.float64) - number, 0.0) / number
        some = ready.end > ready.start
        return Waiting(ready.start[some], ready.end[some], tasks[some], "/proc/stat")
    stepper = Stepper()
    parts = [_queued(stepper.add(piece)) for piece in window.columns(RunQueue, ("wait_ns",))]
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return None
    start, end, mean = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Waiting(start, end, mean, "/proc/schedstat")


def lapses(window: Window, limit: float, seconds: float) -> list[Stretch]:
    """Gaps of at least `seconds` without a reading, in which tasks waited for a core for at least
    `limit` per cent of the time.

    The single seconds of a gap are unknown. But PSI's counter continued, and if the recorder could
    not read for so long while tasks waited for a core, it did not get one either.
    """
    if window.scraped_every((Pressure,)) is not None:
        return []  # of Prometheus, which need not run on this node
    read = pressure.levels(window, "cpu")
    long = np.flatnonzero(np.diff(read.mono) >= seconds).tolist()
    found = (pressure.between(read[at], read[at + 1]) for at in long)
    return [
        Stretch(stall.start, stall.end, stall.some)
        for stall in found
        if stall is not None and stall.some >= limit
    ]


def across(window: Window, kind: type[Row], field: str, over: Stretch) -> dict[Key, Amount]:
    """The amount of each thing's counter from the last reading before a stretch to the first after
    it, regardless of gaps; without those that it was not read of."""
    read = [batch for batch in window.between(kind, over.start, over.end) if batch.rows]
    if len(read) < 2 or read[-1].mono_s <= read[0].mono_s:
        return {}
    key_of, value_of = values_getter(kind.entity), attrgetter(field)
    first = {key_of(row): value_of(row) for row in read[0].rows}
    moved = {
        key: value - first[key]
        for row in read[-1].rows
        if first.get(key := key_of(row)) is not None and (value := value_of(row)) is not None
    }
    spent = read[-1].mono_s - read[0].mono_s
    return {key: Amount(float(value), spent) for key, value in moved.items() if value >= 0}


def _queued(steps: Steps) -> tuple[F64, F64, F64]:
    """Start and end of steps, and the mean number of tasks waiting in a core's run queue."""
    waited = steps.moved["wait_ns"]
    known = ~np.isnan(waited)
    mean = np.where(known, waited, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    mean[~known.any(axis=0)] = np.nan
    return steps.start, steps.end, mean / 1e9 / steps.seconds


def high(start: F64, end: F64, value: Floats, limit: float, seconds: float) -> list[Stretch]:
    """Stretches in which the mean over every `seconds` was at least `limit`.

    A single low reading does not end a stretch; low readings at its ends are not part of it.

    >>> at = np.arange(12.0)
    >>> [tuple(each) for each in high(at, at + 1, np.array([0, *[9.0] * 5, 0, *[9.0] * 5]), 7, 5)]
    [(1.0, 12.0, 8.181818181818182)]
    """
    known = ~np.isnan(value)
    start, end, value = start[known], end[known], value[known]
    if not len(end):
        return []
    means = Means(start, end, seconds)
    good = np.flatnonzero((means.of(value) >= limit) & (means.length >= seconds * SLACK))
    spans: list[tuple[int, int]] = []
    for at in good.tolist():
        begin = int(means.first[at])
        if spans and start[begin] <= end[spans[-1][1]]:
            begin = spans.pop()[0]
        spans.append((begin, at))
    found = []
    for begin, last in spans:
        tall = begin + np.flatnonzero(value[begin : last + 1] >= limit / 2)
        inside = slice(int(tall[0]), int(tall[-1]) + 1)
        spent = (end - start)[inside]
        amount = float((value[inside] * spent).sum() / spent.sum())
        made = Stretch(float(start[tall[0]]), float(end[tall[-1]]), amount)
        if lasts(made.seconds, seconds):  # a short, high peak lifts the mean as well
            found.append(made)
    return found


def highest(start: F64, end: F64, value: Floats, seconds: float) -> float | None:
    """The largest mean over any consecutive `seconds`, or over all of them if there are fewer."""
    return Means(start, end, seconds).highest(value)


class Means:
    """Means over the stretches of about `seconds` that end with each step. `first` is the first
    step of a stretch. They are the same for every core that has all steps."""

    def __init__(self, start: F64, end: F64, seconds: float) -> None:
        self._start, self._end, self._seconds = start, end, seconds
        self.first: Ints = stretches(start, end, seconds * 1.05)
        self.length: F64 = end - start[self.first]

    def of(self, value: Floats) -> F64:
        """The mean up to each step, all of which are known."""
        total = sums(value * (self._end - self._start), self.first)
        return total / np.maximum(self.length, 1e-9)

    def highest(self, value: Floats) -> float | None:
        """As the function `highest`."""
        known = ~np.isnan(value)
        if not known.any():
            return None
        if not known.all():
            return highest(self._start[known], self._end[known], value[known], self._seconds)
        enough = self.length >= min(self._seconds * SLACK, float(self.length.max()))
        return float(self.of(value)[enough].max())


def queues(window: Window, limit: float, seconds: float) -> Queues | None:
    """Tasks that waited for each core; `None` if the node does not count them.

    A core can have a queue of `limit` only if the node has at least half that many more ready tasks
    than busy cores. Only if that lasts for `seconds` are the cores' queues read; without
    `/proc/schedstat` they are counted from the tasks.
    """
    cores, ready = core_series(window), series(window, READY_TASKS)
    crowded: list[Stretch] | None = None
    if cores is not None and ready is not None and len(ready.values):
        excess = ready._replace(things=[()], values=_excess(ready, cores)[None])
        if not np.isnan(excess.values).all():
            crowded = high(ready.start, ready.end, excess.values[0], limit / 2, seconds)
        if crowded == []:
            return Queues(excess, "/proc/stat")
    found = series(window, RUN_QUEUE_WAIT._replace(scale=1e-9))
    if found is not None and not np.isnan(found.values).all():
        return Queues(found, "/proc/schedstat")
    if cores is None or crowded is None or not window.read(Process):
        return None
    crowded.sort(key=lambda stretch: -stretch.mean * stretch.seconds)
    chosen = sorted(crowded[:_LOOKED_AT])
    counted = end_to_end(_ready_by_core(window, stretch, cores.cores) for stretch in chosen)
    return None if counted is None else Queues(counted, "/proc/PID/stat, /proc/stat")


def _excess(ready: Series, cores: CoreSeries) -> F64:
    """Ready tasks minus busy cores; unknown where the cores' time is."""
    busy = (cores.percent(cores.user + cores.kernel) / 100).sum(axis=0, dtype=np.float64)
    step = np.minimum(np.searchsorted(cores.end, ready.end), len(busy) - 1)
    known = (cores.end[step] == ready.end) & (ready.end > ready.start)
    made: F64 = np.where(known, np.maximum(ready.values[0] - busy[step], 0.0), np.nan)
    return made


def _ready_by_core(window: Window, over: Stretch, cores: list[int]) -> Series:
    """Waiting tasks by core; each reading of the tasks is valid for the time around it."""
    end = min(over.end, over.start + CLOSE_S)
    read = [part for part in threads(window, over.start, end) if over.start <= part.mono_s <= end]
    counted = np.zeros((len(cores), len(read)))
    rows = {core: row for row, core in enumerate(cores)}
    for at, batch in enumerate(read):
        for thread in batch.rows:
            if thread.state == "R" and thread.cpu in rows:
                counted[rows[thread.cpu], at] += 1
    mono = np.array([batch.mono_s for batch in read])
    edges = np.concatenate([[over.start], (mono[1:] + mono[:-1]) / 2, [end]])[: len(read) + 1]
    things: list[Key] = [(core,) for core in cores]
    return Series(edges[:-1], edges[1:], edges[1:], things, np.maximum(counted - 1, 0.0))


def threads(window: Window, start: float, end: float) -> list[Batch[Thread]]:
    """Threads in a span (monotonic seconds): those of busy processes, which are read one by one,
    and every process with a single thread."""
    found = []
    read = {batch.mono_s: batch.rows for batch in window.between(Thread, start, end)}
    for batch in window.between(Process, start, end):
        alone = [_only_thread(row) for row in batch.rows if row.threads == 1]
        pids = {row.pid for row in alone}
        more = (row for row in read.get(batch.mono_s, ()) if row.pid not in pids)
        found.append(Batch(batch.mono_s, batch.wall_s, (*alone, *more), batch.follows))
    return found


def _only_thread(row: Process) -> Thread:
    times = (row.start_ms, row.user_ms, row.system_ms)
    return Thread(row.pid, row.pid, row.comm, row.state, *times, row.cpu)
