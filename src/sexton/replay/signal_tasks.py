"""CPU time by task: by name, by process where several share one, and by name and core."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.model.aligned import F64, Signal
from sexton.model.row import Row
from sexton.model.rows.task import Process, Thread
from sexton.model.text import printable
from sexton.replay.segment_reader import Near, SegmentReader, inside
from sexton.replay.span_reader import SpanReader
from sexton.series.sums import Sums, TaskRows, TaskStepper, TaskUse
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
_WIDTH = 1 << 24
#: Milliseconds since boot in which no two processes of one number begin at once.
_AGES = 1 << 40


class _Names:
    """Task names as numbers, over all segments."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def codes(self, column: Any) -> Ints:
        codes, words = coded(column)
        found: Ints = np.array([self._code(word) for word in words], np.int64)[codes]
        return found

    def _code(self, comm: str) -> int:
        # A kernel worker is renamed with every job.
        return self._known.setdefault(_WORKER.sub(r"\1", comm), len(self._known))

    def listed(self) -> list[str]:
        return list(self._known)


def task_signals(reader: SpanReader, near: Near) -> Iterator[Signal]:
    """Of every task that used any time."""
    names = _Names()
    by_name, by_process = Sums(), Sums()
    pids: dict[int, set[int]] = {}
    for used in _used(reader, near, Process, names):
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


def core_task_signals(reader: SpanReader, near: Near) -> Iterator[Signal]:
    """Of every task on every core it used time on: where a thread was when it was read."""
    names = _Names()
    sums = Sums()
    for used in _used(reader, near, Thread, names):
        percent = np.where(used.rows.cpu >= 0, used.percent, 0.0)
        sums.add(
            used.when, used.rows.name * _WIDTH + np.maximum(used.rows.cpu, 0), used.at, percent
        )
    called = names.listed()
    for pair, mono, value in sums.largest(_MOST_ON_CORES):
        name, cpu = divmod(pair, _WIDTH)
        yield _signal(called[name], f"time on core {cpu}", mono, value)


def _signal(about: str, name: str, mono: F64, value: F64) -> Signal:
    return Signal("task", printable(about), name, "% of a core", mono, value)


def _used(reader: SpanReader, near: Near, kind: type[Row], names: _Names) -> Iterator[TaskUse]:
    stepper = TaskStepper()
    for found in reader.parts(kind, near, lambda segment_reader: _read(segment_reader, kind)):
        if found is not None:
            rows = _rows(found, kind, names)
            mask = inside(rows.mono, reader.span, near)
            if mask.any():
                yield stepper.add(rows if mask.all() else rows.some(mask))


def _read(reader: SegmentReader, kind: type[Row]) -> pa.Table | None:
    wanted = (MONO, "comm", *_counted(kind))
    found = reader.segment.table(kind, wanted, ["comm"]) if reader.segment.rows(kind) else None
    return None if found is None or not {*wanted} <= {*found.column_names} else found


def _counted(kind: type[Row]) -> list[str]:
    return ["start_ms", "cpu", "user_ms", "system_ms", "pid", *(["tid"] * (kind is Thread))]


def _rows(found: pa.Table, kind: type[Row], names: _Names) -> TaskRows:
    counted = _counted(kind)
    column = {name: numbers(found.column(name)).astype(np.int64, copy=False) for name in counted}
    return TaskRows(
        mono=numbers(found.column(MONO)),
        task=column[counted[-1]] * _AGES + column["start_ms"] % _AGES,
        pid=column["pid"],
        start=column["start_ms"],
        name=names.codes(found.column("comm")),
        cpu=column["cpu"],
        used=column["user_ms"] + column["system_ms"],
    )
