"""CPU time of tasks, step by step: the only definition of what a task used.

Tasks come and go. The rules, for processes and threads, in rows and in columns alike:

- a task counts from its previous reading, if that is the reading before;
- one that started since the reading before has used all of its time since then: it counts from zero
  over the whole step, since before its start it used nothing;
- otherwise its step is unknown: threads are read only while their process is busy, and when one
  that was not read used its time is not known. So is a counter that went back;
- what a task used between its last reading and its end is lost.

Which tasks count, and how much is much, is the caller's. Page faults are counted by task as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from sexton.model.rows.task import Process, Thread
from sexton.model.window import Batch
from sexton.series.rates import F64, Bools, Ints, percent_of
from sexton.series.sums import Readings, readings

#: The start time in ticks may be a little before the real one.
_LATE_MS = 20
Task = tuple[int, ...]
R = TypeVar("R", Process, Thread)


def key(row: Process | Thread) -> Task:
    """What identifies a task: a number may be used again, a number and a start are not."""
    return (row.pid, getattr(row, "tid", row.pid), row.start_ms)


def cpu_ms(row: Process | Thread) -> int:
    """CPU time since a task started."""
    return row.user_ms + row.system_ms


def kernel_ms(row: Process | Thread) -> int:
    """The part of it in the kernel."""
    return row.system_ms


class TaskStep(NamedTuple, Generic[R]):
    """One task from one reading to the next: how far what is counted moved.

    `before` is `None` if the task started in between.
    """

    task: Task
    start: float
    end: float
    before: R | None
    row: R
    amount: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def percent(self) -> float:
        """Of a core, if milliseconds of CPU time were counted."""
        return percent_of(self.amount, self.seconds)


class Used(NamedTuple, Generic[R]):
    """One task over several steps: its last row, the amount, and the seconds it is known for."""

    row: R
    amount: float
    seconds: float

    @property
    def percent(self) -> float:
        """Of a core, if milliseconds of CPU time were counted."""
        return percent_of(self.amount, self.seconds)

    @property
    def rate(self) -> float:
        """The amount per second."""
        return self.amount / self.seconds


def task_steps(
    batches: Sequence[Batch[R]],
    counted: Callable[[Any], int | None] = cpu_ms,
    *,
    over_gaps: bool = False,
) -> Iterator[TaskStep[R]]:
    """Every known step of every task, task by task; unknown ones are left out.

    There is none across missing readings, except for callers that only add up (`over_gaps`).
    """
    read = [*{batch.mono_s: batch for batch in batches}.values()]  # the later of two at one moment
    every = [row for batch in read for row in batch.rows]
    if len(read) < 2 or not every:
        return
    codes: dict[Task, int] = {}
    named = list(map(key, every))
    number = np.arange(len(every))
    mono = np.repeat([batch.mono_s for batch in read], [len(batch.rows) for batch in read])
    rows = TaskRows(
        mono=mono,
        task=np.array([codes.setdefault(name, len(codes)) for name in named], np.int64),
        pid=number,
        start=np.array([row.start_ms for row in every], np.int64),
        name=number,
        cpu=number,
        used=np.array([counted(row) for row in every], np.float64),  # `None` becomes NaN
    )
    rows = rows.some(np.lexsort((mono, rows.task)))
    moments = np.array([batch.mono_s for batch in read])
    known = np.array([over_gaps or batch.follows for batch in read])
    known[0] = False
    when = Readings(np.append(-np.inf, moments[:-1]), moments, known)
    moved = _moved(rows, when, None)
    place = rows.name.tolist()
    starts, ends = when.since[moved.at].tolist(), rows.mono.tolist()
    for at in np.flatnonzero(~np.isnan(moved.amount)).tolist():
        row = every[place[at]]
        before = every[place[at - 1]] if moved.follows[at] else None
        amount = float(moved.amount[at])
        yield TaskStep(named[place[at]], starts[at], ends[at], before, row, amount)


def used(steps: Iterable[TaskStep[R]]) -> dict[Task, Used[R]]:
    """What each task used over its steps."""
    found: dict[Task, Used[R]] = {}
    for step in steps:
        so_far = found.get(step.task)
        amount, seconds = (0.0, 0.0) if so_far is None else so_far[1:]
        found[step.task] = Used(step.row, amount + step.amount, seconds + step.seconds)
    return found


class TaskRows(NamedTuple):
    """Readings of processes or threads. `task` identifies one, `name` is a number of the caller's,
    `used` is what is counted: CPU time in ms."""

    mono: F64
    task: Ints
    pid: Ints
    start: Ints
    name: Ints
    cpu: Ints
    used: Ints | F64

    def some(self, rows: Any) -> TaskRows:
        return TaskRows(*(column[rows] for column in self))


class TaskUse(NamedTuple):
    """CPU time of tasks per step, in per cent of a core, NaN if unknown; without tasks that used
    none. `at` is the index of the reading."""

    when: Readings
    rows: TaskRows
    at: Ints
    percent: F64


class TaskStepper:
    """Takes rows in pieces; the last reading of each piece is kept for the next."""

    def __init__(self) -> None:
        self._last: TaskRows | None = None

    def add(self, rows: TaskRows) -> TaskUse:
        """CPU time used in the step up to each of these readings."""
        ordered = (rows.task[1:] > rows.task[:-1]) | (
            (rows.task[1:] == rows.task[:-1]) & (rows.mono[1:] > rows.mono[:-1])
        )
        if not ordered.all():
            rows = rows.some(np.lexsort((rows.mono, rows.task)))
        moments = np.unique(rows.mono)
        last = self._last
        if last is not None and moments[0] <= last.mono[0]:
            last = None
        self._last = rows.some(rows.mono == moments[-1])
        when = readings(moments, None if last is None else float(last.mono[0]))
        moved = _moved(rows, when, last)
        some = when.known[moved.at] & ~(moved.amount == 0)
        at = moved.at[some]
        return TaskUse(when, rows.some(some), at, moved.amount[some] / 10 / when.spent[at])


class _Moved(NamedTuple):
    """Per row: its reading, whether the row before is of the same task at the reading before, and
    how far it moved since then."""

    at: Ints
    follows: Bools
    amount: F64


def _moved(rows: TaskRows, when: Readings, last: TaskRows | None) -> _Moved:
    """`rows` and `last`, the reading before them, are sorted by task, then by time."""
    at = np.searchsorted(when.mono, rows.mono)
    since = when.since[at]
    follows = np.zeros(len(at), np.bool_)
    # Only if seen in the previous reading: time used since an older one is not of this step.
    follows[1:] = (rows.task[1:] == rows.task[:-1]) & (rows.mono[:-1] == since[1:])
    before = np.full(len(at), np.nan)
    before[1:][follows[1:]] = rows.used[:-1][follows[1:]]
    seen = follows
    if last is not None:
        place = np.minimum(np.searchsorted(last.task, rows.task), len(last.task) - 1)
        carried = (at == 0) & (last.task[place] == rows.task)
        before[carried] = last.used[place[carried]]
        seen = follows | carried
    before[~seen & (rows.start + _LATE_MS >= 1000 * since)] = 0.0
    amount = rows.used - before
    amount[(amount < 0) | ~when.known[at]] = np.nan
    return _Moved(at, follows, amount)
