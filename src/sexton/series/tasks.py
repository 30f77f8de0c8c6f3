"""CPU time of tasks, of which thousands come and go.

A process that is not there uses no time: where the table was read, that is known, and is zero.
One that began since the reading before has used all its time since; of one that ended, what it
used after the last reading it was seen in is lost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sexton.series.rates import F64, Ints
from sexton.series.sums import Readings, readings

#: A process may be a little older than the tick it began in says.
_LATE_MS = 20


class TaskRows(NamedTuple):
    """Readings of processes or threads; `task` tells one from another, `used` is in ms."""

    mono: F64
    task: Ints
    pid: Ints
    start: Ints
    name: Ints
    cpu: Ints
    used: Ints

    def some(self, rows: Any) -> TaskRows:
        return TaskRows(*(column[rows] for column in self))


class TaskUse(NamedTuple):
    """What tasks used up to each reading, in per cent of a core; `at` is the reading's place."""

    when: Readings
    rows: TaskRows
    at: Ints
    percent: F64


class TaskStepper:
    """Takes rows in pieces, and carries the last reading of each piece over."""

    def __init__(self) -> None:
        self._last: TaskRows | None = None

    def add(self, rows: TaskRows) -> TaskUse:
        """What was used up to each of these readings."""
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
        return _stepped(rows, moments, last)


def _stepped(rows: TaskRows, moments: F64, last: TaskRows | None) -> TaskUse:
    """`rows` and `last` are each in the order of tasks, and of time."""
    when = readings(moments, None if last is None else float(last.mono[0]))
    edges = moments - when.spent
    at = np.searchsorted(moments, rows.mono)
    since = edges[at]
    before = np.full(len(at), -1, np.int64)
    # Seen in the reading before this one: what was used since an older one is not this step's.
    same = (rows.task[1:] == rows.task[:-1]) & (rows.mono[:-1] == since[1:])
    before[1:][same] = rows.used[:-1][same]
    if last is not None:
        place = np.minimum(np.searchsorted(last.task, rows.task), len(last.task) - 1)
        carried = (at == 0) & (last.task[place] == rows.task)
        before[carried] = last.used[place[carried]]
    used = np.where(before >= 0, rows.used - before, 0)
    born = (before < 0) & (rows.start + _LATE_MS >= 1000 * since)
    used[born] = rows.used[born]
    known = when.known[at] & (used > 0)
    percent = used[known] / 10 / when.spent[at[known]]
    return TaskUse(when, rows.some(known), at[known], percent)
