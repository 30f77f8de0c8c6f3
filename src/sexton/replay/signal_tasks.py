"""CPU time by task: by name, by process where several share one, and by name and core.

A process that is not there uses no time: where the table was read, that is known, and is zero.
One that began since the reading before has used all its time since; of one that ended, what it
used after the last reading it was seen in is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.aligned import F64, Signal
from sexton.model.row import Row
from sexton.model.task import Process, Thread
from sexton.model.text import printable
from sexton.replay.signal_sums import Readings, Sums, readings
from sexton.replay.span import Span
from sexton.replay.span_reader import Book
from sexton.store.arrays import coded, numbers
from sexton.store.schema import MONO

Ints = npt.NDArray[np.int64]
#: The busiest of each sort: more would be compared with one another, not with what happened.
_MOST_NAMES = 400
_MOST_PROCESSES = 200
_MOST_ON_CORES = 300
#: A process is followed by itself if it ever used so much of a core, in per cent.
_BUSY = 1.0
_WORKER = re.compile(r"(kworker/u?[0-9]+).*", re.DOTALL)
#: A process may be a little older than the tick it began in says.
_LATE_MS = 20
_WIDTH = 1 << 24
#: Milliseconds since boot in which no two processes of one number begin at once.
_AGES = 1 << 40


class _Rows(NamedTuple):
    """Readings of processes or threads; `task` tells one from another, `used` is in ms."""

    mono: F64
    task: Ints
    pid: Ints
    start: Ints
    name: Ints
    cpu: Ints
    used: Ints

    def some(self, rows: Any) -> _Rows:
        return _Rows(*(column[rows] for column in self))


class _Used(NamedTuple):
    """What tasks used up to each reading, in per cent of a core; `at` is the reading's place."""

    when: Readings
    rows: _Rows
    at: Ints
    percent: F64


class _Names:
    """Task names as numbers, over all segments."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def codes(self, column: Any) -> Ints:
        codes, words = coded(column)
        found: Ints = np.array([self._code(each) for each in words], np.int64)[codes]
        return found

    def _code(self, comm: str) -> int:
        # A kernel worker is renamed with every job.
        return self._known.setdefault(_WORKER.sub(r"\1", comm), len(self._known))

    def listed(self) -> list[str]:
        return list(self._known)


def task_signals(books: Sequence[Book], span: Span) -> Iterator[Signal]:
    """Of every task that used any time."""
    names = _Names()
    by_name, by_process = Sums(), Sums()
    pids: dict[int, set[int]] = {}
    for used in _used(books, span, Process, names):
        pairs = used.rows.name * _WIDTH + used.rows.pid
        for pair in np.unique(pairs[used.percent > 0]).tolist():
            pids.setdefault(pair // _WIDTH, set()).add(pair % _WIDTH)
        by_name.add(used.when, used.rows.name, used.at, used.percent)
        busy = np.where(used.percent >= _BUSY, used.percent, 0.0)
        by_process.add(used.when, pairs, used.at, busy)
    called = names.listed()
    for name, mono, value in by_name.largest(_MOST_NAMES):
        mine = pids[name]
        about = f"{called[name]}[{min(mine)}]" if len(mine) == 1 else called[name]
        yield _signal(about, "CPU time", mono, value)
    for pair, mono, value in by_process.largest(_MOST_PROCESSES):
        name, pid = divmod(pair, _WIDTH)
        if len(pids[name]) > 1:
            yield _signal(f"{called[name]}[{pid}]", "CPU time", mono, value)


def core_task_signals(books: Sequence[Book], span: Span) -> Iterator[Signal]:
    """Of every task on every core it used time on: where a thread was when it was read."""
    names = _Names()
    sums = Sums()
    for used in _used(books, span, Thread, names):
        told = np.where(used.rows.cpu >= 0, used.percent, 0.0)
        sums.add(used.when, used.rows.name * _WIDTH + np.maximum(used.rows.cpu, 0), used.at, told)
    called = names.listed()
    for pair, mono, value in sums.largest(_MOST_ON_CORES):
        name, cpu = divmod(pair, _WIDTH)
        yield _signal(called[name], f"time on core {cpu}", mono, value)


def _signal(about: str, name: str, mono: F64, value: F64) -> Signal:
    return Signal("task", printable(about), name, "% of a core", mono, value)


def _used(books: Sequence[Book], span: Span, kind: type[Row], names: _Names) -> Iterator[_Used]:
    last: _Rows | None = None
    for book in books:
        rows = _read(book, span, kind, names)
        if rows is None:
            continue
        moments = np.unique(rows.mono)
        if last is not None and moments[0] <= last.mono[0]:
            last = None
        yield _stepped(rows, moments, last)
        last = rows.some(rows.mono == moments[-1])


def _read(book: Book, span: Span, kind: type[Row], names: _Names) -> _Rows | None:
    counted = ["start_ms", "cpu", "user_ms", "system_ms", "pid", *(["tid"] * (kind is Thread))]
    wanted = (MONO, "comm", *counted)
    found = book.segment.table(kind, wanted, ["comm"]) if book.segment.rows(kind) else None
    if found is None or not {*wanted} <= {*found.column_names}:
        return None
    told = {name: numbers(found.column(name)).astype(np.int64, copy=False) for name in counted}
    rows = _Rows(
        mono=numbers(found.column(MONO)),
        task=told[counted[-1]] * _AGES + told["start_ms"] % _AGES,
        pid=told["pid"],
        start=told["start_ms"],
        name=names.codes(found.column("comm")),
        cpu=told["cpu"],
        used=told["user_ms"] + told["system_ms"],
    )
    inside = (rows.mono >= span.start[0]) & (rows.mono <= span.end[0])
    if not inside.any():
        return None
    if not inside.all():
        rows = rows.some(inside)
    ordered = (rows.task[1:] > rows.task[:-1]) | (
        (rows.task[1:] == rows.task[:-1]) & (rows.mono[1:] > rows.mono[:-1])
    )
    return rows if ordered.all() else rows.some(np.lexsort((rows.mono, rows.task)))


def _stepped(rows: _Rows, moments: F64, last: _Rows | None) -> _Used:
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
    return _Used(when, rows.some(known), at[known], percent)
